"""Heartbeats between batches, and what a drain does to a follower (S2 fact sheet 2.4)."""

import itertools
from collections import deque

import pytest
import trio
from trio.testing import MockClock

from penstock.core.back import Following, ReadSession
from penstock.net.draining import Draining
from penstock.protocols.s2.front.following import FollowingSession
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import Columns, RecordBatch, StreamPosition

BATCH = RecordBatch(Columns([0], [5], [b"x"]))
TAIL = StreamPosition(1, 5)


class ScriptedRead(ReadSession):
    """A read session that gives what a test puts into it."""

    def __init__(self, *script: RecordBatch | Following | None) -> None:
        self.script = deque(script)

    async def next(self) -> RecordBatch | Following | None:
        if not self.script:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return self.script.popleft()

    def behind(self) -> bool:
        return bool(self.script)

    def tail(self) -> StreamPosition:
        return TAIL


async def enough_room(keep: bool) -> None:
    """Of an exchange that is never full."""


def follower(*script: RecordBatch | Following | None, draining: Draining | None = None) -> FollowingSession:
    return FollowingSession(ScriptedRead(*script), enough_room, (5.0, 15.0), draining or Draining(3.0))


async def test_a_heartbeat_comes_at_once_when_following_begins(autojump_clock: MockClock) -> None:
    read = follower(BATCH, Following(TAIL), None)
    assert [await read.next() for _ in range(3)] == [BATCH, TAIL, None]
    assert trio.current_time() == 0


async def test_a_piece_s_room_is_asked_for_when_records_came_during_the_wait(autojump_clock: MockClock) -> None:
    read = ScriptedRead()
    asked: list[bool] = []

    async def room(keep: bool) -> None:
        asked.append(keep)
        read.script.append(BATCH)

    assert await FollowingSession(read, room, (5.0, 15.0), Draining(3.0)).next() == BATCH
    assert asked == [False, True]


async def test_heartbeats_come_every_5_to_15_seconds(autojump_clock: MockClock) -> None:
    read = follower(Following(TAIL))
    assert await read.next() == TAIL
    times = [0.0]
    for _ in range(50):
        assert await read.next() == TAIL
        times.append(trio.current_time())
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(5 <= gap <= 15 for gap in gaps)
    assert max(gaps) - min(gaps) > 1, "they are spread, so that many followers do not beat together"


async def begin_after_a_second(draining: Draining) -> None:
    await trio.sleep(1)
    draining.begin()


class SlowRead(ScriptedRead):
    """A read whose next batch takes long, although its records are there from the beginning, as the tail says."""

    async def next(self) -> RecordBatch | Following | None:
        if self.script and self.script[0] is BATCH:
            await trio.sleep_until(20)
        return await super().next()


@pytest.mark.parametrize("script", [[BATCH], [Following(StreamPosition(0, 0)), BATCH]], ids=["first", "later"])
async def test_a_tail_that_was_not_reached_is_no_heartbeat(
    autojump_clock: MockClock, script: list[RecordBatch | Following | None]
) -> None:
    """Clients go on there after a drain, and would miss what is before it."""
    draining = Draining(60.0)
    read = FollowingSession(SlowRead(*script), enough_room, (5.0, 15.0), draining)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin_after_a_second, draining)
        given = [await read.next() for _ in script]
        assert given[-1] is BATCH and trio.current_time() == 20
    assert await read.next() == TAIL, "then there is one"


async def test_a_read_that_never_begins_ends_with_the_drain(autojump_clock: MockClock) -> None:
    draining = Draining(3.0)
    draining.begin()
    with pytest.raises(OperationFailed) as error:
        await follower(draining=draining).next()
    assert error.value.failure.code is FailureCode.SERVER_DRAINING and trio.current_time() == 3


async def test_a_drain_interrupts_an_idle_follower_then_ends_it(autojump_clock: MockClock) -> None:
    draining = Draining(3.0)
    read = follower(Following(TAIL), draining=draining)
    assert await read.next() == TAIL
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin_after_a_second, draining)
        assert await read.next() == TAIL
    assert trio.current_time() == 1
    assert draining.begun
    assert await read.next() == TAIL
    assert trio.current_time() == 4
    with pytest.raises(OperationFailed) as error:
        await read.next()
    assert error.value.failure.code is FailureCode.SERVER_DRAINING
