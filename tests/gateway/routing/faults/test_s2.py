"""Faults as clients of S2 meet them: sessions over both carriers, server-sent events, and requests."""

from __future__ import annotations

import http.client
import time
import urllib.request
from collections import Counter

import pytest
from support.faults import faults_of, injected
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client
from support.s2.frames import Session, append_input

CARRIERS = pytest.mark.parametrize("carrier", ["h1", "h2"])


@pytest.fixture
def client(faulty: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", faulty.s2_port), BASIN)


def acks(session: Session, count: int) -> list[tuple[int, int]]:
    found = [session.ack() for _ in range(count)]
    return [(ack.start.seq_num, ack.end.seq_num) for ack in found]


def test_a_lost_input_and_a_lost_acknowledgement(client: S2Client) -> None:
    for rule, stored, told in (
        ("lost-append", ["0", "2"], [(0, 1), (1, 2)]),
        ("lost-ack", ["0", "1", "2"], [(0, 1), (2, 3)]),
    ):
        stream = f"{rule}.s2s"
        with client.append_session(stream) as session:
            for number in range(3):
                session.send(append_input(b"%d" % number))
            session.stream.end()
            assert acks(session, 2) == told
            assert session.rest() == []
        assert client.bodies(stream, seq_num=0) == stored


def test_an_input_that_comes_twice(client: S2Client) -> None:
    stream = "twice-in.s2s"
    with client.append_session(stream) as session:
        for number in range(2):
            session.send(append_input(b"%d" % number))
        assert acks(session, 2) == [(0, 1), (2, 3)]
    assert client.bodies(stream, seq_num=0) == ["0", "0", "1"]


def test_a_batch_that_is_lost(client: S2Client) -> None:
    stream = "lost-batch.s2s"
    client.append(stream, "a")
    with client.read_session(stream, seq_num=0) as session:
        assert not session.batch().records  # a heartbeat: the reader has caught up, as it thinks
        client.append(stream, "b")
        assert [record.body for record in session.records(1)] == [b"b"]


@CARRIERS
def test_a_cut_in_the_middle_of_a_frame(faulty: GatewayProcess, client: S2Client, carrier: str) -> None:
    stream = f"cuts.{carrier}"
    client.append(stream, "a")
    with client.read_session(stream, carrier, seq_num=0) as session:
        whole = b""
        with pytest.raises((EOFError, ConnectionError, AssertionError)):
            while data := session.stream.receive():
                whole += data
            raise EOFError
    assert len(whole) == 7 or (carrier == "h2" and not whole)  # one acknowledging a window may see the cut first
    assert injected(faulty, "cuts")


@CARRIERS
def test_a_terminal_frame_after_so_many_records(client: S2Client, carrier: str) -> None:
    stream = f"ends.{carrier}"
    for again in range(2):
        with client.append_session(stream, carrier) as session:
            for number in range(5):
                session.send(append_input(b"%d" % number))
            first = 3 * again
            assert acks(session, 3) == [(number, number + 1) for number in range(first, first + 3)]
            status, error = session.failure()
            assert (status, error["code"]) == (503, "unavailable")


def test_readers_get_a_terminal_after_so_many_records(client: S2Client) -> None:
    stream = "ends-read.s2s"
    client.append(stream, *"abcde")
    with client.read_session(stream, seq_num=0) as session:
        assert [record.body for record in session.records(3)] == [b"a", b"b", b"c"]
        assert session.failure()[0] == 503
    with client.events(stream, seq_num=0) as events:
        assert [record["body"] for record in events.batch().json()["records"]] == ["a", "b", "c"]
        rest = events.rest()
        assert [event.name for event in rest] == ["error"]
        assert rest[0].json()["code"] == "unavailable"


def test_errors_of_sessions_come_in_their_turn(client: S2Client) -> None:
    with client.append_session("refused.s2s") as session:
        for number in range(3):
            session.send(append_input(b"%d" % number))
        assert acks(session, 1) == [(0, 1)]
        status, error = session.failure()
        assert (status, error["message"]) == (429, "injected by fault refused")
    assert client.bodies("refused.s2s", seq_num=0) == ["0"]


def test_errors_of_requests(client: S2Client) -> None:
    answer = client.append_json("applied.s2", {"records": [{"body": "1"}]})
    assert answer.fails(503, "unavailable") == "injected by fault applied"
    assert client.bodies("applied.s2", seq_num=0) == ["1"]
    client.append("unread.s2", "1")
    assert client.bodies("unread.s2", seq_num=0) == ["1"]
    assert client.read("unread.s2", seq_num=0).fails(500, "storage") == "no"


@pytest.mark.parametrize(("rule", "stored"), [("no-answers", 1), ("no-appends", 0), ("cut-ack", 1), ("cut-in", 0)])
def test_requests_without_an_answer(faulty: GatewayProcess, client: S2Client, rule: str, stored: int) -> None:
    stream = f"{rule}.s2"
    url = f"{faulty.s2_url}/v1/streams/{stream}/records"
    head = {"s2-basin": BASIN, "content-type": "application/json"}
    request = urllib.request.Request(url, b'{"records":[{"body":"1"}]}', head)
    with pytest.raises(OSError) as caught:
        urllib.request.urlopen(request, timeout=0.3)
    assert isinstance(caught.value, TimeoutError) is rule.startswith("no-")
    assert client.tail(stream)["seq_num"] == stored


def test_a_request_that_is_answered_by_halves(faulty: GatewayProcess, client: S2Client) -> None:
    stream = "cuts.json"
    client.append(stream, "a")
    url = f"{faulty.s2_url}/v1/streams/{stream}/records?seq_num=0"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"s2-basin": BASIN})) as answer:
        with pytest.raises(http.client.IncompleteRead) as caught:
            answer.read()
        assert caught.value.partial == b'{"recor'


def test_slow_events(client: S2Client) -> None:
    client.append("slow.sse", "x" * 8_000)
    begin = time.monotonic()
    with client.events("slow.sse", seq_num=0) as events:
        assert len(events.batch().json()["records"]) == 1
    assert time.monotonic() - begin > 0.35


def test_faults_are_counted(faulty: GatewayProcess, client: S2Client) -> None:
    client.append_json("applied.counted", {"records": [{"body": "1"}]})
    told = Counter(event["rule"] for event in faulty.events("fault_injected"))
    with urllib.request.urlopen(f"http://127.0.0.1:{faulty.management_port}/metrics") as answer:
        assert faults_of(answer.read().decode()) == told
