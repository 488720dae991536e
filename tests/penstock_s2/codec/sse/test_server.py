"""Output of a server (S2 fact sheet, section 3; the seeds' page on streaming reads)."""

from __future__ import annotations

import pytest

from penstock.model.failures import Failure, FailureCode, LocalProtocolError
from penstock.model.records import U64_MAX, Columns, Header, RecordBatch, StreamPosition
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.sse import BatchEvent, Done, ErrorEvent, Event, EventId, EventStreamServer, Ping
from penstock_s2.codec.sse.dialects import S2, SEED

TAIL = StreamPosition(2, 1001)
FIRST = RecordBatch(Columns([0, 1], [1000, 1001], [b"x", b"y"]))
SECOND = RecordBatch(Columns([2], [1002], [b"z"], {0: (Header(b"k", b"v"),)}), tail=StreamPosition(3, 1002))


def said(server: EventStreamServer, *events: Event) -> str:
    return b"".join(piece for event in events for piece in server.send(event)).decode()


def test_s2() -> None:
    server = EventStreamServer()
    assert said(server, BatchEvent(FIRST)) == (
        "event: batch\n"
        "id: 1,2,18\n"
        'data: {"records":[{"seq_num":0,"timestamp":1000,"body":"x"},{"seq_num":1,"timestamp":1001,"body":"y"}]}\n'
        "\n"
    )
    assert said(server, Ping(1234, TAIL)) == (
        'event: ping\ndata: {"timestamp":1234,"tail":{"seq_num":2,"timestamp":1001}}\n\n'
    )
    assert said(server, BatchEvent(SECOND)) == (
        "event: batch\n"
        "id: 2,3,31\n"
        'data: {"records":[{"seq_num":2,"timestamp":1002,"headers":[["k","v"]],"body":"z"}],'
        '"tail":{"seq_num":3,"timestamp":1002}}\n'
        "\n"
    )
    assert said(server, Done()) == "data: [DONE]\n\n"


def test_seed() -> None:
    server = EventStreamServer(SEED, BytesFormat.RAW)
    assert said(server, Ping(1234, TAIL)) == "event: ping\ndata:\n\n"
    assert said(server, BatchEvent(FIRST)) == (
        "id: 1:2:18\n"
        "event: batch\n"
        'data: {"records":[{"seq_num":0,"timestamp":1000,"headers":[],"body":"x"},'
        '{"seq_num":1,"timestamp":1001,"headers":[],"body":"y"}]}\n'
        "\n"
    )
    assert said(server, Ping(None, None)) == "id: 1:2:18\nevent: ping\ndata:\n\n"
    empty = RecordBatch(Columns([2], [1002], [b""], {0: (Header(b"k", b"v"),)}), tail=StreamPosition(3, 1002))
    assert said(server, BatchEvent(empty)) == (
        "id: 2:3:30\n"
        "event: batch\n"
        'data: {"records":[{"seq_num":2,"timestamp":1002,"headers":[["k","v"]],"body":""}],'
        '"tail":{"seq_num":3,"timestamp":1002}}\n'
        "\n"
    )
    assert said(server, Done()) == "event: done\ndata:\n\n"


def test_readers_of_both_dialects_share_a_batch_and_no_encoding() -> None:
    batch = RecordBatch(Columns([0], [1000], [b""]))
    for _ in range(2):
        assert '"headers":[],"body":""' in said(EventStreamServer(SEED, BytesFormat.RAW), BatchEvent(batch))
        assert '"timestamp":1000}]' in said(EventStreamServer(S2, BytesFormat.RAW), BatchEvent(batch))


def test_default_formats() -> None:
    assert '"body":"x"' in said(EventStreamServer(S2), BatchEvent(FIRST))
    assert '"body":"eA=="' in said(EventStreamServer(SEED), BatchEvent(FIRST))
    assert '"body":"eA=="' in said(EventStreamServer(S2, BytesFormat.BASE64), BatchEvent(FIRST))


@pytest.mark.parametrize("dialect", [S2, SEED])
@pytest.mark.parametrize(
    ("failure", "data"),
    [
        (Failure(FailureCode.UNAVAILABLE, "gone"), '{"code":"unavailable","message":"gone"}'),
        (
            Failure(FailureCode.RANGE_NOT_SATISFIABLE, "", {"tail": {"seq_num": 3, "timestamp": 4}}),
            '{"tail":{"seq_num":3,"timestamp":4}}',
        ),
        (Failure(FailureCode.OTHER, "two\nlines\r"), '{"code":"other","message":"two\\nlines\\r"}'),
    ],
)
def test_errors(dialect: object, failure: Failure, data: str) -> None:
    server = EventStreamServer(dialect)  # type: ignore[arg-type]
    assert said(server, ErrorEvent(failure)) == f"event: error\ndata: {data}\n\n"


def test_a_resumed_reader() -> None:
    server = EventStreamServer(S2, resumed=EventId(1, 2, 18))
    assert "\nid: 2,3,31\n" in said(server, BatchEvent(SECOND))
    seed = EventStreamServer(SEED, resumed=EventId(1, 2, 18))
    assert said(seed, Ping(None, None)).startswith("id: 1:2:18\n")
    assert said(seed, BatchEvent(SECOND)).startswith("id: 2:3:31\n")


def test_counts_that_a_reader_made_up_end_at_the_largest_number() -> None:
    server = EventStreamServer(S2, resumed=EventId(1, U64_MAX - 1, U64_MAX))
    assert f"\nid: 2,{U64_MAX},{U64_MAX}\n" in said(server, BatchEvent(SECOND))


@pytest.mark.parametrize("last", [Done(), ErrorEvent(Failure(FailureCode.OTHER, "x"))])
@pytest.mark.parametrize(
    "event", [BatchEvent(FIRST), Ping(1, TAIL), ErrorEvent(Failure(FailureCode.OTHER, "")), Done()]
)
def test_nothing_follows_the_last_event(last: Event, event: Event) -> None:
    server = EventStreamServer()
    server.send(last)
    assert server.next_event() is PAUSED
    with pytest.raises(LocalProtocolError, match="has ended"):
        server.send(event)


def test_a_ping_without_a_tail_cannot_be_said_in_s2() -> None:
    with pytest.raises(LocalProtocolError, match="says time and tail"):
        EventStreamServer().send(Ping(1, None))


def test_readers_only_listen() -> None:
    server = EventStreamServer()
    assert server.next_event() is NEED_DATA
    server.receive(b"x" * 1000)
    assert (server.next_event(), server.buffered) == (NEED_DATA, 0)
    server.receive(b"")
    assert server.next_event() is PAUSED


def test_followers_share_the_records() -> None:
    one, other = EventStreamServer(), EventStreamServer(resumed=EventId(7, 7, 7))
    assert one.send(BatchEvent(FIRST))[1] is other.send(BatchEvent(FIRST))[1]
