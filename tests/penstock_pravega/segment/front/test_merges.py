"""The segment front: a merge that is asked for again, since its reply may have been lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio
from support.backs import PartialBack
from support.segment.front import SEGMENT, Client, Connect, WatchedBack
from trio.testing import MockClock

from penstock.model.byte_operations import ByteStreamInfo, Merge, Merged
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock_pravega.codec import MergeAttributeUpdate, MergedSegment, join_events, released
from penstock_pravega.segment.front.merges import Merges

ONE, TWO, THREE = (f"{SEGMENT}#transient.{number}" for number in (1, 2, 3))
OTHER = "scope/other/0.#epoch.0"
ATTRIBUTE = UUID(int=5)


@pytest.fixture
async def client(connect: Connect, clock: MockClock) -> Client:
    """A connection, a target and three sources, each with an event of 9 bytes."""
    client: Client = await connect()
    for segment in (SEGMENT, ONE, TWO, THREE):
        await client.create(segment)
        await client.append(await client.writer(segment), 1, segment[-1:].encode())
    return client


async def test_on_another_connection(client: Client, clock: MockClock, connect: Connect) -> None:
    """It was merged once, with its attributes; the answer says where the target ends by now, also a sealed one."""
    updates = (MergeAttributeUpdate(ATTRIBUTE, 3, 7, 0),)
    merged = await client.call(released.MergeSegments(5, SEGMENT, ONE, "", updates))
    assert merged == released.SegmentsMerged(5, SEGMENT, ONE, 18)
    await client.append(await client.writer(), 1, b"x")
    await client.expect(released.SegmentSealed, released.SealSegment(6, SEGMENT))
    again = await connect()
    merged = await again.call(released.MergeSegments(7, SEGMENT, ONE, "", updates))
    assert merged == released.SegmentsMerged(7, SEGMENT, ONE, 27)
    assert (await client.call(released.GetSegmentAttribute(8, SEGMENT, ATTRIBUTE))).value == 7
    assert await client.content() == join_events([b"0", b"1", b"x"])


async def test_several_of_which_some_are_merged(client: Client, clock: MockClock) -> None:
    await client.expect(released.SegmentsMerged, released.MergeSegments(5, SEGMENT, TWO))
    for _ in range(2):
        merged = await client.call(released.MergeSegmentsBatch(6, SEGMENT, (ONE, TWO, THREE)))
        assert isinstance(merged, released.SegmentsBatchMerged)
        lengths = [one.new_target_write_offset for one in merged.sources]
        assert lengths in ([27, 27, 36], [36, 36, 36])
    assert merged.sources == tuple(MergedSegment(name, 36) for name in (ONE, TWO, THREE))
    assert await client.content() == join_events([b"0", b"2", b"1", b"3"])


async def test_what_was_not_merged_into_this_segment(client: Client, clock: MockClock, back: WatchedBack) -> None:
    """Nothing is made up: neither for another target, nor beside a source that never was, nor without a target."""
    await client.create(OTHER)
    await client.expect(released.SegmentsMerged, released.MergeSegments(5, SEGMENT, ONE))
    assert await client.call(released.MergeSegments(6, OTHER, ONE)) == released.NoSuchSegment(6, ONE)
    batch = released.MergeSegmentsBatch(7, SEGMENT, (ONE, f"{SEGMENT}#transient.9"))
    assert await client.call(batch) == released.NoSuchSegment(7, SEGMENT)
    assert await client.content() == join_events([b"0", b"1"])
    await client.expect(released.SegmentDeleted, released.DeleteSegment(8, SEGMENT))
    assert await client.call(released.MergeSegments(9, SEGMENT, ONE)) == released.NoSuchSegment(9, ONE)


async def test_a_source_of_the_same_name_is_another(client: Client, clock: MockClock) -> None:
    await client.expect(released.SegmentsMerged, released.MergeSegments(5, SEGMENT, ONE))
    await client.create(ONE)
    await client.append(await client.writer(ONE), 1, b"!")
    merged = await client.call(released.MergeSegments(6, SEGMENT, ONE))
    assert merged == released.SegmentsMerged(6, SEGMENT, ONE, 27)
    await client.create(ONE)
    await client.expect(released.SegmentDeleted, released.DeleteSegment(7, ONE))
    assert await client.call(released.MergeSegments(8, SEGMENT, ONE)) == released.NoSuchSegment(8, ONE)


# ---- without a store -----------------------------------------------------------------------------------------------


class _Back(PartialBack):
    """Merges when the gate is open: a source once, and `fails` as often as it says."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.merged: list[StreamRef] = []
        self.fails = 0

    async def perform(self, operation: Any) -> Any:
        if not isinstance(operation, Merge):
            return ByteStreamInfo(0, len(self.merged), False, 0)
        gone = set(operation.sources) & set(self.merged)
        if not gone:
            await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise fail(FailureCode.STORAGE, "the disk")
        if gone:
            raise fail(FailureCode.STREAM_NOT_FOUND, "gone")
        self.merged += operation.sources
        return Merged((len(self.merged),))


def _merge(number: int) -> Merge:
    return Merge(StreamRef("penstock", "target"), (StreamRef("penstock", str(number)),))


@pytest.mark.parametrize("fails", [0, 1])
async def test_while_the_first_is_under_way(autojump_clock: MockClock, fails: int) -> None:
    """The second waits for how the first ends: it may have failed, and then the second is the first."""
    back, merges, ended = _Back(), Merges(), list[Any]()
    back.fails = fails

    async def run() -> None:
        try:
            ended.append(await merges.merge(back, _merge(1)))
        except OperationFailed as error:
            ended.append(error.failure.code)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(run)
        await trio.sleep(1)
        assert not ended
        back.gate.set()
    assert ended == ([FailureCode.STORAGE, (1,)] if fails else [(1,), (1,)])
    assert len(back.merged) == 1


async def test_so_many_are_remembered() -> None:
    back, merges = _Back(), Merges(most=2)
    back.gate.set()
    for number in (1, 2, 3):
        await merges.merge(back, _merge(number))
    for number in (2, 3):
        assert await merges.merge(back, _merge(number)) == (3,)
    with pytest.raises(OperationFailed):
        await merges.merge(back, _merge(1))
