"""Mirrors and cut-overs with real processes: a gateway, and real servers or a second Penstock as the secondary."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.bridges.copies import bodies_at_server, mirror_of, until_compared
from support.management import ask, management_port
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.real_backs import BackServer, DurableReference, S2Lite, SecondPenstock
from support.relay import LateRelay
from support.s2.client import S2Client
from support.s2.frames import Session, append_input
from support.s3p.client import S3PClient
from support.segment.client import UNKNOWN_WRITER, ReleasedSocket
from test_documents import blocks, command, output

ROOT = Path(__file__).parents[2]
STREAM = "mirrored"
PATIENCE_SECONDS = 30.0

SECONDARIES: dict[str, Callable[[], BackServer]] = {
    "s2 lite": S2Lite,
    **{f"Penstock {kind}": lambda kind=kind: SecondPenstock(kind) for kind in ("s2", "s3p", "segment")},
}


def configuration(server: BackServer) -> str:
    """The usual listeners, and one route for everything, mirrored to the server."""
    host, port = server.address
    return (
        CONFIG
        + f"""
[management]
bind = "127.0.0.1:0"

[backs.second]
kind = "{server.kind}"
address = "{host}:{port}"

[[routes]]
name = "everything"
back = "embedded"
mirror = "second"
"""
    )


def s2(gateway: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def all_bodies(gateway: GatewayProcess) -> list[str]:
    """A read gives a thousand records at most."""
    found: list[str] = []
    while len(found) < s2(gateway).tail(STREAM)["seq_num"]:
        found += s2(gateway).bodies(STREAM, seq_num=len(found))
    return found


def cut_over(gateway: GatewayProcess) -> dict[str, Any]:
    status, answer = ask(management_port(gateway), "/routes/everything/cut-over", {"wait_seconds": 20})
    assert (status, answer.get("swapped")) == (200, True), str(answer)
    done: dict[str, Any] = answer
    return done


@pytest.mark.parametrize("name", SECONDARIES)
def test_the_mirror_takes_over_and_gives_back(name: str) -> None:
    with SECONDARIES[name]() as server, running_gateway(configuration(server)) as gateway:
        bodies = [f"record {number}" for number in range(30)]
        client = s2(gateway)
        for at in range(0, 20, 5):
            client.append(STREAM, *bodies[at : at + 5])
        until_compared(gateway, 20)
        assert (cut_over(gateway)["primary"], mirror_of(gateway)["primary"]) == ("second", "second")
        assert client.append(STREAM, *bodies[20:25])["start"]["seq_num"] == 20
        assert client.bodies(STREAM, seq_num=18, count=4) == bodies[18:22]
        until_compared(gateway, 25)
        gateway.restart()
        assert client.bodies(STREAM, seq_num=0) == bodies[:25]
        assert mirror_of(gateway)["primary"] == "second"
        assert cut_over(gateway)["primary"] == "embedded"
        client.append(STREAM, *bodies[25:])
        assert client.bodies(STREAM, seq_num=0) == bodies
        until_compared(gateway, 30)
        _, answer = ask(management_port(gateway), "/routes/everything/streams")
        [stream] = answer["streams"]
        assert (stream["compared"], stream["shift"], stream["hashed"]) == (30, 0, 30)
        assert stream["primary_hash"] == stream["secondary_hash"]


def test_what_the_secondary_has_is_what_its_own_clients_read() -> None:
    with SecondPenstock("s3p") as server, running_gateway(configuration(server)) as gateway:
        s2(gateway).append(STREAM, "one", "two")
        until_compared(gateway, 2)
        with S3PClient(server.address) as client:
            assert [body for _identifier, body in client.read(STREAM)] == [b"one", b"two"]


@pytest.mark.parametrize("name", ["s2 lite", "Penstock s2"])
def test_cut_overs_under_load(name: str) -> None:
    """Appends wait, and none fails, is lost or is there twice."""
    with SECONDARIES[name]() as server, running_gateway(configuration(server)) as gateway:
        acknowledged: list[str] = []
        stop = threading.Event()

        def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                body = f"{writer}: {number}"
                s2(gateway).append(STREAM, body)
                acknowledged.append(body)
                number += 1

        with ThreadPoolExecutor() as pool:
            writers = [pool.submit(write, writer) for writer in range(3)]
            try:
                for primary in ("second", "embedded", "second"):
                    wanted = len(acknowledged) + 20
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    while len(acknowledged) < wanted and time.monotonic() < deadline:
                        time.sleep(0.01)
                    assert cut_over(gateway)["primary"] == primary
            finally:
                stop.set()
            for writer in writers:
                writer.result()
        stored = all_bodies(gateway)
        assert sorted(stored) == sorted(acknowledged)
        assert not any(mirror_of(gateway)["differences"].values())


class Sessions:
    """Appends numbers in S2S sessions, several in flight at once.

    When a session ends, unacknowledged appends are repeated in the next one: a cut-over has not applied them.
    """

    def __init__(self, client: S2Client, carrier: str) -> None:
        self.client = client
        self.carrier = carrier
        self.acknowledged = 0
        self.sessions = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            self.sessions += 1
            with self.client.append_session(STREAM, self.carrier) as session:
                self._fill(session)

    def _fill(self, session: Session) -> None:
        sent = self.acknowledged
        while sent > self.acknowledged or not self.stop.is_set():
            while sent < self.acknowledged + 5 and not self.stop.is_set():
                session.send(append_input(b"%d" % sent))
                sent += 1
            frame = session.next(PATIENCE_SECONDS)
            assert frame is not None
            if frame.terminal:
                assert frame.failure[1]["code"] == "hot_server", frame.failure
                return
            self.acknowledged += 1


@pytest.mark.parametrize("carrier", ["h1", "h2"])
def test_cut_overs_under_sessions(carrier: str) -> None:
    """Every record once and in order, though only what was not acknowledged is sent again."""
    with SecondPenstock("s2") as server, running_gateway(configuration(server)) as gateway:
        s2(gateway).ensure_stream(STREAM)
        load = Sessions(s2(gateway), carrier)
        with ThreadPoolExecutor() as pool:
            running = pool.submit(load.run)
            try:
                for primary in ("second", "embedded", "second", "embedded"):
                    wanted = load.acknowledged + 40
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    while load.acknowledged < wanted and time.monotonic() < deadline and not running.done():
                        time.sleep(0.01)
                    assert cut_over(gateway)["primary"] == primary
            finally:
                load.stop.set()
            running.result()
        assert all_bodies(gateway) == [str(number) for number in range(load.acknowledged)]
        assert load.sessions >= 4
        assert not any(mirror_of(gateway)["differences"].values())


@pytest.mark.parametrize("name", ["Penstock s2", "Penstock segment"])
def test_a_segment_writer_goes_on_at_the_new_primary(name: str) -> None:
    """It asks for its position when it connects again, there and, after the next cut-over, here."""
    segment, writer = f"{BASIN}/{STREAM}/0.#epoch.0", uuid4()
    with SECONDARIES[name]() as server, running_gateway(configuration(server)) as gateway:
        s2(gateway).ensure_stream(STREAM)
        for turn in range(3):
            with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as client:
                assert client.setup(segment, writer) == (2 * turn or UNKNOWN_WRITER)
                bodies = [b"event %d" % number for number in (2 * turn, 2 * turn + 1)]
                assert client.append(writer, bodies, 2 * turn + 2).event_number == 2 * turn + 2
                cut_over(gateway)
        with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as client:
            assert client.setup(segment, writer) == 6
        assert all_bodies(gateway) == [f"event {number}" for number in range(6)]


@pytest.mark.parametrize("killed", ["secondary", "gateway"])
def test_a_kill_in_the_middle_of_a_load(killed: str) -> None:
    """No acknowledged record is missing on either side, and none is there twice."""
    with SecondPenstock("s2") as server, running_gateway(configuration(server)) as gateway:
        acknowledged: list[str] = []
        failures: list[str] = []
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                body = f"record {number}"
                try:
                    s2(gateway).append(STREAM, body)
                    acknowledged.append(body)
                except (OSError, AssertionError) as error:
                    failures.append(repr(error))
                    time.sleep(0.01)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _round in range(2):
                wanted = len(acknowledged) + 20
                deadline = time.monotonic() + PATIENCE_SECONDS
                while len(acknowledged) < wanted and time.monotonic() < deadline:
                    time.sleep(0.01)
                if killed == "gateway":
                    gateway.restart(kill=True)
                else:
                    server.kill()
                    before = len(acknowledged)
                    while len(acknowledged) < before + 20 and time.monotonic() < deadline:
                        time.sleep(0.01)
                    assert len(acknowledged) >= before + 20, "clients wait for the secondary"
                    server.start()
        finally:
            stop.set()
            writer.join()
        assert killed == "gateway" or not failures
        stored = all_bodies(gateway)
        assert len(set(stored)) == len(stored)
        assert set(acknowledged) <= set(stored)
        assert cut_over(gateway)["primary"] == "second"
        assert all_bodies(gateway) == stored


@pytest.mark.parametrize("name", ["reference server of Durable Streams", "Penstock durable"])
def test_a_stream_of_json_gets_records_without_the_headers_that_its_back_drops(name: str) -> None:
    """Spark's sink marks the first record of each append with a header."""
    with LATE_SECONDARIES[name]() as server:
        json_back = 'create_as = "json"\nloss.headers = "drop"\n\n[[routes]]'
        with running_gateway(configuration(server).replace("[[routes]]", json_back)) as gateway:
            marked = {"headers": [["penstock-sink", "first"]], "body": '{"row":1}'}
            s2(gateway).append_json(STREAM, {"records": [marked, {"body": '{"row":2}'}]})
            until_compared(gateway, 2)
            assert mirror_of(gateway)["state"] == "equal"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.address[1]}/v1/stream/{STREAM}", timeout=20) as response:
            assert response.headers["content-type"] == "application/json"
            assert response.read() == b'[{"row":1},{"row":2}]'


LATE_SECONDARIES: dict[str, Callable[[], BackServer]] = {
    "reference server of Durable Streams": lambda: DurableReference(durable=True),
    "Penstock durable": lambda: SecondPenstock("durable"),
    "Penstock segment": lambda: SecondPenstock("segment"),
}


@pytest.mark.parametrize("name", LATE_SECONDARIES)
def test_an_append_that_arrives_after_its_gateway_was_killed(name: str) -> None:
    """The next gateway has copied its records then; they are not stored again."""
    with LATE_SECONDARIES[name]() as server, LateRelay(server.address[1], b"three") as relay:
        config = configuration(server).replace(f":{server.address[1]}", f":{relay.port}")
        with running_gateway(config) as gateway:
            s2(gateway).append(STREAM, "one")
            until_compared(gateway, 1)
            s2(gateway).append(STREAM, "two", "three")
            relay.wait_until_late()
            gateway.restart(kill=True)
            until_compared(gateway, 3)
            relay.release()
            assert bodies_at_server(server, STREAM) == [b"one", b"two", b"three"]
            s2(gateway).append(STREAM, "four")
            until_compared(gateway, 4)
            assert mirror_of(gateway)["state"] == "equal"


# ---- docs/management.md --------------------------------------------------------------------------------------

PAGE = "docs/management.md"
EXPECTED = {
    "/ready": ['"ready": true'],
    "/config?format": ['mirror = "second"', 'directory = "./recordings"'],
    "penstock backs": ["embedded  embedded", "second    s2"],
    "penstock routes": ['"name":"everything"', '"secondary":"second"'],
    "penstock log-level": ["info"],
    "/log -H": ['"level": "debug"'],
    "/reload -H": ['"changed"'],
    "/streams?basin": ['"stream": "penstock/orders"', '"has_more": false'],
    "DELETE": ['"connection_not_found"'],
    "/drain -H": ['"state": "draining"'],
    '{"body":"first"}': ['"end":{"seq_num":3'],
    "positions?stream": ['"record_id"', '"last_event_id": "0,0,0"', '"offset": 13', '"query": "seq_num=1"'],
    "penstock positions": ["seq_num    2", "last_event_id=1,0,0"],
    "9600/routes\n": ['"secondary": "second"', '"records_compared": 3'],
    "/streams?limit": ['"stream": "penstock/orders"', '"hashed": 3'],
    "penstock cut-over": ["cut over; second is the primary back, embedded its mirror"],
    "/cut-over -H": ['"swapped": true', '"primary": "embedded"'],
    "penstock connections": ["client sent", "management", "backs.second"],
    "penstock record start": ["recording 1: recording (1 file), stream penstock/ord*", "/recordings/penstock-1-"],
    "penstock record list": ["recording 1: recording (1 file), stream penstock/ord*"],
    "penstock record stop": ["recording 1: stopped (1 file), stream penstock/ord*"],
    "9600/status\n": ['"version"', '"uptime_seconds"', '"name": "listeners.s2"'],
    "9600/history\n": ['"step_seconds": 10', '"ways"'],
    "9600/captures\n": ['"name": "penstock-1-', '"has_more": false'],
    "&text=second": ['"body": "second"', '"scanned": 3'],
    "one more": ['"seq_num": 3', '"stream": "penstock/orders"'],
}


def test_the_pages_commands_work(tmp_path: Path) -> None:
    """With the page's own configuration, but for ports and the directory."""
    text = (ROOT / PAGE).read_text()
    shown = "".join(line.removeprefix("    ") for line in re.findall(r"^    [\w\[].*\n|^\n", text, re.MULTILINE)[:40])
    page = shown[shown.index("[management]") : shown.index('mirror = "second"')] + 'mirror = "second"\n'
    with SecondPenstock("s2") as server:
        template = re.sub(r"127\.0\.0\.1:(?!8090)\d+", "127.0.0.1:0", page).replace("8090", str(server.address[1]))
        template += '[store]\ndirectory = "{data}"\n[log]\nformat = "json"\n'
        with running_gateway(template, directory=tmp_path) as gateway:
            port = management_port(gateway)
            expected = dict(EXPECTED)
            for block in blocks(PAGE):
                key = next(key for key in expected if key in block.text)
                if "9600/routes" in block.text:
                    until_compared(gateway, 3)
                run = block.text.replace(":8080", f":{gateway.s2_port}").replace(":9600", f":{port}")
                output(command(block._replace(text=run)), expected.pop(key))
            assert not expected, "these blocks are not there any more"
