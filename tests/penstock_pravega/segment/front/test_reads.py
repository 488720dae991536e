"""The segment front: reads (segment fact sheet, 1.5)."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
import trio
from support.segment.front import SEGMENT, Client, Connect, WatchedBack, serving
from trio.testing import MockClock

from penstock.model.byte_operations import ReadBytes, Seal, Truncate
from penstock.model.features import Feature
from penstock.model.operations import Append, DeleteStream
from penstock.model.records import Header, StreamRef, metered_size
from penstock_pravega.codec import Dialect, draft, join_events, released
from penstock_pravega.segment.front import SegmentFront, SegmentSettings, reads
from penstock_pravega.segment.front.reads import MOST_READS

STREAM = StreamRef("penstock", "scope/stream")
EVENTS = join_events([b"hello", b"worldwide"])
HEADERS = (Header(b"k", b"v"),)
MIB = 1 << 20


@pytest.fixture
async def client(connect: Connect, clock: MockClock) -> Client:
    """A connection, and a segment with two events."""
    client: Client = await connect()
    await client.create()
    await client.append(await client.writer(), 1, b"hello", b"worldwide")
    return client


def empty(offset: int, request_id: int) -> released.SegmentRead:
    """Return the reply to a read that found nothing."""
    return released.SegmentRead(SEGMENT, offset, True, False, b"", request_id)


def reading(offset: int, request_id: int = 1, size: int = MIB) -> released.ReadSegment:
    return released.ReadSegment(SEGMENT, offset, size, "", request_id)


async def stored(back: WatchedBack, *bodies: bytes, headers: tuple[Header, ...] = ()) -> None:
    """Records of another protocol."""
    found = {0: headers} if headers else {}
    await back.perform(Append(STREAM, list(bodies), metered_size(bodies, found), headers=found))


async def test_a_read_starts_anywhere(client: Client, clock: MockClock) -> None:
    for offset in range(len(EVENTS)):
        reply = await client.read(offset)
        assert reply == released.SegmentRead(SEGMENT, offset, True, False, EVENTS[offset:], reply.request_id)


async def test_how_much_is_given(client: Client, clock: MockClock) -> None:
    """At least an event's header, at most what is configured (1.1)."""
    for asked, given in ((-5, 8), (0, 8), (7, 8), (9, 9), (1 << 30, 30)):
        reply = await client.read(0, asked)
        assert reply.data == EVENTS[:given] and reply.at_tail == (given == 30)


async def test_the_most_that_is_given(connect: Connect, clock: MockClock) -> None:
    client: Client = await connect()
    await client.create()
    await client.append(await client.writer(), 5, *[bytes(MIB)] * 5)
    assert len((await client.read(3, 1 << 30)).data) == 2 * MIB
    assert len(await client.content()) == 5 * (MIB + 8)


async def test_a_read_at_the_tail_waits_for_bytes(client: Client, clock: MockClock, connect: Connect) -> None:
    await client.send(reading(30, 7))
    await trio.sleep(10)
    other = await connect()
    await other.append(await other.writer(), 1, b"more")
    assert await client.reply() == released.SegmentRead(SEGMENT, 30, True, False, join_events([b"more"]), 7)


async def test_a_read_at_the_tail_is_held_for_so_long(client: Client, clock: MockClock) -> None:
    """An empty answer at once would make clients spin."""
    began = trio.current_time()
    assert await client.call(reading(30, 7)) == empty(30, 7)
    assert 19 <= trio.current_time() - began <= 21


async def test_what_ends_a_wait(client: Client, clock: MockClock, back: WatchedBack) -> None:
    await client.send(reading(30, 1))
    await trio.sleep(1)
    await back.perform(Seal(STREAM))
    assert await client.reply() == released.SegmentRead(SEGMENT, 30, True, True, b"", 1)
    await client.send(reading(30, 2))
    assert await client.reply() == released.SegmentRead(SEGMENT, 30, True, True, b"", 2)
    assert await client.call(reading(31, 3)) == released.ErrorMessage(3, SEGMENT, (await _message(client, 31)), 0)


async def _message(client: Client, offset: int) -> str:
    message: str = (await client.call(reading(offset, 9))).message
    return message


async def test_a_segment_that_goes_during_a_wait(client: Client, clock: MockClock, back: WatchedBack) -> None:
    await client.send(reading(30, 1))
    await trio.sleep(1)
    await back.perform(DeleteStream(STREAM))
    assert await client.reply() == released.NoSuchSegment(1, SEGMENT, "", 30)
    assert await client.call(reading(0, 2)) == released.NoSuchSegment(2, SEGMENT, "", 0)


async def test_a_truncated_segment(client: Client, clock: MockClock, back: WatchedBack) -> None:
    await back.perform(Truncate(STREAM, 20))
    assert await client.call(reading(13, 1)) == released.SegmentIsTruncated(1, SEGMENT, 20, "", 13)
    assert (await client.read(20)).data == EVENTS[20:]


@pytest.mark.parametrize("name", ["", "a b/c", "#", "scope/stream/x"])
async def test_a_name_that_is_none(client: Client, clock: MockClock, name: str) -> None:
    reply = await client.call(released.ReadSegment(name, 5, 10, "", 3))
    assert isinstance(reply, released.ErrorMessage)
    assert (reply.request_id, reply.segment, reply.error_code) == (3, name, 0)


async def test_a_negative_offset(client: Client, clock: MockClock) -> None:
    reply = await client.call(reading(-1, 3))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (3, 0)


async def test_many_reads_at_once(client: Client, clock: MockClock, connect: Connect) -> None:
    """The Java client has several outstanding; each is answered when it can be, other requests go on meanwhile."""
    await client.send(*[reading(30 + 9 * number, number) for number in range(20)], reading(0, 99), released.KeepAlive())
    replies = await client.replies(2)
    assert released.KeepAlive() in replies
    assert released.SegmentRead(SEGMENT, 0, True, False, EVENTS, 99) in replies
    other = await connect()
    writer = await other.writer()
    for number in range(20):
        await other.append(writer, number + 1, b"%d" % (number % 10))
    found = {}
    for reply in await client.replies(20):
        assert reply.offset == 30 + 9 * reply.request_id and reply.data
        found[reply.request_id] = reply.data
    whole = await client.content()
    assert all(whole[30 + 9 * number :].startswith(data) for number, data in found.items()) and len(found) == 20


async def test_how_many_reads_may_wait(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """No further request is taken then, until one of them is answered."""
    await client.send(*[reading(30, number) for number in range(MOST_READS + 5)])
    await client.send(released.KeepAlive())
    await trio.sleep(5)
    assert back.under_way == MOST_READS
    replies = await client.replies(MOST_READS + 6)
    assert replies.count(released.KeepAlive()) == 1 and replies[0] != released.KeepAlive()


async def test_a_wake_of_many_is_bounded(client: Client, clock: MockClock, connect: Connect, back: WatchedBack) -> None:
    """All of them wait for the same bytes; together they hold no more than a few of them asked for."""
    await client.send(*[reading(30, number, 2 * MIB) for number in range(100)])
    await trio.sleep(1)
    assert sum(read.max_bytes for read in back.performed if isinstance(read, ReadBytes) and read.wait) <= 4 * MIB
    other = await connect()
    await other.append(await other.writer(), 1, bytes(MIB))
    assert all(0 < len(reply.data) <= 32 * 1024 for reply in await client.replies(100))


@pytest.mark.parametrize("half", [True, False])
async def test_a_wait_ends_when_its_client_goes(
    client: Client, clock: MockClock, back: WatchedBack, half: bool
) -> None:
    """One that only finished sending still gets its answer."""
    await client.send(reading(30, 1))
    await trio.sleep(1)
    assert back.under_way == 1
    if half:
        await client.stream.send_eof()
        assert await client.reply() == empty(30, 1)
        assert await client.reply() is None
    else:
        await client.stream.aclose()
        await trio.sleep(1)
    assert back.under_way == 0


async def test_a_drain_answers_waiting_reads(client: Client, clock: MockClock, front: SegmentFront) -> None:
    await client.send(reading(30, 1), reading(30, 2))
    await trio.sleep(1)
    front.drain()
    assert {reply.request_id for reply in await client.replies(2)} == {1, 2}
    assert await client.reply() is None


# ---- what segments cannot carry ------------------------------------------------------------------------------------


async def test_what_is_left_out_is_counted_and_logged_once(
    client: Client, clock: MockClock, back: WatchedBack, front: SegmentFront
) -> None:
    """An empty record is no event, a command none either; two reads, two lines."""
    await stored(back, b"", b"x", b"", b"")
    await stored(back, b"y", headers=(Header(b"", b"fence"),))
    await stored(back, b"z")
    with structlog.testing.capture_logs() as logs:
        reply = await client.read(30)
    assert reply.data == join_events([b"x", b"z"])
    assert front.dropped == {Feature.EMPTY_BODY: 3, Feature.COMMAND: 1}
    assert [line for line in logs if line["event"] == "records_dropped"] == [
        {"event": "records_dropped", "log_level": "info", "stream": str(STREAM), "empty_body": 3, "command": 1}
    ]


async def test_what_is_refused(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """Events before it are delivered, then the read fails with the reason."""
    await stored(back, b"x", headers=HEADERS)
    assert (await client.read(0)).data == EVENTS
    reply = await client.call(reading(30, 4))
    assert isinstance(reply, released.ErrorMessage) and reply.error_code == 0
    assert "has headers" in reply.message


async def test_a_refusal_is_logged_once(
    client: Client, clock: MockClock, connect: Connect, back: WatchedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each connection and stream, however often it is asked; and of a bounded number of streams."""
    monkeypatch.setattr(reads, "MOST_NAMED", 2)
    await stored(back, b"x", headers=HEADERS)
    others = [f"scope/other{number}/0.#epoch.0" for number in range(3)]
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await client.expect(released.ErrorMessage, reading(30))
        for segment in others:
            await client.create(segment)
            stream = StreamRef("penstock", segment.removesuffix("/0.#epoch.0"))
            await back.perform(Append(stream, [b"x"], metered_size([b"x"], {0: HEADERS}), headers={0: HEADERS}))
            await client.expect(released.ErrorMessage, released.ReadSegment(segment, 0, MIB, "", 1))
        await (await connect()).expect(released.ErrorMessage, reading(30))
    lines = [line for line in logs if line["event"] == "read_refused"]
    assert [line["stream"] for line in lines] == [str(STREAM), "penstock/scope/other0", str(STREAM)]
    assert lines[0]["log_level"] == "warning"
    assert "record 2 of stream" in lines[0]["reason"] and "the next bytes are at offset 39" in lines[0]["reason"]
    assert "listeners.segment.loss" in lines[0]["choice"]


async def test_what_is_refused_can_be_configured(back: WatchedBack, tmp_path: Path, clock: MockClock) -> None:
    settings = SegmentSettings(refuse=frozenset({Feature.EMPTY_BODY}))
    async with serving(SegmentFront(back, settings)) as connect:
        client = await connect()
        await client.create()
        await stored(back, b"x", headers=HEADERS)
        assert (await client.read(0)).data == join_events([b"x"])
        await stored(back, b"")
        reply = await client.call(reading(9))
        assert isinstance(reply, released.ErrorMessage) and "empty body" in reply.message


# ---- draft ---------------------------------------------------------------------------------------------------------


async def test_draft_reads(client: Client, clock: MockClock, connect: Connect, back: WatchedBack) -> None:
    reader = await connect(Dialect.DRAFT)
    tail, end = draft.Flags(at_tail=True), draft.Flags(at_tail=True, at_end=True)
    for offset in (0, 5, 29):
        reply = await reader.call(draft.ReadSegment(SEGMENT, offset, 100))
        assert reply == draft.SegmentRead(SEGMENT, offset, tail, EVENTS[offset:])
    assert (await reader.call(draft.ReadSegment(SEGMENT, 0, 1))).data == EVENTS[:8]
    assert await reader.call(draft.ReadSegment(SEGMENT, 30, 100)) == draft.SegmentRead(SEGMENT, 30, tail, b"")
    await back.perform(Seal(STREAM))
    assert await reader.call(draft.ReadSegment(SEGMENT, 30, 100)) == draft.SegmentRead(SEGMENT, 30, end, b"")
    missing = "scope/missing/0.#epoch.0"
    assert await reader.call(draft.ReadSegment(missing, 0, 100)) == draft.NoSuchSegment(missing)


@pytest.mark.parametrize("offset", [3, -1])
async def test_a_draft_read_that_nothing_can_be_said_to(
    client: Client, clock: MockClock, connect: Connect, back: WatchedBack, offset: int
) -> None:
    """Truncated, or no offset: the draft has no word for it (reading 13)."""
    await back.perform(Truncate(STREAM, 13))
    reader = await connect(Dialect.DRAFT)
    with structlog.testing.capture_logs() as logs:
        await reader.send(draft.ReadSegment(SEGMENT, offset, 100))
        assert await reader.ended()
    assert [line["event"] for line in logs] == ["request_refused"]
