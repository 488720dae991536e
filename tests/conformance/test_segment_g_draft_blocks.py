"""Draft blocks by readings 6 to 10 of the segment fact sheet, section 2."""

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from support.process import GatewayProcess
from support.segment import draft_shapes
from support.segment.client import DraftSocket, bytes_of, header

from penstock_codecs.segment import draft, join_events

Open = Callable[..., DraftSocket]
Begin, End, Event = draft.BeginAppendBlock, draft.EndAppendBlock, draft.Event
WRITER, OTHER = UUID(int=1), UUID(int=2)
HELLO = join_events([b"hello"])


@pytest.mark.parametrize("name", draft_shapes.ALL)
def test_readings_6_and_7_blocks_of_every_shape(
    draft_socket: Open, draft_segments: None, segment: str, name: str
) -> None:
    """The stored bytes are those of the readings, and all are acknowledged; twice in a row on one connection."""
    shape = draft_shapes.ALL[name]
    with draft_socket() as client:
        client.create(segment)
        for _ in range(2):
            connection = uuid4()
            assert client.setup(segment, connection) == 0
            draft_shapes.expect_set_ups(client, shape)
            client.send_bytes(shape.said_by(connection))
            draft_shapes.replies_to(client, shape, connection)
            assert client.setup(segment, connection) == len(shape.content)
        assert client.content(segment) == 2 * shape.content


def test_reading_6_a_large_block_is_stored_as_it_comes(draft_socket: Open, segment: str) -> None:
    """It was announced at 2 GiB and is never ended: its events are there all the same, and acknowledged."""
    events = join_events([b"x" * 10_000] * 300)
    with draft_socket() as client, draft_socket() as other:
        client.create(segment)
        client.setup(segment, WRITER)
        client.send_bytes(bytes_of(Begin(WRITER, 0, 2**31 - 1)) + events)
        reply = client.reply()
        assert isinstance(reply, draft.DataAppended)
        assert 0 < reply.connection_offset_ack_level <= len(events)
        level = reply.connection_offset_ack_level
        assert other.read_bytes(segment, 0, level) == events[:level]
        client.close()
        level = other.setup(segment, WRITER)
        assert other.append(WRITER, level, [b"on"]) == level + 10
        assert other.content(segment) == events[:level] + join_events([b"on"])


ENDS = {
    "an offset that is not the one after the block": End(WRITER, 0, 13),
    "less than the events that are certain": End(WRITER, 5, 5),
    "more than the events that came": End(WRITER, 21, 21),
    "another connection": End(OTHER, 13, 13),
    "a negative length": End(WRITER, -13, -13),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_reading_7_ends_that_do_not_fit(draft_socket: Open, segment: str, end: draft.EndAppendBlock) -> None:
    with draft_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.setup(segment, OTHER)
        client.send_bytes(bytes_of(Begin(WRITER, 0, 13), Event(b"hello"), end, draft.KeepAlive()))
        assert client.ended()


IN_BLOCKS = {
    "another message": bytes_of(draft.KeepAlive(b"12345")),
    "another block": bytes_of(Begin(WRITER, 0, 13)),
    "an end too soon": bytes_of(Event(b"hello"), End(WRITER, 13, 13)),
    "an event beyond the block": bytes_of(Event(b"x" * 100)),
    "an unknown type": header(99, 1) + b"x",
}


@pytest.mark.parametrize("data", IN_BLOCKS.values(), ids=IN_BLOCKS.keys())
def test_reading_6_what_must_not_stand_in_a_block(draft_socket: Open, segment: str, data: bytes) -> None:
    with draft_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.send_bytes(bytes_of(Begin(WRITER, 0, 50)) + data)
        assert client.ended()


def test_reading_7_a_split_block_is_acknowledged_after_its_rest(draft_socket: Open, segment: str) -> None:
    begin, end = draft.partials(Event(b"worldwide"), [6])
    with draft_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.send(Begin(WRITER, 0, 28), Event(b"hello"), begin, End(WRITER, 30, 30), draft.KeepAlive(b"1"))
        levels = []
        while isinstance(reply := client.reply(), draft.DataAppended):
            levels.append(reply.connection_offset_ack_level)
        assert reply == draft.KeepAlive(b"1")
        assert max(levels, default=0) <= 13
        client.send(end)
        assert client.acknowledged(WRITER, 30) == 30


def test_readings_8_and_9_and_10_connection_offsets(draft_socket: Open, segment: str) -> None:
    """They count the stored bytes of one connection id, independent of other data there, over reconnects too."""
    with draft_socket() as one, draft_socket() as two:
        one.create(segment)
        assert one.setup(segment, WRITER) == 0
        assert two.setup(segment, OTHER) == 0
        assert one.append(WRITER, 0, [b"hello"]) == 13
        assert two.append(OTHER, 0, [b"world", b""]) == 21
        assert one.append(WRITER, 13, [b"!"]) == 22
        one.send(*(message for n in range(50) for message in one.block(WRITER, 22 + 10 * n, [b"%02d" % n])))
        assert one.acknowledged(WRITER, 522) == 522
    with draft_socket() as client:
        assert client.setup(segment, WRITER) == 522
        assert client.setup(segment, OTHER) == 21
        client.append(WRITER, 522, [b"again"])
        numbers = [b"%02d" % n for n in range(50)]
        assert client.content(segment) == join_events([b"hello", b"world", b"", b"!", *numbers, b"again"])


@pytest.mark.slow
def test_reading_9_after_a_crash(fresh_gateway: GatewayProcess) -> None:
    address, segment = ("127.0.0.1", fresh_gateway.segment_port), "s/t"
    with DraftSocket(address) as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello"])
    fresh_gateway.restart(kill=True)
    with DraftSocket(address) as client:
        assert client.setup(segment, WRITER) == 13
        assert client.append(WRITER, 13, [b"world"]) == 26
        assert client.content(segment) == join_events([b"hello", b"world"])


@pytest.mark.parametrize("offset", [0, 12, 14, -1, 1 << 40])
def test_reading_9_begin_at_another_offset(draft_socket: Open, segment: str, offset: int) -> None:
    """Also at an offset that is stored already: the draft has no reply for it."""
    with draft_socket() as client, draft_socket() as other:
        client.create(segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello"])
        client.send_bytes(bytes_of(Begin(WRITER, offset, 13), Event(b"hello"), End(WRITER, offset + 13, 13)))
        assert client.ended()
        assert other.content(segment) == HELLO


def test_reading_9_a_stale_connection(draft_socket: Open, segment: str) -> None:
    """Two connections with one id: the second one's data makes the first one's next block stale."""
    with draft_socket() as one, draft_socket() as two:
        one.create(segment)
        one.setup(segment, WRITER)
        two.setup(segment, WRITER)
        two.append(WRITER, 0, [b"hello"])
        one.send(*one.block(WRITER, 0, [b"hello"]))
        assert one.ended()
        assert two.content(segment) == HELLO
