"""Pages of other origins, and pages that reach the gateway by DNS rebinding, in a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.browser import Browser, browser_program
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client

pytestmark = pytest.mark.peer

REBOUND = "rebound.example"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(browser_program(), f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """A server of pages that has nothing to do with the gateway."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def attempts(base: str, stream: str) -> str:
    """Return JavaScript that tries everything a page can, with each result as name and status, or `failed`."""
    path = f"/v1/streams/{stream}"
    events = f"{base}{path}/records?seq_num=0&s2-basin={BASIN}"
    tries = {
        "read": ("GET", f"{path}/records?seq_num=0&s2-basin={BASIN}", None, None, "cors"),
        "append": (
            "POST",
            f"{path}/records?s2-basin={BASIN}",
            "application/json",
            '{"records":[{"body":"x"}]}',
            "cors",
        ),
        "append unasked": (
            *("POST", f"{path}/records?s2-basin={BASIN}", "text/plain"),
            *('{"records":[{"body":"x"}]}', "no-cors"),
        ),
        "delete": ("DELETE", f"{path}?s2-basin={BASIN}", None, None, "cors"),
    }
    return f"""(async () => {{
      const found = {{}};
      found.follow = await new Promise((done) => {{
        const source = new EventSource({json.dumps(events)});
        source.addEventListener('batch', () => {{ source.close(); done('records'); }});
        source.onerror = () => {{ source.close(); done('failed'); }};
      }});
      for (const [name, [method, target, type, body, mode]] of Object.entries({json.dumps(tries)})) {{
        const headers = type ? {{'content-type': type}} : {{}};
        try {{
          const answer = await fetch({json.dumps(base)} + target, {{method, headers, body, mode}});
          found[name] = mode === 'no-cors' ? 'unread' : answer.status;
        }} catch {{ found[name] = 'failed'; }}
      }}
      return found;
    }})()"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """As it is by default."""
    with GatewayProcess(CONFIG) as process:
        yield process


def tried(browser: Browser, page: str, base: str, stream: str) -> dict[str, object]:
    tab = browser.tab(page)
    found = tab.evaluate(attempts(base, stream))
    tab.close()
    return dict(found)


def append(gateway: GatewayProcess, stream: str) -> None:
    S2Client(("127.0.0.1", gateway.s2_port), BASIN).append(stream, "secret")


def bodies(gateway: GatewayProcess, stream: str) -> list[str]:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    return [record["body"] for record in client.read(stream, seq_num=0).json()["records"]]


ALLOWED = {"read": 200, "append": 200, "append unasked": "unread", "delete": 202, "follow": "records"}
REFUSED = {"read": "failed", "append": "failed", "append unasked": "unread", "delete": "failed", "follow": "failed"}


def test_a_foreign_page_can_do_nothing_by_default(browser: Browser, origin: str, gateway: GatewayProcess) -> None:
    append(gateway, "foreign")
    for host in ("127.0.0.1", f"{BASIN}.localhost"):
        assert tried(browser, origin, f"http://{host}:{gateway.s2_port}", "foreign") == REFUSED
    assert bodies(gateway, "foreign") == ["secret"]


def test_a_page_that_is_rebound_to_the_listener_can_do_nothing(browser: Browser, gateway: GatewayProcess) -> None:
    """The browser takes the page and the listener for one origin, and would let it read answers."""
    append(gateway, "rebound")
    base = f"http://{REBOUND}:{gateway.s2_port}"
    told = {"read": 403, "append": 403, "append unasked": "unread", "delete": 403, "follow": "failed"}
    assert tried(browser, f"{base}/", base, "rebound") == told
    assert bodies(gateway, "rebound") == ["secret"]


def test_a_page_of_the_listener_itself_can_do_all(browser: Browser, gateway: GatewayProcess) -> None:
    append(gateway, "own")
    base = f"http://{BASIN}.localhost:{gateway.s2_port}"
    assert tried(browser, f"{base}/health", base, "own") == ALLOWED


def test_pages_of_listed_origins_can_do_all(browser: Browser, origin: str) -> None:
    """One listener has the origin in its list, another has `*`."""
    tables = [
        f'[[listeners.s2]]\nname = "n{number}"\nbind = "127.0.0.1:0"\ncors_origins = ["https://other.example", "{one}"]'
        for number, one in enumerate((origin, "*"))
    ]
    head, _, rest = CONFIG.partition("[listeners.s3p]")
    listed = head.replace("[listeners.s2]", "[[listeners.s2]]") + "\n".join(tables) + "\n[listeners.s3p]" + rest
    with GatewayProcess(listed) as gateway:
        ports = {one["listener"]: one["port"] for one in gateway.events("listening")}
        for number in range(len(tables)):
            append(gateway, f"listed-{number}")
            base = f"http://127.0.0.1:{ports[f'listeners.s2.n{number}']}"
            assert tried(browser, origin, base, f"listed-{number}") == ALLOWED
