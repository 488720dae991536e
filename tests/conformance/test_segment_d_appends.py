"""Appending in the released dialect (segment fact sheet, 1.4)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.process import GatewayProcess
from support.segment.client import UNKNOWN_WRITER, ReleasedSocket, bytes_of, header

from penstock_codecs.segment import append_messages, join_events, released

Open = Callable[..., ReleasedSocket]
HELLO, WORLDWIDE = b"hello", b"worldwide"


def test_clause_35_setup(released_socket: Open, segment: str) -> None:
    """Setting up again tells the last number, also before Hello's other connections have gone."""
    writer = uuid4()
    with released_socket() as client, released_socket() as other:
        client.create(segment)
        assert client.setup(segment, writer) == UNKNOWN_WRITER
        client.append(writer, [b"x"], -5)
        assert client.setup(segment, writer) == -5
        client.append(writer, [b"x"], 12)
        assert other.setup(segment, writer) == 12


def test_clause_36_several_share_a_connection(released_socket: Open, segment: str) -> None:
    second = segment.replace("/0.", "-second/0.")
    with released_socket() as client:
        client.create(segment)
        client.create(second)
        one, two, three = client.writer(segment), client.writer(second), client.writer(segment)
        appends = [
            *append_messages(one, [b"1"], 1, 1),
            *append_messages(two, [b"2"], 1, 2, block_size=50),
            *append_messages(three, [b"3"], 1, 3),
            *append_messages(two, [b"4"], 2, 4),
        ]
        client.send(*appends)
        last: dict[UUID, int] = {}
        while last != {one: 1, two: 2, three: 1}:
            ack = client.reply()
            assert isinstance(ack, released.DataAppended)
            last[ack.writer_id] = ack.event_number
        assert client.content(segment) == join_events([b"1", b"3"])
        assert client.content(second) == join_events([b"2", b"4"])


DATA = {
    "AppendBlock": bytes_of(
        released.AppendBlock(UUID(int=1), bytes(8)), released.AppendBlockEnd(UUID(int=1), 8, b"", 1, 1)
    ),
    "AppendBlockEnd": bytes_of(released.AppendBlockEnd(UUID(int=1), 8, bytes(8), 1, 1, 1)),
    "ConditionalAppend": bytes_of(released.ConditionalAppend(UUID(int=1), 1, 0, b"x", 1)),
    "ConditionalBlockEnd": bytes_of(released.ConditionalBlockEnd(UUID(int=1), 1, 0, b"x", 1)),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
def test_clause_37_a_writer_that_is_not_set_up(released_socket: Open, segment: str, data: bytes) -> None:
    with released_socket() as client:
        client.send_bytes(data)
        assert client.ended()


@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
def test_clause_37_a_writer_whose_set_up_failed(released_socket: Open, segment: str, data: bytes) -> None:
    """The connection ends, or the append is refused by name: nothing else."""
    with released_socket() as client:
        client.send_bytes(bytes_of(released.SetupAppend(1, UUID(int=1), segment)) + data)
        assert isinstance(client.reply(), released.NoSuchSegment)
        try:
            assert isinstance(client.reply(5), released.NoSuchSegment)
        except EOFError:
            return


FORMS: dict[str, dict[str, Any]] = {
    "filled exactly": {"block_size": 30, "room": False},
    "filled exactly, with an empty Padding": {"block_size": 30},
    "with Padding": {"block_size": 500},
    "with PartialEvent": {"block_size": 20},
    "with PartialEvent inside the event's header": {"block_size": 15},
    "with PartialEvent of one byte": {"block_size": 14},
    "with all but one byte in PartialEvent": {"block_size": 29},
    "AppendBlockEnd alone": {},
}


@pytest.mark.parametrize("form", FORMS)
def test_clauses_38_and_39_and_40_and_41_forms(released_socket: Open, segment: str, form: str) -> None:
    """All of them store the same bytes, and are acknowledged alike."""
    options = FORMS[form]
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)
        for number in (1, 2):
            ack = client.append(writer, [HELLO, WORLDWIDE], 2 * number, **options)
            assert (ack.writer_id, ack.event_number, ack.current_segment_write_offset) == (
                writer,
                2 * number,
                30 * number,
            )
        assert client.content(segment) == join_events([HELLO, WORLDWIDE] * 2)


BLOCK = join_events([HELLO])
WRITER, OTHER = UUID(int=1), UUID(int=2)


def padded(size: int, data: bytes = b"", whole: int = 13) -> bytes:
    block = BLOCK + header(-1, size) + bytes(size)
    return bytes_of(released.AppendBlock(WRITER, block), released.AppendBlockEnd(WRITER, whole, data, 1, 1, 1))


VIOLATIONS = {
    "another message between": bytes_of(released.AppendBlock(WRITER, BLOCK), released.KeepAlive()),
    "another AppendBlock between": bytes_of(released.AppendBlock(WRITER, BLOCK)) * 2,
    "a read between": bytes_of(released.AppendBlock(WRITER, BLOCK), released.ReadSegment("s", 0, 1)),
    "another writer's end": bytes_of(
        released.AppendBlock(WRITER, BLOCK), released.AppendBlockEnd(OTHER, 13, b"", 1, 1, 1)
    ),
    "more whole bytes than the block has": bytes_of(
        released.AppendBlock(WRITER, BLOCK), released.AppendBlockEnd(WRITER, 14, b"", 1, 1, 1)
    ),
    "a negative size": bytes_of(released.AppendBlock(WRITER, BLOCK), released.AppendBlockEnd(WRITER, -1, b"", 1, 1, 1)),
    "Padding, and data": padded(5, b"x"),
    "a wrapper that is cut short": padded(5, whole=5),
    "data without a PartialEvent": bytes_of(
        released.AppendBlock(WRITER, BLOCK), released.AppendBlockEnd(WRITER, 13, b"x", 1, 1, 1)
    ),
    "two wrappers": bytes_of(
        released.AppendBlock(WRITER, BLOCK + (header(-1, 2) + bytes(2)) * 2),
        released.AppendBlockEnd(WRITER, 13, b"", 1, 1, 1),
    ),
}


@pytest.mark.parametrize("data", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_clause_42_what_block_and_end_must_be(released_socket: Open, segment: str, data: bytes) -> None:
    with released_socket() as client, released_socket() as watching:
        client.create(segment)
        client.setup(segment, WRITER)
        client.setup(segment, OTHER)
        client.send_bytes(data)
        assert client.ended()
        assert watching.info(segment).write_offset == 0


def test_clause_43_a_header_before_its_content(released_socket: Open, segment: str) -> None:
    """As Java's client writes while it gathers events."""
    with released_socket() as client, released_socket() as other:
        client.create(segment)
        writer = client.writer(segment)
        block, end = append_messages(writer, [HELLO, WORLDWIDE], 2, 7, block_size=100)
        data = bytes_of(block)
        for at in (0, 8, 24, 30, 37):
            client.send_bytes(data[at : {0: 8, 8: 24, 24: 30, 30: 37, 37: len(data)}[at]])
            assert other.info(segment).write_offset == 0
        client.send_bytes(bytes_of(end))
        assert client.reply() == released.DataAppended(writer, 2, UNKNOWN_WRITER, 7, 30)


@pytest.mark.parametrize("count", [0, -1])
def test_clause_44_at_least_one_event(released_socket: Open, segment: str, count: int) -> None:
    with released_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.send_bytes(bytes_of(released.AppendBlockEnd(WRITER, 13, BLOCK, count, 1, 1)))
        assert client.ended()


@pytest.mark.parametrize("number", [7, 6, -(1 << 63)])
def test_clause_45_event_numbers_rise(released_socket: Open, segment: str, number: int) -> None:
    """Earlier appends are acknowledged; later ones are not stored."""
    with released_socket() as client, released_socket() as other:
        client.create(segment)
        writer = client.writer(segment)
        client.append(writer, [b"1"], 3)
        client.send_bytes(
            bytes_of(
                *append_messages(writer, [b"2"], 7, 20),
                *append_messages(writer, [b"stale"], number, 21),
                *append_messages(writer, [b"behind"], 9, 22),
            )
        )
        assert client.reply() == released.DataAppended(writer, 7, 3, 20, 18)
        try:
            reply = client.reply()
            assert isinstance(reply, released.InvalidEventNumber)
            assert (reply.writer_id, reply.request_id, reply.event_number) == (writer, 21, number)
            assert client.ended()
        except EOFError:
            assert number != 7, "an equal number is answered"
        assert other.content(segment) == join_events([b"1", b"2"])
        assert other.setup(segment, writer) == 7


def test_clause_46_acknowledgements(released_socket: Open, segment: str) -> None:
    with released_socket() as client:
        client.create(segment)
        client.append(client.writer(segment), [b"of somebody else"], 100)
        writer = client.writer(segment)
        offset, previous = 24, UNKNOWN_WRITER
        for number, body in ((1, b""), (2, b"x"), (50, b"y" * 100)):
            request = client.next_id()
            ack = client.expect(released.DataAppended, *append_messages(writer, [body], number, request))
            offset += 8 + len(body)
            assert ack == released.DataAppended(writer, number, previous, request, offset)
            previous = number


def test_clause_47_pipelined(released_socket: Open, segment: str) -> None:
    """A thousand appends in one write: acknowledged in order, without gaps."""
    count = 1000
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)
        client.send(*(append_messages(writer, [b"%d" % n], n, n)[0] for n in range(1, count + 1)))
        last = UNKNOWN_WRITER
        while last < count:
            ack = client.reply()
            assert isinstance(ack, released.DataAppended)
            assert (ack.previous_event_number, ack.request_id) == (last, ack.event_number)
            assert ack.event_number > last
            last = ack.event_number
        assert last == count
        assert client.content(segment) == join_events([b"%d" % n for n in range(1, count + 1)])


@pytest.mark.slow
def test_clauses_48_and_49_reconnects(fresh_gateway: GatewayProcess) -> None:
    """Also after `kill -9`, and while the old connection is still open."""
    address = "127.0.0.1", fresh_gateway.segment_port
    segment, writer = "scope/stream/0.#epoch.0", uuid4()
    with ReleasedSocket(address) as client, ReleasedSocket(address) as other:
        client.create(segment)
        client.setup(segment, writer)
        client.append(writer, [b"1", b"2"], 2)
        assert other.setup(segment, writer) == 2
        other.append(writer, [b"3"], 3)
        stale(client, writer, 3, 5)
    fresh_gateway.restart(kill=True)
    with ReleasedSocket(address) as client:
        assert client.setup(segment, writer) == 3
        assert client.append(writer, [b"4"], 4).previous_event_number == 3
        stale(client, writer, 1, 6)
    with ReleasedSocket(address) as client:
        assert client.setup(segment, writer) == 4
        assert client.setup(segment, uuid4()) == UNKNOWN_WRITER
        assert client.content(segment) == join_events([b"1", b"2", b"3", b"4"])


def stale(client: ReleasedSocket, writer: UUID, number: int, request: int) -> None:
    """An append with a stale number: refused, and the connection ends."""
    client.send_bytes(bytes_of(*append_messages(writer, [b"again"], number, request)))
    try:
        reply = client.reply()
    except EOFError:
        # Below what this very connection said before: that is a violation of the protocol.
        return
    assert isinstance(reply, released.InvalidEventNumber)
    assert (reply.writer_id, reply.request_id, reply.event_number) == (writer, request, number)
    assert client.ended()


def test_clause_50_conditional_appends(released_socket: Open, segment: str) -> None:
    """5 stores an event, 89 bytes as they are. After a failed condition the connection goes on."""
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)

        def event(number: int, offset: int, body: bytes) -> Any:
            client.send(released.ConditionalAppend(writer, number, offset, body, number))
            return client.reply()

        def block(number: int, offset: int, data: bytes) -> Any:
            client.send(released.ConditionalBlockEnd(writer, number, offset, data, number))
            return client.reply()

        assert event(1, 0, b"x") == released.DataAppended(writer, 1, UNKNOWN_WRITER, 1, 9)
        for wrong in (0, 8, 10, -1):
            assert event(2, wrong, b"y") == released.ConditionalCheckFailed(writer, 2, 2)
            assert block(2, wrong, b"y") == released.ConditionalCheckFailed(writer, 2, 2)
        assert block(3, 9, b"raw") == released.DataAppended(writer, 3, 1, 3, 12)
        client.append(client.writer(segment), [b"z"], 1)
        assert event(4, 12, b"y") == released.ConditionalCheckFailed(writer, 4, 4)
        assert event(5, 21, b"y") == released.DataAppended(writer, 5, 3, 5, 30)
        assert client.content(segment) == join_events([b"x"]) + b"raw" + join_events([b"z", b"y"])


def test_clause_50_conditional_appends_pipelined(released_socket: Open, segment: str) -> None:
    """Each is held against what those before it leave, also behind plain appends that are not yet on disk."""
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)
        client.send(
            *append_messages(writer, [b"a"], 1, 1),
            released.ConditionalAppend(writer, 2, 9, b"b", 2),
            released.ConditionalAppend(writer, 3, 9, b"no", 3),
            *append_messages(writer, [b"c"], 4, 4),
            released.ConditionalAppend(writer, 5, 27, b"d", 5),
        )
        assert client.replies(5) == [
            released.DataAppended(writer, 1, UNKNOWN_WRITER, 1, 9),
            released.DataAppended(writer, 2, 1, 2, 18),
            released.ConditionalCheckFailed(writer, 3, 3),
            released.DataAppended(writer, 4, 2, 4, 27),
            released.DataAppended(writer, 5, 4, 5, 36),
        ]
        assert client.content(segment) == join_events([b"a", b"b", b"c", b"d"])


def test_clause_51_sealed(released_socket: Open, segment: str) -> None:
    """Of appends in every form; the event number comes back as offset."""
    with released_socket() as client, released_socket() as other:
        client.new(segment, HELLO)
        writer = client.writer(segment)
        client.append(writer, [b"x"], 1)
        other.seal(segment)
        for number, messages in enumerate(
            (
                append_messages(writer, [b"y"], 2, 2),
                append_messages(writer, [b"y"], 3, 3, block_size=50),
                [released.ConditionalAppend(writer, 4, 22, b"y", 4)],
                [released.ConditionalBlockEnd(writer, 5, 22, b"y", 5)],
            ),
            2,
        ):
            reply = client.expect(released.SegmentIsSealed, *messages)
            assert (reply.request_id, reply.segment, reply.offset) == (number, segment, number)
        assert client.content(segment) == join_events([HELLO, b"x"])


def test_clause_52_missing(released_socket: Open, segment: str) -> None:
    """At the set-up, and when it is deleted under a writer's hands. Appends never create a segment."""
    with released_socket() as client, released_socket() as other:
        client.send(released.SetupAppend(3, uuid4(), segment))
        reply = client.reply()
        assert isinstance(reply, released.NoSuchSegment)
        assert (reply.request_id, reply.segment) == (3, segment)
        client.create(segment)
        writer = client.writer(segment)
        client.append(writer, [b"x"], 1)
        other.delete(segment)
        reply = client.expect(released.NoSuchSegment, *append_messages(writer, [b"y"], 2, 8))
        assert (reply.request_id, reply.segment, reply.offset) == (8, segment, 2)
        other.create(segment)
        assert client.setup(segment, writer) == UNKNOWN_WRITER
        assert other.info(segment).write_offset == 0
