"""Segment stores as a server of records."""

from __future__ import annotations

import pytest
from support.segment.back import EVENTS, STREAM, append_of, opened
from trio.testing import MockClock

from penstock.core.marks import START, Mark
from penstock.core.native import Bounds
from penstock.model.failures import FailureCode, OperationFailed
from penstock_pravega.codec import Dialect, join_events
from penstock_pravega.segment.front import SegmentFront

DIALECTS = pytest.mark.parametrize("dialect", list(Dialect))


def at(offset: int) -> Mark:
    return Mark(0, 0, 0, offset)


@DIALECTS
async def test_what_was_appended_is_scanned(front: SegmentFront, clock: MockClock, dialect: Dialect) -> None:
    async with opened(front, dialect=dialect) as (back, _):
        native = back.native
        assert await native.create(STREAM)
        assert not await native.create(STREAM)
        async with native.append_session(STREAM) as session:
            await session.send(append_of(*EVENTS[:2]))
            await session.send(append_of(EVENTS[2]))
            session.close()
            acks = []
            while some := await session.receive():
                acks += some
        assert [ack.count for ack in acks] == [2, 1]
        assert [ack.length for ack in acks] == [26, 308]
        scanned = await native.scan(STREAM, START, max_records=10, max_bytes=1 << 20, wait=0)
        assert scanned.bodies == EVENTS
        assert scanned.offsets == [0, 11, 26, 334]
        assert await native.bounds(STREAM) == Bounds(0, 334, False)
        nothing = await native.scan(STREAM, at(334), max_records=10, max_bytes=1 << 20, wait=1)
        assert (nothing.bodies, nothing.at_tail) == ([], True)
        await native.trim(STREAM, at(26))
        with pytest.raises(OperationFailed) as caught:
            await native.scan(STREAM, START, max_records=10, max_bytes=1 << 20, wait=0)
        assert caught.value.failure.code is FailureCode.OFFSET_TRUNCATED
        assert caught.value.failure.details["offset"] == 26
        await native.delete(STREAM)
        with pytest.raises(OperationFailed) as caught:
            await native.bounds(STREAM)
        assert caught.value.failure.code is FailureCode.STREAM_NOT_FOUND


async def test_appends_on_a_condition(front: SegmentFront, clock: MockClock) -> None:
    async with opened(front) as (back, _):
        native = back.native
        await native.create(STREAM)
        ack = await native.append_at(STREAM, append_of(b"abc"), START)
        assert (ack.end_offset, ack.length) == (11, 11)
        with pytest.raises(OperationFailed) as caught:
            await native.append_at(STREAM, append_of(b"abc"), START)
        assert caught.value.failure.code is FailureCode.OFFSET_MISMATCH
        assert caught.value.failure.details["offset"] == 11
        assert (await native.append_at(STREAM, append_of(b"d"), at(11))).end_offset == 20
        scanned = await native.scan(STREAM, START, max_records=10, max_bytes=1 << 20, wait=0)
        assert join_events(scanned.bodies) == join_events([b"abc", b"d"])


async def test_an_append_follows_a_larger_one_whose_condition_failed(front: SegmentFront, clock: MockClock) -> None:
    """The writer's numbers rise on a connection, those of refused appends included."""
    async with opened(front) as (back, _):
        native = back.native
        await native.create(STREAM)
        await native.append_at(STREAM, append_of(b"abc"), START)
        with pytest.raises(OperationFailed) as caught:
            await native.append_at(STREAM, append_of(b"d", b"e", b"f"), START)
        assert caught.value.failure.code is FailureCode.OFFSET_MISMATCH
        assert (await native.append_at(STREAM, append_of(b"g"), at(11))).end_offset == 20
