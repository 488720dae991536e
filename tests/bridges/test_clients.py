"""Clients that Penstock did not ship, unmodified, through a bridge: each reaches a server of another protocol."""

from __future__ import annotations

import http.server
import json
import queue
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import s2_sdk as s2
from redis.connection import Connection
from s2_sdk import AppendInput, Record, SeqNum
from support.bridges import REAL, SECOND
from support.bridges.plain_fronts import ReleasedFront
from support.peers import finish, run_client
from support.pravega.clients import Found, PravegaClient, advertised, bodies_by_s2s, need_pravega
from support.pravega.relay import Relay
from support.process import BASIN, GatewayProcess, running_gateway
from support.real_backs import SecondPenstock
from support.real_peers import chromium_program
from support.s2.client import S2Client
from support.s2.sdk import connector

pytestmark = pytest.mark.peer
NODE = Path(__file__).parents[1] / "peers" / "node"
EVENTS = 5
PAGES = ("[listeners.s2]", '[listeners.s2]\ncors_origins = ["*"]')
"""Pages may use the gateway; their server chooses its port late."""


@pytest.fixture(scope="module", params=[SECOND["segment"], REAL["segment"]], ids=str)
def to_segments(request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    """A gateway before a segment store."""
    with request.param.running(PAGES) as gateway:
        yield gateway


RECORDS = [where[kind] for kind in ("s2", "durable", "kafka") for where in (SECOND, REAL)]


@pytest.fixture(scope="module", params=RECORDS, ids=str)
def to_records(request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    """A gateway before a server of records: of S2, Durable Streams or Kafka."""
    with request.param.running() as gateway:
        yield gateway


def test_s2_sdk_reaches_a_segment_store(to_segments: GatewayProcess) -> None:
    dice = random.Random(1)
    sent = [
        Record(dice.randbytes(dice.choice([1, 10, 1000, 20_000])), headers=[(b"k", b"%d" % n)] if n % 3 else [])
        for n in range(200)
    ]

    async def main() -> None:
        async with connector(to_segments.s2_port)() as client:
            basin = client.basin(BASIN)
            await basin.create_stream("sdk-stream")
            stream = basin.stream("sdk-stream")
            async with stream.append_session() as session:
                tickets = [await session.submit(AppendInput(sent[at : at + 10])) for at in range(0, 150, 10)]
                acks = [await ticket for ticket in tickets]
            assert [ack.start.seq_num for ack in acks] == list(range(0, 150, 10))
            ack = await stream.append(AppendInput(sent[150:], match_seq_num=150))
            assert (ack.start.seq_num, ack.end.seq_num) == (150, 200)
            found: list[s2.SequencedRecord] = []
            async for batch in stream.read_session(start=SeqNum(0)):
                found += batch.records
                if len(found) == len(sent):
                    break
            assert [(one.seq_num, one.body, one.headers) for one in found] == [
                (n, record.body, record.headers) for n, record in enumerate(sent)
            ]
            page = await stream.read(start=SeqNum(77))
            assert page.records[0].body == sent[77].body

    finish(main())
    front = ReleasedFront(to_segments, "sdk-stream")
    assert [one.record.body for one in front.read(front.start())] == [record.body for record in sent]
    front.close()


def test_pravega_reaches_a_server_of_records(to_records: GatewayProcess) -> None:
    need_pravega()
    events = [(f"event {number} " + "x" * (number * 37 % 3000), None) for number in range(100)]
    with PravegaClient(to_records.controller_port) as client:
        client.call("manage", "create_scope", BASIN)
        assert client.call("manage", "create_stream", BASIN, "pravega-stream", 1) is True
        client.call("write", BASIN, "pravega-stream", events)
        client.call("group", "readers", BASIN, "pravega-stream")
        client.call("reader", "one", "readers")
        found = Found(client.call("read", ["one"], len(events), 20))
        assert found.bodies("one") == [body.encode() for body, _ in events]
    assert bodies_by_s2s(to_records, "pravega-stream") == [body.encode() for body, _ in events]


@pytest.mark.parametrize("under_way", [True, False])
def test_pravegas_writer_neither_spins_nor_waits_while_an_s2_server_is_away(under_way: bool) -> None:
    """It connects anew at once, as often as it is refused: also where it has nothing under way, and begins then."""
    need_pravega()
    seconds, stream = 5.0, "pravega-patience"
    with SecondPenstock("s2") as server, Relay() as segments:
        bridge = replace(SECOND["s2"], more="recover_seconds = 1")
        text = bridge.configuration(server.address).replace(*advertised(segments.port))
        with running_gateway(text) as gateway, PravegaClient(gateway.controller_port) as client:
            segments.target = gateway.segment_port
            client.call("manage", "create_scope", BASIN)
            client.call("manage", "create_stream", BASIN, stream, 1)
            if under_way:
                client.start("write_until_told", BASIN, stream, 3, 10)
                client.wait_for(100)
                server.kill()
            else:
                client.call("write", BASIN, stream, [("first", None)])
                server.kill()
                client.start("write_until_told", BASIN, stream, 3, 10)
            before = len(segments.said)
            time.sleep(seconds)
            came = len(segments.said) - before
            server.start()
            began, written = time.monotonic(), client.progress
            client.wait_for(written + 100)
            again = time.monotonic() - began
            written = client.stop()
            stored = [int(body) for body in bodies_by_s2s(gateway, stream) if body != b"first"]
    print(f"{came} connections in {seconds:g} s; it went on {again:.1f} s after the server was back")
    assert came <= 3 * seconds
    assert again < 5
    assert stored == list(range(written)), "each event once"


def test_an_s3p_client_reaches_a_server_of_records(to_records: GatewayProcess) -> None:
    """redis-py's connection, which reads replies; S3P's commands nest arrays, so they are packed here."""

    def bulk(value: bytes | list[bytes]) -> bytes:
        if isinstance(value, list):
            return b"*%d\r\n" % len(value) + b"".join(map(bulk, value))
        return b"$%d\r\n%s\r\n" % (len(value), value)

    connection = Connection(host="127.0.0.1", port=to_records.s3p_port, protocol=2, driver_info=None)

    def ask(*command: bytes | list[bytes]) -> object:
        head = b"*%d\r\n" % len(command)
        connection.send_packed_command([head + b"".join(map(bulk, command))], check_health=False)
        return connection.read_response()

    connection.connect_check_health(check_health=False, retry_socket_connect=False)
    try:
        assert ask(b"CREATE", b"redis-stream", []) == b"OK"
        bodies = [b"one", bytes(range(256)), b"\r\n$3\r\n"]
        last = ask(b"APPEND", b"redis-stream", [], bodies)
        found = ask(b"READ", b"redis-stream", [])
        assert isinstance(found, list)
        assert found[1::2] == bodies
        assert found[-2] == last
        assert ask(b"TRIM", b"redis-stream", [b"MIN_ID", found[2]]) == b"OK"
        assert ask(b"READ", b"redis-stream", [b"MIN_ID", found[2]]) == found[2:]
    finally:
        connection.disconnect()
    client = S2Client(("127.0.0.1", to_records.s2_port), BASIN)
    assert [record.body for record in client.read_proto("redis-stream", seq_num=1).records][:2] == bodies[1:]


def test_eventsource_of_node_reads_a_segment_store(to_segments: GatewayProcess) -> None:
    if not (NODE / "node_modules" / "eventsource").is_dir():
        pytest.skip("the npm clients are not installed: `make node-peers`")
    S2Client(("127.0.0.1", to_segments.s2_port), BASIN).ensure_stream("node-stream")
    command = ["node", "eventsource.mjs", "query", to_segments.s2_url, BASIN, "node-stream"]
    run_client(command, cwd=NODE, seconds=45)


PAGE = """<!doctype html><script>
const say = (what) => fetch("/said", {method: "POST", body: JSON.stringify(what)});
const source = new EventSource("%s");
source.onopen = () => say(["open"]);
source.addEventListener("batch", (event) => {
  say(["batch", event.lastEventId, JSON.parse(event.data).records.map((record) => [record.seq_num, record.body])]);
});
</script>"""


class Pages(http.server.ThreadingHTTPServer):
    """Gives a browser one page, and takes what the page says."""

    def __init__(self, page: str) -> None:
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.page = page.encode()
        self.said: queue.SimpleQueue[list[object]] = queue.SimpleQueue()


class PageHandler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Pages

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(200, self.server.page if self.path == "/" else b"")

    def do_POST(self) -> None:
        self.server.said.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.answer(204, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def browsing(page: str) -> Iterator[queue.SimpleQueue[list[object]]]:
    """Show a page in a browser, and yield a queue with the page's messages."""
    program = chromium_program()
    if not program.exists():
        pytest.skip("there is no Chromium: `make peers`")
    with Pages(page) as pages, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        browser = subprocess.Popen(
            [program, *flags, f"http://127.0.0.1:{pages.server_port}/"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield pages.said
        finally:
            browser.terminate()
            browser.wait(20)
            pages.shutdown()


def test_eventsource_of_a_browser_reads_a_segment_store(to_segments: GatewayProcess) -> None:
    """The connection is cut in mid-stream; the browser comes back by itself, and goes on behind what it has."""
    client = S2Client(("127.0.0.1", to_segments.s2_port), BASIN)
    client.ensure_stream("browser-stream")
    client.append("browser-stream", "0", "1")
    seen: list[list[object]] = []
    with Relay(to_segments.s2_port) as relay:
        url = f"http://127.0.0.1:{relay.port}/v1/streams/browser-stream/records?seq_num=0&s2-basin={BASIN}"
        with browsing(PAGE % url) as said:
            for number in range(2, EVENTS + 1):
                while len(seen) < number:
                    kind, *what = said.get(timeout=60)
                    if kind == "batch":
                        assert isinstance(what[1], list)
                        seen += what[1]
                if number == 3:
                    relay.cut()
                if number < EVENTS:
                    client.append("browser-stream", str(number))
        assert any(b"last-event-id: 2,3," in connection.lower() for connection in relay.said)
    assert seen == [[number, str(number)] for number in range(EVENTS)]
