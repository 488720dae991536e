"""The segment front: appends of the released dialect (segment fact sheet, 1.4)."""

from __future__ import annotations

from uuid import uuid4

import pytest
import trio
from support.segment.front import SEGMENT, Client, Connect, WatchedBack, bytes_of
from trio.testing import MockClock

from penstock.model.byte_operations import NO_ATTRIBUTE, AppendBytes, GetAttribute, Seal
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import DeleteStream
from penstock.model.records import StreamRef
from penstock.wire.codec import NEED_DATA
from penstock_pravega.codec import append_messages, join_events, released

STREAM = StreamRef("penstock", "scope/stream")
MIB = 1 << 20


@pytest.fixture
async def client(connect: Connect, clock: MockClock) -> Client:
    """A connection, and a segment without anything in it."""
    client: Client = await connect()
    await client.create()
    return client


async def test_a_writer_that_is_not_known(client: Client, clock: MockClock) -> None:
    writer = uuid4()
    reply = await client.call(released.SetupAppend(7, writer, SEGMENT))
    assert reply == released.AppendSetup(7, SEGMENT, writer, NO_ATTRIBUTE)


@pytest.mark.parametrize("form", [{}, {"block_size": 26}, {"block_size": 26, "room": False}, {"block_size": 20}])
async def test_an_acknowledgement(client: Client, clock: MockClock, form: dict[str, int]) -> None:
    """In every form of an append; event numbers need not be consecutive, nor positive."""
    writer = await client.writer()
    await client.send(*append_messages(writer, [b"hello", b"world"], -5, 99, **form))  # type: ignore[arg-type]
    assert await client.reply() == released.DataAppended(writer, -5, NO_ATTRIBUTE, 99, 26)
    await client.send(*append_messages(writer, [b"hello", b"world"], 17, 100, **form))  # type: ignore[arg-type]
    assert await client.reply() == released.DataAppended(writer, 17, -5, 100, 52)
    assert await client.content() == join_events([b"hello", b"world"]) * 2


async def test_appends_are_pipelined(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """Many are in flight; one acknowledgement may cover several, and tells the last of them."""
    writer = await client.writer()
    back.gate = trio.Event()
    for number in range(1, 51):
        await client.send(*append_messages(writer, [b"%d" % number], number, number))
    with trio.move_on_after(1):
        await client.reply()
    assert len(back.appended) == 50 and back.sessions == 1
    back.gate.set()
    back.gate = None
    level, end = NO_ATTRIBUTE, 0
    while level != 50:
        reply = await client.reply()
        assert isinstance(reply, released.DataAppended)
        assert (reply.previous_event_number, reply.request_id) == (level, reply.event_number)
        level = reply.event_number
        end = reply.current_segment_write_offset
    content = join_events([b"%d" % number for number in range(1, 51)])
    assert end == len(content) and await client.content() == content


async def test_a_silent_writer_has_no_session(client: Client, clock: MockClock, back: WatchedBack) -> None:
    writers = [await client.writer() for _ in range(20)]
    for writer in writers:
        await client.append(writer, 1, b"x")
    await trio.sleep(0.1)
    assert back.sessions == 0
    assert (await client.append(writers[0], 2, b"y")).previous_event_number == 1


async def test_writers_of_several_segments(client: Client, clock: MockClock) -> None:
    await client.create("scope/other/0.#epoch.0")
    one, other = await client.writer(), await client.writer("scope/other/0.#epoch.0")
    for number in range(1, 11):
        await client.send(*append_messages(one, [b"a"], number, 1), *append_messages(other, [b"b"], number, 2))
    levels = {one: 0, other: 0}
    while set(levels.values()) != {10}:
        reply = await client.reply()
        levels[reply.writer_id] = reply.event_number
        assert reply.request_id == (1 if reply.writer_id == one else 2)
    assert await client.content() == join_events([b"a"] * 10)
    assert await client.content("scope/other/0.#epoch.0") == join_events([b"b"] * 10)


# ---- exactly once --------------------------------------------------------------------------------------------------


async def test_a_reconnected_writer_goes_on_where_it_was(client: Client, clock: MockClock, connect: Connect) -> None:
    """Stored events are not stored again, whichever acknowledgements the client has seen."""
    writer = await client.writer()
    await client.append(writer, 3, b"1", b"2", b"3")
    await client.send(*append_messages(writer, [b"4"], 4, 1))
    await client.stream.aclose()
    again = await connect()
    reply = await again.expect(released.AppendSetup, released.SetupAppend(1, writer, SEGMENT))
    assert reply.last_event_number in (3, 4)
    for number in range(reply.last_event_number + 1, 6):
        done = await again.append(writer, number, b"%d" % number)
        assert done.previous_event_number == number - 1
    assert await again.content() == join_events([b"1", b"2", b"3", b"4", b"5"])


@pytest.mark.parametrize("conditional", [False, True])
async def test_what_comes_late_on_a_connection_that_was_given_up(
    connect: Connect, client: Client, clock: MockClock, conditional: bool
) -> None:
    """The writer is set up on another, and sends the same events in another block: they are stored once."""
    writer = await client.writer()
    await client.append(writer, 1, b"1")
    again = await connect()
    await again.expect(released.AppendSetup, released.SetupAppend(1, writer, SEGMENT))
    if conditional:
        await client.send(released.ConditionalBlockEnd(writer, 2, 9, join_events([b"2"]), 8))
    else:
        await client.send(*append_messages(writer, [b"2"], 2, 8))
    assert await client.reply() == released.InvalidEventNumber(writer, 8, "", 2)
    assert await client.ended()
    assert (await again.append(writer, 3, b"2", b"3")).previous_event_number == 1
    assert await again.content() == join_events([b"1", b"2", b"3"])


async def test_setting_up_on_another_connection_waits_for_what_is_in_flight(
    connect: Connect, client: Client, clock: MockClock, back: WatchedBack
) -> None:
    """Else the writer would be told too low a number, and be refused what it sends again."""
    writer, back.gate = await client.writer(), trio.Event()
    await client.send(*append_messages(writer, [b"1"], 1, 1))
    again = await connect()
    await again.send(released.SetupAppend(2, writer, SEGMENT))
    with trio.move_on_after(1):
        assert await again.reply() is None, "nothing is answered yet"
    back.gate.set()
    assert await again.reply() == released.AppendSetup(2, SEGMENT, writer, 1)


async def test_a_connection_that_is_lost_gives_its_writers_free(
    connect: Connect, client: Client, clock: MockClock, back: WatchedBack
) -> None:
    writer, back.gate = await client.writer(), trio.Event()
    await client.send(*append_messages(writer, [b"1"], 1, 1))
    again = await connect()
    await again.send(released.SetupAppend(2, writer, SEGMENT))
    await trio.sleep(1)
    await client.stream.aclose()
    back.gate.set()
    setup = await again.reply()
    assert isinstance(setup, released.AppendSetup)
    await again.append(writer, 2, b"2")


async def test_a_segment_that_was_made_again(
    connect: Connect, client: Client, clock: MockClock, back: WatchedBack
) -> None:
    """The new segment does not know the writer, which has to be set up again: its events on the old one are missing
    here.
    """
    writer = await client.writer()
    await client.append(writer, 1, b"1")
    await back.perform(DeleteStream(STREAM))
    await client.create()
    await client.send(*append_messages(writer, [b"2"], 2, 7))
    assert await client.reply() == released.InvalidEventNumber(writer, 7, "", 2)
    assert await client.ended()
    setup = released.SetupAppend(8, writer, SEGMENT)
    assert await (await connect()).call(setup) == released.AppendSetup(8, SEGMENT, writer, NO_ATTRIBUTE)


async def test_setting_up_again_waits_for_what_is_in_flight(
    client: Client, clock: MockClock, back: WatchedBack
) -> None:
    writer = await client.writer()
    back.gate = trio.Event()
    await client.send(*append_messages(writer, [b"x"], 1, 1), released.SetupAppend(2, writer, SEGMENT))
    with trio.move_on_after(1):
        assert await client.reply() is None, "nothing is answered yet"
    back.gate.set()
    first, second = await client.replies(2)
    assert isinstance(first, released.DataAppended)
    assert second == released.AppendSetup(2, SEGMENT, writer, 1)


@pytest.mark.parametrize("version", [15, 16])
async def test_a_number_that_does_not_rise(connect: Connect, clock: MockClock, version: int) -> None:
    """InvalidEventNumber in the client's layout, then the end; replies due to other writers are sent all the same, and
    what follows is not stored."""
    client: Client = await connect(greet=False)
    await client.greet(version)
    await client.create()
    writer, other = await client.writer(), await client.writer()
    await client.append(writer, 5, b"x")
    await client.send(*append_messages(other, [b"y"], 1, 3), *append_messages(writer, [b"again"], 5, 4))
    await client.send(*append_messages(writer, [b"behind"], 6, 5))
    replies = await client.replies(3)
    assert released.DataAppended(other, 1, NO_ATTRIBUTE, 3, 18) in replies
    assert released.InvalidEventNumber(writer, 4 if version == 16 else -1, "", 5) in replies
    assert replies[-1] is None
    again = await connect()
    assert await again.content() == join_events([b"x", b"y"])


async def test_what_follows_an_append_that_was_not_applied(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """It is not applied either, though it could be: its number would rise above that of the one that is missing."""
    writer = await client.writer()
    await client.append(writer, 1, b"1")
    back.fails[AppendBytes] = fail(FailureCode.STORAGE, "the disk is full")
    await client.send(*append_messages(writer, [b"2"], 2, 22))
    assert await client.reply() == released.ErrorMessage(22, SEGMENT, "the disk is full", -1)
    back.fails.clear()
    await client.send(*append_messages(writer, [b"3"], 3, 33))
    assert await client.reply() == released.ErrorMessage(33, SEGMENT, "the disk is full", -1)
    reply = await client.expect(released.AppendSetup, released.SetupAppend(1, writer, SEGMENT))
    assert reply.last_event_number == 1
    for number in (2, 3):
        await client.append(writer, number, b"%d" % number)
    assert await client.content() == join_events([b"1", b"2", b"3"])


# ---- conditions ----------------------------------------------------------------------------------------------------


async def test_conditional_appends(client: Client, clock: MockClock) -> None:
    writer = await client.writer()
    event = released.ConditionalAppend(writer, 1, 0, b"hello", 8)
    assert await client.call(event) == released.DataAppended(writer, 1, NO_ATTRIBUTE, 8, 13)
    raw = released.ConditionalBlockEnd(writer, 2, 13, b"raw bytes", 9)
    assert await client.call(raw) == released.DataAppended(writer, 2, 1, 9, 22)
    failed = released.ConditionalBlockEnd(writer, 3, 21, b"no", 10)
    assert await client.call(failed) == released.ConditionalCheckFailed(writer, 3, 10)
    again = released.ConditionalAppend(writer, 4, 22, b"yes", 11)
    assert await client.call(again) == released.DataAppended(writer, 4, 2, 11, 33)
    assert await client.content() == join_events([b"hello"]) + b"raw bytes" + join_events([b"yes"])


async def test_conditions_are_in_order_with_other_appends(client: Client, clock: MockClock) -> None:
    """Each is held against what the appends before it have made of the segment."""
    writer = await client.writer()
    await client.send(
        *append_messages(writer, [b"a"], 1, 1),
        released.ConditionalAppend(writer, 2, 9, b"b", 2),
        released.ConditionalAppend(writer, 3, 9, b"no", 3),
        *append_messages(writer, [b"c"], 4, 4),
        released.ConditionalAppend(writer, 5, 27, b"d", 5),
    )
    assert await client.replies(5) == [
        released.DataAppended(writer, 1, NO_ATTRIBUTE, 1, 9),
        released.DataAppended(writer, 2, 1, 2, 18),
        released.ConditionalCheckFailed(writer, 3, 3),
        released.DataAppended(writer, 4, 2, 4, 27),
        released.DataAppended(writer, 5, 4, 5, 36),
    ]
    assert await client.content() == join_events([b"a", b"b", b"c", b"d"])


async def test_an_append_without_bytes(client: Client, clock: MockClock) -> None:
    """Nothing is stored; conditions and numbers hold."""
    writer = await client.writer()
    await client.append(writer, 1, b"x")
    nothing = released.AppendBlockEnd(writer, 0, b"", 1, 2, 5)
    assert await client.call(nothing) == released.DataAppended(writer, 2, 1, 5, 9)
    reply = await client.call(released.ConditionalBlockEnd(writer, 3, 9, b"", 6))
    assert reply == released.DataAppended(writer, 3, 2, 6, 9)
    reply = await client.call(released.ConditionalBlockEnd(writer, 4, 8, b"", 7))
    assert reply == released.ConditionalCheckFailed(writer, 4, 7)
    assert (await client.append(writer, 5, b"y")).previous_event_number == 3
    reply = await client.call(released.AppendBlockEnd(writer, 0, b"", 1, 5, 8))
    assert reply == released.InvalidEventNumber(writer, 8, "", 5)
    assert await client.ended()


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditional", [False, True])
async def test_a_sealed_segment(client: Client, clock: MockClock, back: WatchedBack, conditional: bool) -> None:
    """The writer learns its position, and of each append that it is too late; others go on."""
    await client.create("scope/other/0.#epoch.0")
    writer, other = await client.writer(), await client.writer("scope/other/0.#epoch.0")
    await client.append(writer, 1, b"x")
    await back.perform(Seal(STREAM))
    for number in (2, 3):
        if conditional:
            await client.send(released.ConditionalAppend(writer, number, 9, b"y", number))
        else:
            await client.send(*append_messages(writer, [b"y"], number, number))
        assert await client.reply() == released.SegmentIsSealed(number, SEGMENT, "", number)
    reply = await client.expect(released.AppendSetup, released.SetupAppend(1, writer, SEGMENT))
    assert reply.last_event_number == 1
    await client.append(other, 1, b"z")


async def test_each_pipelined_append_is_refused(client: Client, clock: MockClock, back: WatchedBack) -> None:
    writer = await client.writer()
    await back.perform(Seal(STREAM))
    await client.send(*(message for n in range(1, 6) for message in append_messages(writer, [b"y"], n, n)))
    assert await client.replies(5) == [released.SegmentIsSealed(n, SEGMENT, "", n) for n in range(1, 6)]


async def test_a_segment_that_is_not_there(client: Client, clock: MockClock, back: WatchedBack) -> None:
    writer = await client.writer()
    await back.perform(DeleteStream(STREAM))
    await client.send(*append_messages(writer, [b"y"], 1, 5))
    assert await client.reply() == released.NoSuchSegment(5, SEGMENT, "", 1)
    assert await client.call(released.SetupAppend(6, writer, SEGMENT)) == released.NoSuchSegment(6, SEGMENT)
    await client.send(*append_messages(writer, [b"y"], 2, 5))
    assert await client.ended(), "no writer is set up"


@pytest.mark.parametrize("name", ["", "a b/c/0.#epoch.0", "//", "x" * 1000, "a\0é😀"])
async def test_a_name_that_is_none(client: Client, clock: MockClock, name: str) -> None:
    reply = await client.call(released.SetupAppend(5, uuid4(), name))
    assert isinstance(reply, released.ErrorMessage)
    assert (reply.request_id, reply.segment, reply.error_code) == (5, name, 0) and reply.message
    assert await client.call(released.KeepAlive()) == released.KeepAlive()


async def test_an_append_of_a_writer_that_did_not_set_up(client: Client, clock: MockClock) -> None:
    await client.send(raw=bytes_of(*append_messages(uuid4(), [b"y"], 1, 5)))
    assert await client.ended()


# ---- bounds --------------------------------------------------------------------------------------------------------


async def test_appends_in_flight_are_bounded(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """No more is taken, so the client has to wait; a single one may be as large as it likes."""
    writer = await client.writer()
    back.gate = trio.Event()

    async def send() -> None:
        for number in range(1, 33):
            await client.send(released.AppendBlockEnd(writer, MIB, b"x" * MIB, 1, number, 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.sleep(1)
        assert sum(len(append.data) for append in back.appended) <= 8 * MIB
        back.gate.set()
        level = 0
        while level != 32:
            level = (await client.reply()).event_number
    back.gate = trio.Event()
    back.appended.clear()
    size = 16 * MIB - 1100  # two of the largest events, as Java's batches have them
    await client.send(released.AppendBlockEnd(writer, size, b"x" * size, 1, 33, 1))
    await trio.sleep(1)
    assert len(back.appended) == 1
    back.gate.set()
    assert (await client.reply()).current_segment_write_offset == 32 * MIB + size


async def test_other_requests_go_on_beside_appends(client: Client, clock: MockClock, back: WatchedBack) -> None:
    writer = await client.writer()
    back.gate = trio.Event()
    await client.send(*append_messages(writer, [b"x"], 1, 1), released.KeepAlive())
    assert await client.reply() == released.KeepAlive()
    reply = await client.expect(released.SegmentAttribute, released.GetSegmentAttribute(2, SEGMENT, uuid4()))
    assert reply == released.SegmentAttribute(2, NO_ATTRIBUTE)
    assert client.codec.next_event() is NEED_DATA
    back.gate.set()
    assert isinstance(await client.reply(), released.DataAppended)


async def test_a_client_that_goes_leaves_nothing_behind(client: Client, clock: MockClock, back: WatchedBack) -> None:
    writer = await client.writer()
    back.gate = trio.Event()
    await client.send(*append_messages(writer, [b"x"], 1, 1))
    await trio.sleep(0.1)
    assert back.sessions == 1
    await client.stream.aclose()
    back.gate.set()
    await trio.sleep(2)
    assert back.sessions == 0
    assert await back.perform(GetAttribute(STREAM, writer.bytes)) == 1, "it had been taken"
