"""The segment front: requests about whole segments (segment fact sheet, 1.3)."""

from __future__ import annotations

import re
from uuid import UUID, uuid4

import pytest
from support.segment.front import SEGMENT, Client, Connect, WatchedBack
from trio.testing import MockClock

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_operations import NO_ATTRIBUTE
from penstock.model.operations import Append, CheckTail, GetBasinConfig, GetStreamConfig
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE
from penstock_pravega.codec import (
    Dialect,
    MergeAttributeUpdate,
    MergedSegment,
    SegmentMessage,
    draft,
    join_events,
    released,
)

OTHER = "scope/other/0.#epoch.0"
ONE, TWO = f"{SEGMENT}#transient.{'0' * 31}1", f"{SEGMENT}#transaction.{'0' * 31}2"
MISSING = "scope/missing/0.#epoch.0"


@pytest.fixture
async def client(connect: Connect, clock: MockClock) -> Client:
    """A connection, and a segment with one event."""
    client: Client = await connect()
    await client.create()
    await client.append(await client.writer(), 1, b"hello")
    return client


async def info(client: Client, segment: str = SEGMENT) -> released.StreamSegmentInfo:
    return await client.expect(released.StreamSegmentInfo, released.GetStreamSegmentInfo(4, segment))


async def test_creating(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """For ever, in a basin of their own where the scope is none; neither appends nor reads create."""
    assert await client.call(released.CreateSegment(5, OTHER, 7, 2, "token", 9)) == released.SegmentCreated(5, OTHER)
    assert await client.call(released.CreateSegment(6, OTHER, 0, 0)) == released.SegmentAlreadyExists(6, OTHER)
    config = await back.perform(GetStreamConfig(StreamRef("penstock", "scope/other")))
    assert config.retention == INFINITE
    basin = await back.perform(GetBasinConfig("penstock"))
    assert not (basin.create_stream_on_append or basin.create_stream_on_read)
    assert basin.default_stream_config.retention == INFINITE


async def test_a_scope_that_is_a_basin(client: Client, clock: MockClock, back: WatchedBack) -> None:
    await client.create("telemetry/orders/3.#epoch.2")
    assert (await back.perform(CheckTail(StreamRef("telemetry", "orders/3.#epoch.2"), False))).seq_num == 0


async def test_info(client: Client, clock: MockClock) -> None:
    found = await info(client)
    assert (found.request_id, found.segment, found.exists, found.is_sealed, found.is_deleted) == (
        *(4, SEGMENT, True),
        *(False, False),
    )
    assert (found.start_offset, found.write_offset) == (0, 13)
    assert found.last_modified > 1_600_000_000_000
    assert await client.call(released.GetStreamSegmentInfo(5, MISSING)) == released.NoSuchSegment(5, MISSING)


async def test_sealing(client: Client, clock: MockClock) -> None:
    for number in (5, 6):
        assert await client.call(released.SealSegment(number, SEGMENT)) == released.SegmentSealed(number, SEGMENT)
    assert (await info(client)).is_sealed
    assert await client.content() == join_events([b"hello"])


async def test_truncating(client: Client, clock: MockClock) -> None:
    for offset, start in ((7, 7), (3, 7), (13, 13)):
        reply = await client.call(released.TruncateSegment(5, SEGMENT, offset))
        assert reply == released.SegmentTruncated(5, SEGMENT)
        assert (await info(client)).start_offset == start
    reply = await client.call(released.TruncateSegment(6, SEGMENT, 14))
    assert reply == released.SegmentIsTruncated(6, SEGMENT, 13, "", 14), "beyond the end, as a real server has it"
    reply = await client.call(released.TruncateSegment(7, SEGMENT, -1))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (7, 0)
    assert await client.call(released.TruncateSegment(8, MISSING, 3)) == released.NoSuchSegment(8, MISSING, "", 3)


async def test_deleting(client: Client, clock: MockClock) -> None:
    """Sealed or not, and then the name is free."""
    await client.create(OTHER)
    await client.expect(released.SegmentSealed, released.SealSegment(4, OTHER))
    for segment in (SEGMENT, OTHER):
        assert await client.call(released.DeleteSegment(5, segment)) == released.SegmentDeleted(5, segment)
        assert await client.call(released.DeleteSegment(6, segment)) == released.NoSuchSegment(6, segment)
        await client.create(segment)
        assert (await info(client, segment)).write_offset == 0


async def test_a_policy_is_accepted(client: Client, clock: MockClock) -> None:
    """And has no effect."""
    reply = await client.call(released.UpdateSegmentPolicy(5, SEGMENT, 100, 1))
    assert reply == released.SegmentPolicyUpdated(5, SEGMENT)


async def test_attributes(client: Client, clock: MockClock) -> None:
    attribute = UUID(int=5)
    get = released.GetSegmentAttribute(5, SEGMENT, attribute)

    async def update(value: int, expected: int) -> bool:
        request = released.UpdateSegmentAttribute(6, SEGMENT, attribute, value, expected)
        reply = await client.expect(released.SegmentAttributeUpdated, request)
        assert reply.request_id == 6
        return reply.success

    assert await client.call(get) == released.SegmentAttribute(5, NO_ATTRIBUTE)
    assert not await update(1, 0)
    assert await update(-7, NO_ATTRIBUTE)
    assert await client.call(get) == released.SegmentAttribute(5, -7)
    assert not await update(1, NO_ATTRIBUTE) and await update(1, -7) and await update(NO_ATTRIBUTE, 1)
    assert await client.call(get) == released.SegmentAttribute(5, NO_ATTRIBUTE)


async def test_a_writers_position_is_an_attribute(client: Client, clock: MockClock) -> None:
    writer = await client.writer()
    await client.append(writer, 5, b"x")
    reply = await client.call(released.GetSegmentAttribute(5, SEGMENT, writer))
    assert reply == released.SegmentAttribute(5, 5)


async def test_locating(client: Client, clock: MockClock) -> None:
    """The reply is the begin of the event at or after an offset, or the end of the segment if there is none."""
    await client.append(await client.writer(), 1, b"world", b"wide")
    for target, offset in ((0, 0), (1, 13), (13, 13), (14, 26), (26, 26), (27, 38), (38, 38)):
        reply = await client.call(released.LocateOffset(5, SEGMENT, target))
        assert reply == released.OffsetLocated(5, SEGMENT, offset), target


async def test_a_transient_segment(client: Client, clock: MockClock) -> None:
    """For an event that is too large for one message: made, written, merged, gone."""
    created = await client.expect(released.SegmentCreated, released.CreateTransientSegment(5, uuid4(), SEGMENT))
    assert created.request_id == 5
    assert re.fullmatch(re.escape(SEGMENT) + "#transient[.][0-9a-f]{32}", created.segment)
    writer = await client.writer(created.segment)
    content = join_events([bytes(300)])
    for start in range(0, len(content), 100):
        piece = released.ConditionalBlockEnd(writer, start + 1, start, content[start : start + 100], 6)
        await client.expect(released.DataAppended, piece)
    merged = await client.call(released.MergeSegments(7, SEGMENT, created.segment))
    assert merged == released.SegmentsMerged(7, SEGMENT, created.segment, 13 + 308)
    assert await client.content() == join_events([b"hello", bytes(300)])
    again = await client.call(released.GetStreamSegmentInfo(8, created.segment))
    assert again == released.NoSuchSegment(8, created.segment)


async def test_what_clients_of_other_protocols_do_not_see(client: Client, clock: MockClock, back: WatchedBack) -> None:
    await client.create(ONE)
    assert (await back.perform(CheckTail(StreamRef(INTERNAL_BASIN, ONE), False))).seq_num == 0


async def test_merging_with_attributes(client: Client, clock: MockClock) -> None:
    attribute = UUID(int=5)
    await client.create(ONE)
    await client.append(await client.writer(ONE), 1, b"more")
    held = MergeAttributeUpdate(attribute, 4, 9, 8)
    request = released.MergeSegments(5, SEGMENT, ONE, "", (held,))
    assert await client.call(request) == released.SegmentAttributeUpdated(5, False)
    reply = await client.call(released.MergeSegments(6, SEGMENT, ONE, "", (MergeAttributeUpdate(attribute, 77, 9, 8),)))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (6, 0)
    request = released.MergeSegments(7, SEGMENT, ONE, "", (MergeAttributeUpdate(attribute, 1, 9, 0),))
    assert await client.call(request) == released.SegmentsMerged(7, SEGMENT, ONE, 25)
    assert (await client.call(released.GetSegmentAttribute(8, SEGMENT, attribute))).value == 9


async def test_merging_several(client: Client, clock: MockClock) -> None:
    for segment, body in ((ONE, b"one"), (TWO, b"second")):
        await client.create(segment)
        await client.append(await client.writer(segment), 1, body)
    reply = await client.call(released.MergeSegmentsBatch(5, SEGMENT, (TWO, ONE)))
    merged = (MergedSegment(TWO, 27), MergedSegment(ONE, 38))
    assert reply == released.SegmentsBatchMerged(5, SEGMENT, merged)
    assert await client.content() == join_events([b"hello", b"second", b"one"])
    reply = await client.call(released.MergeSegmentsBatch(6, SEGMENT, ()))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (6, 0)


async def test_a_merge_that_cannot_be(client: Client, clock: MockClock) -> None:
    await client.create(ONE)
    assert await client.call(released.MergeSegments(5, SEGMENT, TWO)) == released.NoSuchSegment(5, TWO)
    assert isinstance(await client.call(released.MergeSegments(6, MISSING, ONE)), released.NoSuchSegment)
    await client.expect(released.SegmentSealed, released.SealSegment(7, SEGMENT))
    assert isinstance(await client.call(released.MergeSegments(8, SEGMENT, ONE)), released.SegmentIsSealed)
    assert (await info(client, ONE)).exists, "nothing was done"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda name: released.GetStreamSegmentInfo(5, name),
        lambda name: released.SealSegment(5, name),
        lambda name: released.DeleteSegment(5, name),
        lambda name: released.UpdateSegmentPolicy(5, name, 0, 0),
        lambda name: released.GetSegmentAttribute(5, name, UUID(int=1)),
        lambda name: released.UpdateSegmentAttribute(5, name, UUID(int=1), 1, 0),
        lambda name: released.LocateOffset(5, name, 0),
        lambda name: released.MergeSegments(5, SEGMENT, name),
        lambda name: released.MergeSegmentsBatch(5, name, (SEGMENT,)),
    ],
)
async def test_segments_that_are_not_there(client: Client, clock: MockClock, request_of: object) -> None:
    """Also in a scope that does not exist; an invalid name gets another error."""
    assert callable(request_of)
    for name in (MISSING, "telemetry/orders/0.#epoch.0"):
        assert await client.call(request_of(name)) == released.NoSuchSegment(5, name)
    reply = await client.call(request_of("no name"))
    assert isinstance(reply, released.ErrorMessage)
    assert (reply.request_id, reply.segment, reply.error_code) == (5, "no name", 0)


@pytest.mark.parametrize("request_", [released.FlushToStorage(3, "", 5), released.ListStorageChunks("s", "", 5)])
async def test_the_administrators_commands(client: Client, clock: MockClock, request_: SegmentMessage) -> None:
    reply = await client.call(request_)
    assert isinstance(reply, released.OperationUnsupported) and reply.request_id == 5
    assert type(request_).__name__ in reply.operation
    assert await client.call(released.KeepAlive()) == released.KeepAlive()


async def test_on_a_draft_connection(connect: Connect, clock: MockClock) -> None:
    """Reading 15: requests and replies have the released layouts, errors those of the draft."""
    client = await connect(Dialect.DRAFT)
    assert await client.call(released.CreateSegment(5, SEGMENT, 0, 0)) == released.SegmentCreated(5, SEGMENT)
    assert await client.call(released.CreateSegment(6, SEGMENT, 0, 0)) == released.SegmentAlreadyExists(6, SEGMENT)
    assert (await client.call(released.GetStreamSegmentInfo(7, SEGMENT))).write_offset == 0
    assert await client.call(released.TruncateSegment(8, SEGMENT, 0)) == released.SegmentTruncated(8, SEGMENT)
    assert await client.call(released.SealSegment(9, SEGMENT)) == released.SegmentSealed(9, SEGMENT)
    assert await client.call(released.DeleteSegment(9, SEGMENT)) == released.SegmentDeleted(9, SEGMENT)
    for request in (
        released.GetStreamSegmentInfo(7, SEGMENT),
        released.TruncateSegment(8, SEGMENT, 0),
        released.SealSegment(9, SEGMENT),
        released.DeleteSegment(9, SEGMENT),
    ):
        assert await client.call(request) == draft.NoSuchSegment(SEGMENT)
    await client.send(released.CreateSegment(5, "no name", 0, 0))
    assert await client.ended(), "the draft has no word for it"


async def test_records_of_other_protocols_are_events(client: Client, clock: MockClock, back: WatchedBack) -> None:
    await back.perform(Append(StreamRef("penstock", "scope/stream"), [b"world"], 13))
    assert await client.content() == join_events([b"hello", b"world"])
