"""Heartbeats between batches, and what a drain does to a follower (S2 fact sheet 2.4)."""

import itertools
from collections import deque
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from penstock.core.back import Following, ReadSession
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import Columns, RecordBatch, StreamPosition
from penstock.net.draining import Draining
from penstock.net.http import following as following_module
from penstock.net.http.following import FollowedExchange, FollowingSession, Heartbeats
from penstock.wire.http import Buffer

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


class Room:
    """An exchange with room at any time. Its heartbeats and their times go to `sent`; if `slow` it takes none."""

    def __init__(self, spare: int = 0, *, slow: bool = False) -> None:
        self.left = spare
        self.slow = slow
        self.sent: list[tuple[float, bytes]] = []

    async def room(self, keep: bool = True) -> None:
        return

    def spare(self) -> int:
        return self.left

    async def send(self, pieces: Sequence[Buffer]) -> None:
        raise AssertionError("the tests call `next`")

    def send_now(self, piece: bytes) -> bool:
        if not self.slow:
            self.sent.append((trio.current_time(), piece))
        return not self.slow


def encoded(event: RecordBatch | StreamPosition) -> list[bytes]:
    return [str(event.seq_num).encode() if isinstance(event, StreamPosition) else b"batch"]


def following(
    read: ReadSession,
    draining: Draining | None = None,
    room: FollowedExchange | None = None,
    heartbeats: Heartbeats | None = None,
) -> FollowingSession:
    beats = heartbeats or Heartbeats((5.0, 15.0))
    return FollowingSession(read, room or Room(), encoded, beats, draining or Draining(3.0))


def follower(*script: RecordBatch | Following | None, draining: Draining | None = None) -> FollowingSession:
    return following(ScriptedRead(*script), draining)


async def test_a_heartbeat_comes_at_once_when_following_begins(autojump_clock: MockClock) -> None:
    read = follower(BATCH, Following(TAIL), None)
    assert [await read.next() for _ in range(3)] == [BATCH, TAIL, None]
    assert trio.current_time() == 0


async def test_a_piece_s_room_is_asked_for_when_records_came_during_the_wait(autojump_clock: MockClock) -> None:
    read = ScriptedRead()
    asked: list[bool] = []

    class Asked(Room):
        async def room(self, keep: bool = True) -> None:
            asked.append(keep)
            read.script.append(BATCH)

    assert await following(read, room=Asked()).next() == BATCH
    assert asked == [False, True]


def assert_spread(times: list[float]) -> None:
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(5 <= gap <= 15 for gap in gaps)
    assert max(gaps) - min(gaps) > 1, "they are spread, so that many followers do not beat together"


async def test_heartbeats_come_every_5_to_15_seconds(autojump_clock: MockClock) -> None:
    room = Room()
    read = following(ScriptedRead(Following(TAIL)), room=room)
    assert await read.next() == TAIL
    with trio.move_on_at(500):
        await read.next()
    assert len(room.sent) >= 33 and {piece for _, piece in room.sent} == {b"1"}
    assert_spread([0.0, *(at for at, _ in room.sent)])
    with trio.move_on_at(600):  # nothing waits now
        await trio.sleep_forever()
    assert room.sent[-1][0] <= 500


async def test_a_slow_client_s_heartbeats_are_left_to_its_own_task(autojump_clock: MockClock) -> None:
    read = following(ScriptedRead(Following(TAIL)), room=Room(slow=True))
    assert await read.next() == TAIL
    times = [0.0]
    for _ in range(50):
        assert await read.next() == TAIL
        times.append(trio.current_time())
    assert_spread(times)


async def test_a_heartbeat_that_fails_is_left_to_the_follower_s_task(autojump_clock: MockClock) -> None:
    class Fails(Room):
        def send_now(self, piece: bytes) -> bool:
            raise RuntimeError("cannot be sent")

    read = following(ScriptedRead(Following(TAIL)), room=Fails())
    assert [await read.next() for _ in range(3)] == [TAIL] * 3


class ReadyRead(ScriptedRead):
    """A read whose batches are all in memory."""

    def ready(self) -> RecordBatch | None:
        return self.script.popleft() if self.script and isinstance(self.script[0], RecordBatch) else None  # type: ignore[return-value]


async def test_batches_in_memory_are_taken_as_far_as_there_is_room() -> None:
    for spare, count in ((0, 0), (1, 1), (BATCH.metered, 1), (BATCH.metered + 1, 2), (1 << 20, 4)):
        read = ReadyRead(*[BATCH] * 5, Following(TAIL))
        session = following(read, room=Room(spare))
        first = await session.next()
        assert first is not None
        assert list(session.more(first)) == [BATCH] * count
        assert len(read.script) == 5 - count
        read.script.clear()
        assert list(session.more(TAIL)) == []


async def test_what_takes_long_to_encode_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(following_module, "perf_counter", lambda: now)
    session = following(ReadyRead(*[BATCH] * 5), room=Room(1 << 20))
    taken = 0
    for _ in session.more(BATCH):
        taken += 1
        now += 0.0006
    assert taken == 2


class TimedRead(ScriptedRead):
    """A read whose batches come every four seconds, five of them."""

    async def next(self) -> RecordBatch | Following | None:
        if self.script and self.script[0] is BATCH:
            await trio.sleep(4)
        return await super().next()

    def behind(self) -> bool:
        return False


async def test_records_put_a_heartbeat_off(autojump_clock: MockClock) -> None:
    room = Room()
    read = following(TimedRead(Following(TAIL), *[BATCH] * 5), room=room)
    assert [await read.next() for _ in range(6)] == [TAIL, *[BATCH] * 5]
    assert trio.current_time() == 20 and not room.sent
    with trio.move_on_at(36):
        await read.next()
    assert room.sent and 25 <= room.sent[0][0] <= 35


async def test_many_followers_share_a_task(autojump_clock: MockClock) -> None:
    heartbeats = Heartbeats((5.0, 15.0))
    rooms = [Room() for _ in range(50)]

    async def follow(number: int) -> None:
        read = following(ScriptedRead(Following(TAIL)), room=rooms[number], heartbeats=heartbeats)
        assert await read.next() == TAIL
        with trio.move_on_at(10 * (number + 1)):
            await read.next()

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(follow, number)
    ends = [(room.sent[-1][0], 10 * (number + 1)) for number, room in enumerate(rooms) if number > 1]
    assert all(last <= end for last, end in ends)
    for room in rooms[20:]:
        assert_spread([0.0, *(at for at, _ in room.sent)])


async def begin_after_a_second(draining: Draining) -> None:
    await trio.sleep(1)
    draining.begin()


async def test_others_have_their_turn_between_heartbeats_of_one_round(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_module, "_SENDS_PER_CHECKPOINT", 2)
    heartbeats, begun = Heartbeats((5.0, 5.0)), trio.Event()

    class Noted(Room):
        def send_now(self, piece: bytes) -> bool:
            begun.set()
            return super().send_now(piece)

    rooms = [Noted() for _ in range(6)]

    async def follow(room: Room) -> None:
        read = following(ScriptedRead(Following(TAIL)), room=room, heartbeats=heartbeats)
        assert await read.next() == TAIL
        await read.next()

    async with trio.open_nursery() as nursery:
        for room in rooms:
            nursery.start_soon(follow, room)
        await begun.wait()
        assert 0 < sum(len(room.sent) for room in rooms) < 6
        nursery.cancel_scope.cancel()


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
    read = following(SlowRead(*script), draining)
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
