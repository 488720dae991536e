"""Requests of web pages to the S2 listener: only those of `cors_origins`, and of hosts of this machine."""

from collections.abc import Iterator

import pytest
from support.process import BASIN, CONFIG, running_gateway
from support.s2.client import S2Client, stream_path

ORIGIN = "https://app.example"
RECORDS = stream_path("pages") + "/records"


@pytest.fixture(scope="module")
def with_pages() -> Iterator[S2Client]:
    """A client of a gateway that pages of ORIGIN may use."""
    with running_gateway(CONFIG.replace("[listeners.s2]", f'[listeners.s2]\ncors_origins = ["{ORIGIN}"]')) as gateway:
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        client.append("pages", "x")
        yield client


def test_a_preflight_says_what_is_allowed(with_pages: S2Client) -> None:
    request = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "s2-basin,content-type,authorization",
    }
    answer = with_pages.of(None).request("OPTIONS", RECORDS, None, request)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {"s2-basin", "content-type", "authorization"}


@pytest.mark.parametrize(("name", "start"), [("pages", "9"), ("pages", "x"), ("n" * 600, "0")])
def test_errors_name_the_origin(with_pages: S2Client, name: str, start: str) -> None:
    answer = with_pages.read(name, {"origin": ORIGIN}, seq_num=start)
    assert answer.status in (400, 416)
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_events_name_the_origin(with_pages: S2Client) -> None:
    with with_pages.events("pages", headers={"origin": ORIGIN}, seq_num=0, count=1) as events:
        assert events.stream.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_other_origins_are_refused(with_pages: S2Client, s2: S2Client, method: str) -> None:
    """They are told so without permission to read it."""
    headers = {"origin": "https://other.example", "access-control-request-method": "POST"}
    for client in (with_pages, s2):
        answer = client.request(method, RECORDS, None, headers)
        assert "cors_origins" in answer.fails(403, "permission_denied")
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_foreign_hosts_are_refused(s2: S2Client, stream: str) -> None:
    """A page can let its name resolve to this machine (DNS rebinding)."""
    answer = s2.read(stream, {"host": "other.example:8080"}, seq_num=0)
    assert "'other.example:8080' is not allowed here" in answer.fails(403, "permission_denied")
