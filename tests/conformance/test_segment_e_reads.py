"""Event framing and reading in the released dialect (segment fact sheet, 1.5)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.process import running_gateway
from support.segment.client import ReleasedSocket

from penstock_codecs.limits import MIB
from penstock_codecs.segment import join_events, released

Open = Callable[..., ReleasedSocket]
IMPATIENT_CONFIG = """\
[listeners.segment]
bind = "127.0.0.1:{segment_port}"

[listeners.segment.limits]
read_hold_seconds = 1

[store]
directory = "{data}"

[log]
format = "json"
"""
BODIES = (b"hello", b"", b"world" * 10, bytes(range(256)), b"\0" * 20)


def test_clause_53_events_as_they_were_sent(released_socket: Open, segment: str) -> None:
    """An empty event of a segment client is there too: it was sent."""
    with released_socket() as client:
        client.new(segment, *BODIES)
        assert client.content(segment) == join_events(BODIES)


@pytest.mark.parametrize(
    "data",
    [b"x", b"no events at all", bytes(7), bytes(8), b"\0\0\0\0\0\0\0\5hell", bytes(range(256)) * 10_000],
    ids=["a byte", "text", "less than a header", "an empty event", "an event cut short", "2.5 MB"],
)
def test_clause_54_byte_streams(released_socket: Open, segment: str, data: bytes) -> None:
    """Raw bytes, also before and behind events, and with events' bytes split over appends."""
    event = join_events([b"hello"])
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)
        for number, piece in enumerate([data, event, data, event[:6], event[6:]]):
            client.append_raw(writer, piece, number)
        assert client.content(segment) == data + event + data + event


def test_clauses_55_and_63_reads_start_and_stop_anywhere(released_socket: Open, segment: str) -> None:
    content = join_events(BODIES)
    with released_socket() as client:
        client.new(segment, *BODIES)
        for offset in range(len(content)):
            reply = client.read(segment, offset)
            assert (reply.offset, reply.segment, reply.data) == (offset, segment, content[offset:])
            assert client.read(segment, offset, 13).data == content[offset : offset + 13]


def test_clause_56_offsets_never_change(released_socket: Open, segment: str) -> None:
    content = join_events(BODIES)
    with released_socket() as client:
        client.new(segment, *BODIES)
        for offset in (3, 13, 20, 30):
            client.truncate(segment, offset)
            for start in (offset, offset + 1, 100):
                assert client.read(segment, start).data == content[start:]


@pytest.mark.parametrize("beyond", [0, 5])
def test_clause_57_a_read_at_the_tail_waits(released_socket: Open, segment: str, beyond: int) -> None:
    """Or beyond it: until the bytes that were asked for are there."""
    with released_socket() as client, released_socket() as writing:
        client.new(segment, b"hello")
        writer = writing.writer(segment)
        client.send(released.ReadSegment(segment, 13 + beyond, 1000, "", 5))
        with pytest.raises(TimeoutError):
            client.reply(0.2)
        writing.append(writer, [b"world!"], 1)
        reply = client.reply(5)
        assert reply == released.SegmentRead(segment, 13 + beyond, True, False, join_events([b"world!"])[beyond:], 5)


def parked(client: ReleasedSocket, segment: str, offset: int) -> None:
    """Read at the tail, and check that the read waits: a later request is answered first."""
    client.send(released.ReadSegment(segment, offset, 1000, "", 7), released.KeepAlive())
    assert client.reply() == released.KeepAlive()


def test_clause_58_sealed_while_waiting(released_socket: Open, segment: str) -> None:
    with released_socket() as client, released_socket() as other:
        client.new(segment, b"hello")
        parked(client, segment, 13)
        other.seal(segment)
        reply = client.reply(5)
        assert (reply.offset, reply.data, reply.end_of_segment, reply.request_id) == (13, b"", True, 7)


def test_clause_58_truncated_while_waiting(released_socket: Open, segment: str) -> None:
    """Only where it is truncated beyond what was asked for."""
    with released_socket() as client, released_socket() as other:
        client.new(segment, b"hello")
        writer = other.writer(segment)
        parked(client, segment, 13)
        other.truncate(segment, 13)
        other.append(writer, [b"x"], 1)
        assert client.reply(5).data == join_events([b"x"])


def test_clause_58_deleted_while_waiting(released_socket: Open, segment: str) -> None:
    with released_socket() as client, released_socket() as other:
        client.new(segment, b"hello")
        parked(client, segment, 13)
        other.delete(segment)
        reply = client.reply(5)
        assert isinstance(reply, released.NoSuchSegment)
        assert (reply.request_id, reply.segment, reply.offset) == (7, segment, 13)


@pytest.fixture(scope="module")
def impatient() -> Iterator[tuple[str, int]]:
    """A gateway that holds reads for as short a time as may be."""
    with running_gateway(IMPATIENT_CONFIG) as process:
        yield "127.0.0.1", process.segment_port


def test_clause_59_the_hold_time(impatient: tuple[str, int]) -> None:
    """An empty reply, and not at once: a client that asks again does not spin."""
    with ReleasedSocket(impatient) as client:
        client.new("a/b/0.#epoch.0", b"hello")
        for _ in range(2):
            began = time.monotonic()
            parked(client, "a/b/0.#epoch.0", 13)
            assert client.reply(10) == released.SegmentRead("a/b/0.#epoch.0", 13, True, False, b"", 7)
            assert time.monotonic() - began > 0.9


def test_clause_60_the_end_of_a_sealed_segment(released_socket: Open, segment: str) -> None:
    with released_socket() as client:
        client.new(segment, b"hello")
        client.seal(segment)
        assert client.read(segment, 0, 8).end_of_segment is False
        assert client.read_bytes(segment, 0, 13) == join_events([b"hello"])
        for _ in range(2):
            reply = client.read(segment, 13)
            assert (reply.offset, reply.data, reply.end_of_segment) == (13, b"", True)


def test_clause_61_before_the_start(released_socket: Open, segment: str) -> None:
    with released_socket() as client:
        client.new(segment, b"hello", b"world")
        client.truncate(segment, 15)
        for offset in (0, 14):
            client.send(released.ReadSegment(segment, offset, 100, "", 9))
            reply = client.reply()
            assert isinstance(reply, released.SegmentIsTruncated)
            assert (reply.request_id, reply.segment, reply.start_offset, reply.offset) == (9, segment, 15, offset)
        assert client.read(segment, 15).data == join_events([b"hello", b"world"])[15:]


def test_clause_62_where_nothing_can_ever_be(released_socket: Open, segment: str) -> None:
    def refused(offset: int) -> None:
        client.send(released.ReadSegment(segment, offset, 100, "", 9))
        reply: Any = client.reply()
        assert isinstance(reply, released.ErrorMessage), reply
        assert (reply.request_id, reply.segment, reply.error_code) == (9, segment, 0)

    with released_socket() as client:
        client.new(segment, b"hello")
        refused(-1)
        client.seal(segment)
        refused(14)
        refused(-(1 << 63))
        assert client.read(segment, 0).data == join_events([b"hello"])


def test_clause_64_how_much_a_reply_has(released_socket: Open, segment: str) -> None:
    """For any length that the client suggests, also zero and less."""
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)
        for number in range(5):
            client.append(writer, [b"x" * (MIB - 8)], number)
        for suggested, most in ((0, 8), (-5, 8), (7, 8), (9, 9), (1000, 1000), (MIB, MIB), (8 * MIB, 2 * MIB)):
            data = client.read(segment, 5, suggested).data
            assert 0 < len(data) <= most
        assert len(client.read(segment, 0, 8 * MIB).data) >= MIB // 2, "small answers to large questions"
        assert not client.read(segment, 0, 100).at_tail
        assert len(client.content(segment)) == 5 * MIB


def test_clause_65_a_waiting_read_holds_up_nothing(released_socket: Open, segment: str) -> None:
    """Not the appends of the same connection, nor other reads; replies are told apart by offset and id."""
    with released_socket() as client:
        client.new(segment, b"hello")
        writer = client.writer(segment)
        client.send(released.ReadSegment(segment, 13, 100, "", 1), released.ReadSegment(segment, 22, 100, "", 2))
        assert client.read(segment, 0).data == join_events([b"hello"])
        assert client.info(segment).write_offset == 13
        client.send(released.AppendBlockEnd(writer, 9, join_events([b"a"]), 1, 1, 3))
        kinds = {type(reply): reply for reply in client.replies(2)}
        assert kinds[released.SegmentRead].request_id == 1
        assert kinds[released.SegmentRead].data == join_events([b"a"])
        client.send(released.AppendBlockEnd(writer, 9, join_events([b"b"]), 1, 2, 4))
        kinds = {type(reply): reply for reply in client.replies(2)}
        assert (kinds[released.SegmentRead].request_id, kinds[released.DataAppended].request_id) == (2, 4)
