"""Acknowledgements that come in any order or do not say much, and servers whose answers cannot be true."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.native import FakeNative, MemoryTables
from support.store import NOW, STREAM, Fails, Wall, acknowledged, appending, records, trim_record
from trio.testing import MockClock

from penstock.backends.sequence_numbering import IndexedSettings, open_indexed
from penstock.core.native import NativeAck, Scanned
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, FromSeqNum
from penstock.model.records import RecordId


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def segment(wall: Wall) -> FakeNative:
    return FakeNative(wall, offsets=True, most=1000)


def opened(native: FakeNative, wall: Wall, state: Any = None, **settings: Any) -> Any:
    return open_indexed(native, "fake", state or MemoryTables(), IndexedSettings(**settings), wall)


async def test_a_server_that_does_not_say_where_it_put_an_append(
    segment: FakeNative, wall: Wall, autojump_clock: MockClock
) -> None:
    segment.silent = True
    started = trio.current_time()
    async with opened(segment, wall) as back:
        await back.perform(appending(b"a", b"b", timestamps=[NOW - 7, NOW - 5]))
        segment.store([b"b", b"other", b"a"])
        appended = await back.perform(appending(b"b", b"c", timestamps=[NOW - 3, None]))
        assert (appended.start, appended.end) == ((5, NOW - 3), (7, NOW))
        async with back.append_session(STREAM) as session:
            segment.held = True
            await session.send(appending(b"d"))
            assert len(await records(back, FromSeqNum(0))) == 8  # found before it is acknowledged
            segment.held = False
            segment.changed.unpark_all()
            assert (await acknowledged(session, 1))[0].start.seq_num == 7
        found = await records(back, FromSeqNum(0))
    assert [record.timestamp - NOW for record in found] == [-7, -5, -3, -3, -3, -3, 0, 0]
    assert trio.current_time() - started < 6


@pytest.mark.parametrize("silent", [True, False])
async def test_timestamps_are_exact_in_whatever_order_acknowledgements_are_heard(
    segment: FakeNative, wall: Wall, autojump_clock: MockClock, silent: bool
) -> None:
    """Two sessions hear of theirs at the same time, of places or not."""
    segment.silent = silent
    async with opened(segment, wall) as back:
        for turn in range(8):
            early = NOW - 100 + 5 * turn
            segment.held = True
            async with back.append_session(STREAM) as one, back.append_session(STREAM) as other:
                await one.send(appending(b"a", timestamps=[early]))
                await other.send(appending(b"b", b"c", timestamps=[early + 1, early + 2]))
                await one.send(appending(b"d", timestamps=[early + 4]))
                segment.held = False
                segment.changed.unpark_all()
                assert [ack.start.seq_num for ack in await acknowledged(one, 2)] == [4 * turn, 4 * turn + 3]
                assert [ack.start.seq_num for ack in await acknowledged(other, 1)] == [4 * turn + 1]
        found = await records(back, FromSeqNum(0))
    assert [record.timestamp for record in found] == [
        NOW - 100 + 5 * turn + more for turn in range(8) for more in (0, 1, 2, 4)
    ]


async def test_an_append_that_one_scan_does_not_hold_has_its_clients_timestamps(
    segment: FakeNative, wall: Wall, autojump_clock: MockClock
) -> None:
    """Others have appended before it, also what looks like it at first."""
    segment.silent, segment.most = True, 3
    async with opened(segment, wall) as back:
        async with back.append_session(STREAM) as session:
            segment.store([b"other", b"a", b"b", b"a", b"other"])
            await session.send(appending(b"a", b"b", b"c", b"d", b"e", timestamps=[NOW - 9, *[NOW - 7] * 4]))
            ack = (await acknowledged(session, 1))[0]
        assert (ack.start, ack.end) == ((5, NOW - 9), (10, NOW - 7))
        found = await records(back, FromSeqNum(0))
    assert [record.timestamp - NOW for record in found] == [-9] * 6 + [-7] * 4


async def test_a_trim_command_does_not_wait_for_what_was_sent_behind_it(
    segment: FakeNative, wall: Wall, autojump_clock: MockClock
) -> None:
    started = trio.current_time()
    segment.one_by_one = segment.held = True
    async with opened(segment, wall) as back, back.append_session(STREAM) as session:
        await session.send(trim_record(99))
        await session.send(appending(b"behind"))
        segment.held = False
        segment.changed.unpark_all()
        assert len(await acknowledged(session, 2)) == 2
    assert segment.first == 1
    assert trio.current_time() - started < 1


class Busy(FakeNative):
    """A native back to which another client appends all the time."""

    async def scan(self, *args: Any, **options: Any) -> Scanned:
        if self.exists:
            self.store([b"another"])
        if self.scans > 1000:
            pytest.fail("it looks for the tail for ever")
        return replace(await super().scan(*args, **options), at_tail=False, few=not self.offsets)


class Far(FakeNative):
    """It takes a while to ask it."""

    async def scan(self, *args: Any, **options: Any) -> Scanned:
        await trio.sleep(0.01)
        found = await super().scan(*args, **options)
        return replace(found, at_tail=not found.bodies)


@pytest.mark.parametrize("offsets", [True, False])
async def test_the_tail_is_found_though_others_append_all_the_time(wall: Wall, offsets: bool) -> None:
    busy = Busy(wall, offsets=offsets, most=2 if offsets else 1000)
    busy.store([b"x"] * 20)
    async with opened(busy, wall) as back:
        assert (await back.perform(CheckTail(STREAM))).seq_num >= 20
        assert (await back.perform(appending(b"mine"))).start.seq_num > 20


@pytest.mark.parametrize("offsets", [True, False])
async def test_the_tail_is_found_though_clients_append_all_the_time(
    wall: Wall, autojump_clock: MockClock, offsets: bool
) -> None:
    native = Far(wall, offsets=offsets)

    async def append(session: Any) -> None:
        while True:
            await session.send(appending(b"again"))
            await trio.sleep(0.001)

    async def take(session: Any) -> None:
        while True:
            await session.receive()

    async with opened(native, wall) as back, back.append_session(STREAM) as session, trio.open_nursery() as nursery:
        nursery.start_soon(append, session)
        nursery.start_soon(take, session)
        for _ in range(20):
            with trio.fail_after(5):
                await back.perform(CheckTail(STREAM))
        nursery.cancel_scope.cancel()


async def test_a_trim_command_that_fails_is_no_reason_to_append_it_again(segment: FakeNative, wall: Wall) -> None:
    """It is in the stream, though the server could not be reached when it was to be carried out."""

    async def trim(*_: object) -> None:
        raise fail(FailureCode.HOT_SERVER, "no server there")

    segment.trim = trim  # type: ignore[method-assign, assignment]
    async with opened(segment, wall) as back:
        for condition in (None, 1):
            with Fails(FailureCode.UNAVAILABLE):
                await back.perform(trim_record(1, match=condition))
        assert len(segment.bodies) == 2


@pytest.mark.parametrize("seconds", [3, 60])
async def test_a_server_that_is_lost_while_positions_are_looked_up(
    wall: Wall, autojump_clock: MockClock, seconds: int
) -> None:
    """It acknowledged the appends, but is gone when the records before them are to be numbered."""
    native = FakeNative(wall, offsets=False)
    async with (
        opened(native, wall, recover_seconds=10.0) as back,
        trio.open_nursery() as nursery,
        back.append_session(STREAM) as session,
    ):
        native.store([b"of others"])
        native.held = True
        for body in (b"a", b"b"):
            await session.send(appending(body))
        native.held, native.broken = False, True
        native.changed.unpark_all()

        async def mend() -> None:
            await trio.sleep(seconds)
            native.broken = False

        nursery.start_soon(mend)
        if seconds < 10:
            assert [ack.start.seq_num for ack in await acknowledged(session, 2)] == [1, 2]
        else:
            with Fails(FailureCode.UNAVAILABLE):
                await session.receive()
    assert native.bodies == [b"of others", b"a", b"b"]


async def test_identifiers_of_which_some_are_missing(wall: Wall) -> None:
    """The records of one append have identifiers of several milliseconds."""
    native = FakeNative(wall, offsets=False)
    tables = MemoryTables()
    async with opened(native, wall, tables) as back:
        async with back.append_session(STREAM) as session:
            for turn in range(3):
                native.held = True
                await session.send(appending(b"a", b"b", b"c"))
                native.ids[-2:] = [RecordId(ms + at, 0) for at, (ms, _) in enumerate(native.ids[-2:], 1)]
                wall.now += 10
                session._native._acks[-1] = NativeAck(3, tuple(native.ids[-1]))
                native.held = False
                native.changed.unpark_all()
                assert (await acknowledged(session, 1))[0].start.seq_num == 3 * turn
        assert [record.seq_num for record in await records(back, FromSeqNum(0))] == list(range(9))


class Vanishing(FakeNative):
    """Another client deletes the stream as soon as something was appended to it."""

    async def scan(self, *args: Any, **options: Any) -> Scanned:
        self.exists = self.exists and not self.bodies
        return await super().scan(*args, **options)


@pytest.mark.parametrize("offsets", [True, False])
async def test_a_stream_that_is_deleted_while_the_place_of_an_append_is_looked_up(wall: Wall, offsets: bool) -> None:
    native = Vanishing(wall, offsets=offsets, silent=True)
    async with opened(native, wall) as back:
        for _ in range(2):
            with pytest.raises(OperationFailed) as failed:
                await back.perform(appending(b"a"))
            assert failed.value.failure.code in (FailureCode.STREAM_NOT_FOUND, FailureCode.UNAVAILABLE)
