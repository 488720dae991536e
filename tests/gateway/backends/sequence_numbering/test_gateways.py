"""Several gateways with the same state before one server: each gives numbers, and all tell the same ones."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from support.native import FakeNative, FakeSession
from support.store import NOW, STREAM, Fails, Wall, appending, bodies, eventually, records
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.logged_tables import LoggedTables, LogNews, open_logged_tables
from penstock.backends.positions.index import index_name
from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings, numbered, open_indexed
from penstock.backends.sequence_numbering.creations import Creations
from penstock.backends.sequence_numbering.others import RENEWED, SWEPT
from penstock.core.back import Following
from penstock.core.native import NativeAck
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import (
    Append,
    Appended,
    CheckTail,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    FromTailOffset,
    Read,
    Trim,
)
from penstock.model.records import Record, StreamRef
from penstock.tables.byte_table import ByteTable

SETTLE = 5.0


class Slow(SharedLogEnd):
    """An end of the log that can be made to read nothing, or to read all of it again, batch by batch.

    Its place in the log moves when a batch is returned: an append behind batches that the gateway has not seen must
    be refused.
    """

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(shared)
        self.hears = trio.Event()
        self.hears.set()
        self.again = False
        self._by_batch = False

    async def read(self) -> LogNews:
        if self.again:
            self.again, self._read, self._begun = False, 0, False
        if self._by_batch:
            await trio.sleep(0.01)
        place = self._read, self._begun
        news = await super().read()
        while not self.hears.is_set():
            self._read, self._begun = place
            await self.hears.wait()
            news = await super().read()
        self._by_batch = (self._by_batch or news.restarted) and len(news.batches) > 1
        if not self._by_batch:
            return news
        self._read -= len(news.batches) - 1
        first = news.batches[0]
        return LogNews([first], first.changes[-1][0] + 1, news.restarted)


class Gateways:
    """The server, and what is before it."""

    def __init__(self, native: FakeNative, wall: Wall) -> None:
        self.native, self.wall = native, wall
        self.shared = SharedLog()
        self.ends: list[Slow] = []
        self.states: list[LoggedTables] = []
        self.backs: list[IndexedBack] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[IndexedBack]:
        end = Slow(self.shared)
        settings = IndexedSettings(create_streams=True, settle_seconds=SETTLE)
        async with (
            open_logged_tables(end, 1 << 20) as state,
            open_indexed(self.native, "fake", state, settings, self.wall) as back,
        ):
            self.ends.append(end)
            self.states.append(state)
            self.backs.append(back)
            yield back


@asynccontextmanager
async def three(native: FakeNative, wall: Wall) -> AsyncIterator[Gateways]:
    gateways = Gateways(native, wall)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(gateways.one())
        yield gateways


def contents(found: list[Record]) -> list[tuple[int, int, bytes]]:
    return [(record.seq_num, record.timestamp, record.body) for record in found]


async def same_through(backs: list[IndexedBack]) -> list[tuple[int, int, bytes]]:
    """Return what the stream has, which is the same through each gateway."""
    first, *rest = [contents(await records(back, FromSeqNum(0), wait=0)) for back in backs]
    assert all(other == first for other in rest)
    return first


async def test_each_tells_what_the_others_have_numbered(
    autojump_clock: MockClock, native: FakeNative, wall: Wall
) -> None:
    async with three(native, wall) as gateways:
        for number in range(9):
            appended = await gateways.backs[number % 3].perform(appending(b"%d" % number))
            assert appended.start.seq_num == number
            wall.now += 1
        assert [record[2] for record in await same_through(gateways.backs)] == [b"%d" % number for number in range(9)]
        for back in gateways.backs:
            assert (await back.perform(CheckTail(STREAM))).seq_num == 9


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("again", [False, True], ids=["", "again"])
async def test_appends_at_all_of_them_at_once(
    autojump_clock: MockClock, native: FakeNative, wall: Wall, seed: int, again: bool
) -> None:
    """Numbers are dense, timestamps are the clients', and followers of all gateways are given the same records.

    Also if one of them reads the state `again` meanwhile. Before, it did not wait for the numbers of others then, and
    at times all of them waited for each other until the time to wait was over.
    """
    dice = random.Random(seed)
    told: dict[int, bytes] = {}
    wanted: dict[bytes, int] = {}
    seen: list[list[Record]] = [[] for _ in range(3)]
    each, writers = 15, 6

    async def write(name: int, back: IndexedBack) -> None:
        sent: list[list[bytes]] = []
        got: list[Appended] = []
        async with back.append_session(STREAM) as session, trio.open_nursery() as nursery:

            async def send() -> None:
                for number in range(each):
                    await trio.sleep(dice.random() / 50)
                    some = [b"%d-%d-%d" % (name, number, part) for part in range(dice.randint(1, 3))]
                    sent.append(some)
                    wanted.update(dict.fromkeys(some, stamp := NOW - 1000 + 10 * number + dice.randint(0, 9)))
                    await session.send(appending(*some, timestamps=[stamp] * len(some)))
                session.close()

            nursery.start_soon(send)
            while some := await session.receive():
                got += some
        for batch, appended in zip(sent, got, strict=True):
            assert appended.end.seq_num - appended.start.seq_num == len(batch)
            for at, body in enumerate(batch):
                assert told.setdefault(appended.start.seq_num + at, body) == body

    async def follow(found: list[Record], back: IndexedBack) -> None:
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            while True:
                more = await session.next()
                if more is not None and not isinstance(more, Following):
                    found += more.records()

    async with three(native, wall) as gateways, trio.open_nursery() as nursery:
        for found, back in zip(seen, gateways.backs, strict=True):
            nursery.start_soon(follow, found, back)

        async def tick() -> None:
            while True:
                await trio.sleep(0.01)
                wall.now += dice.randint(0, 3)

        async def disturb() -> None:
            await trio.sleep(dice.random() / 3)
            gateways.ends[dice.randrange(3)].again = again

        nursery.start_soon(tick)
        nursery.start_soon(disturb)
        begun = trio.current_time()
        async with trio.open_nursery() as writing:
            for name in range(writers):
                writing.start_soon(write, name, gateways.backs[name % 3])
        assert trio.current_time() - begun < SETTLE, "none waits in vain for another"
        expected = await same_through(gateways.backs)
        assert [body for _, _, body in expected] == native.bodies
        assert {seq_num: body for seq_num, _, body in expected} == told
        if native.offsets:  # else the server stamps them
            last = 0
            for _, timestamp, body in expected:
                last = max(last, wanted[body])  # the server decides the order, and timestamps never fall
                assert timestamp == last
        await eventually(lambda: min(map(len, seen)) == len(expected))
        assert [contents(found) for found in seen] == [expected] * 3
        nursery.cancel_scope.cancel()


async def test_a_reader_leaves_the_timestamps_to_the_gateway_that_appends(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    async with three(segment, wall) as gateways, trio.open_nursery() as nursery:
        one, other, _ = gateways.backs
        await one.perform(appending(b"first"))
        wall.now += 100
        segment.held = True
        nursery.start_soon(one.perform, appending(b"second", timestamps=[NOW + 1]))
        await eventually(lambda: len(segment.bodies) == 2)
        found: list[Record] = []

        async def read() -> None:
            found.extend(await records(other, FromSeqNum(0), wait=0))

        begun = trio.current_time()
        async with trio.open_nursery() as reading:
            reading.start_soon(read)
            await trio.sleep(SETTLE / 2)
            assert not found, "the gateway that appended has not been told yet"
            segment.held = False
            segment.changed.unpark_all()
        assert trio.current_time() - begun < SETTLE
        assert contents(found) == [(0, NOW, b"first"), (1, NOW + 1, b"second")]


async def test_a_gateway_that_is_killed_is_not_waited_for_for_ever(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    gateways = Gateways(segment, wall)
    async with gateways.one() as other:
        async with gateways.one() as killed, trio.open_nursery() as nursery:
            segment.held = True
            nursery.start_soon(killed.perform, appending(b"lost", timestamps=[NOW - 7]))
            await eventually(lambda: len(segment.bodies) == 1)
            nursery.cancel_scope.cancel()
        segment.held = False
        begun = trio.current_time()
        appended = await other.perform(appending(b"next", timestamps=[NOW - 3]))
        assert (appended.start.seq_num, appended.start.timestamp) == (1, NOW - 3)
        assert trio.current_time() - begun == pytest.approx(SETTLE, abs=0.5)
        segment.store([b"by another client"])
        begun = trio.current_time()
        assert await bodies(other, FromSeqNum(0), wait=0) == [b"lost", b"next", b"by another client"]
        assert trio.current_time() - begun < 1, "it was waited for once"


async def test_records_of_other_clients_are_waited_for_once(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    """A gateway that has appended a while ago has nothing in flight any more."""
    async with three(segment, wall) as gateways:
        one, other, _ = gateways.backs
        await one.perform(appending(b"0"))
        waited = []
        for number in range(1, 4):
            segment.store([b"%d" % number])
            begun = trio.current_time()
            assert (await other.perform(CheckTail(STREAM))).seq_num == number + 1
            waited.append(trio.current_time() - begun > SETTLE - 1)
        assert waited == [True, False, False]
        await trio.sleep(SETTLE)
        await one.perform(appending(b"4"))
        assert [body for _, _, body in await same_through(gateways.backs)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_rows_of_gateways_that_no_longer_append_are_removed(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    async with three(segment, wall) as gateways:
        table = ByteTable(gateways.states[0], "#appending/fake")

        async def rows() -> int:
            return len([key async for key, _ in table.items()])

        for back in gateways.backs:
            await back.perform(appending(b"x"))
        assert await rows() == 3
        before = [item async for item in table.items()]
        appends = len(gateways.shared.batches)
        await gateways.backs[0].perform(appending(b"x"))
        assert [item async for item in table.items()] == before
        assert len(gateways.shared.batches) == appends + 1, "the row is not written again at once"
        for _ in range(30):
            await gateways.backs[0].perform(appending(b"x"))
            await trio.sleep(SWEPT / 10)
        assert await rows() == 1
        await trio.sleep(3 * SWEPT)
        assert await rows() == 0


async def test_trims_and_conditions_hold_through_each(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    async with three(segment, wall) as gateways:
        one, other, third = gateways.backs
        for number in range(6):
            await one.perform(appending(b"%d" % number))
            assert (await other.perform(CheckTail(STREAM))).seq_num == number + 1
        await other.perform(Trim(STREAM, FromSeqNum(4)))
        assert await bodies(one, FromSeqNum(0), wait=0, clamp=True) == [b"4", b"5"]
        with Fails(FailureCode.SEQ_NUM_MISMATCH):
            await third.perform(appending(b"x", match=5))
        assert (await third.perform(appending(b"6", match=6))).start.seq_num == 6
        assert (await one.perform(appending(b"7", match=7))).start.seq_num == 7
        assert [body for _, _, body in await same_through(gateways.backs)] == [b"4", b"5", b"6", b"7"]


async def test_a_stream_that_another_gateway_has_deleted_is_another_one(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    async with three(segment, wall) as gateways, AsyncExitStack() as stack:
        one, other, third = gateways.backs
        for back in gateways.backs:
            await back.perform(appending(b"old"))
        follower = await stack.enter_async_context(third.read_session(Read(STREAM, FromTailOffset(0))))
        assert isinstance(await follower.next(), Following)
        await one.perform(DeleteStream(STREAM))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await other.perform(CheckTail(STREAM))
        await other.perform(CreateStream(STREAM))
        for number, back in enumerate(gateways.backs):
            assert (await back.perform(appending(b"new"))).start.seq_num == number
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await follower.next()
        assert [body for _, _, body in await same_through(gateways.backs)] == [b"new"] * 3


async def test_a_created_stream_keeps_what_another_gateway_appends_at_once(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    """A client may append as soon as the server has the stream, before the one that creates it is told."""
    segment.exists = False
    create = segment.create
    appended: list[Appended] = []

    async with three(segment, wall) as gateways:

        async def then_append(stream: Any) -> bool:
            made = await create(stream)
            if not appended:
                appended.append(await gateways.backs[1].perform(appending(b"x", timestamps=[NOW - 1])))
            return made

        segment.create = then_append  # type: ignore[method-assign]
        await gateways.backs[0].perform(CreateStream(STREAM))
        assert appended[0].start.seq_num == 0
        assert await same_through(gateways.backs) == [(0, NOW - 1, b"x")]


async def test_one_that_is_behind_gives_no_number_twice(
    autojump_clock: MockClock, native: FakeNative, wall: Wall
) -> None:
    """It has not read what the other one has stored meanwhile."""
    async with three(native, wall) as gateways:
        one, other, _ = gateways.backs
        await one.perform(appending(b"0"))
        async with other.append_session(STREAM) as session, trio.open_nursery() as nursery:
            gateways.ends[1].hears = trio.Event()
            await one.perform(appending(b"1", timestamps=[NOW + 3]))
            nursery.start_soon(session.send, appending(b"2", timestamps=[NOW + 1]))
            await trio.sleep(1)
            gateways.ends[1].hears.set()
            (appended,) = await session.receive()
            assert appended.start.seq_num == 2
            wall.now += 10
        found = await same_through(gateways.backs)
        assert [(seq_num, body) for seq_num, _, body in found] == [(0, b"0"), (1, b"1"), (2, b"2")]


async def test_one_that_reads_the_state_again_goes_on(
    autojump_clock: MockClock, native: FakeNative, wall: Wall
) -> None:
    """While it reads, it has less of the state than it had."""
    async with three(native, wall) as gateways, trio.open_nursery() as nursery:
        one, other, _ = gateways.backs
        async with one.read_session(Read(STREAM, FromSeqNum(0))) as session:
            tails: list[int] = []

            async def watch() -> None:
                while True:
                    tails.append(session.tail().seq_num)
                    await trio.sleep(0.003)

            nursery.start_soon(watch)
            for number in range(8):
                if number == 4:
                    gateways.ends[0].again = True
                await (one, other)[number % 2].perform(appending(b"%d" % number))
            found: list[Record] = []
            while len(found) < 8:
                more = await session.next()
                if more is not None and not isinstance(more, Following):
                    found += more.records()
            assert contents(found) == await same_through(gateways.backs)
            assert tails == sorted(tails)
            nursery.cancel_scope.cancel()


async def test_what_was_decided_before_another_gateway_was_faster_is_decided_again(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    """While the gateway reads what stands before its record, another one gives both their numbers, and timestamps."""
    async with three(segment, wall) as gateways:
        one, other, _ = gateways.backs
        await one.perform(CheckTail(STREAM))
        scan = segment.scan
        faster: list[int] = []

        async def outrun(*args: Any, **options: Any) -> Any:
            found = await scan(*args, **options)
            if not faster:
                faster.append(1)
                await trio.sleep(2)  # what the gateway has announced is not awaited any more
                segment.scan = scan  # type: ignore[method-assign]
                await other.perform(CheckTail(STREAM))
                await one.perform(CheckTail(STREAM))
            return found

        segment.store([b"by another client"])
        segment.scan = outrun  # type: ignore[method-assign]
        wall.now += 1000
        appended = await one.perform(appending(b"mine", timestamps=[NOW - 9]))
        found = await same_through(gateways.backs)
        assert (appended.start.seq_num, appended.start.timestamp) == found[1][:2]


async def test_one_that_is_behind_knows_that_a_stream_is_another_one(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    async with three(segment, wall) as gateways, trio.open_nursery() as nursery:
        one, other, _ = gateways.backs
        for back in (one, other):
            await back.perform(appending(b"old"))
        gateways.ends[1].hears = trio.Event()
        await one.perform(DeleteStream(STREAM))
        await one.perform(CreateStream(STREAM))
        for _ in range(3):
            await one.perform(appending(b"new"))
        found: list[list[Record]] = []

        async def read() -> None:
            found.append(await records(other, FromSeqNum(0), wait=0))

        nursery.start_soon(read)
        await trio.sleep(1)
        gateways.ends[1].hears.set()
        await eventually(lambda: bool(found))
        assert contents(found[0]) == [(number, NOW, b"new") for number in range(3)]


async def test_marks_are_as_dense_as_those_of_one_gateway(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read skips the records from the mark before, whichever gateway has appended them."""
    monkeypatch.setattr(numbered, "MARK_BYTES", 100)
    async with three(segment, wall) as gateways:
        for number in range(60):
            await gateways.backs[number % 3].perform(appending(b"%10d" % number, timestamps=[NOW - 1]))
        table = ByteTable(gateways.states[0], index_name("fake", STREAM))
        marks = len([key async for key, _ in table.items() if key[:1] in (b"c", b"m")])
        assert 60 * 18 / 130 < marks < 60 * 18 / 90


async def test_a_session_that_breaks_while_an_append_is_announced_ends(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    """Before, the client was never told, and readers waited in vain for the append from then on."""

    class Breaking(FakeSession):
        """A session that takes what is sent, and does nothing more, once it is broken."""

        async def send(self, append: Append) -> None:
            if not broken.is_set():
                await super().send(append)

        async def receive(self) -> list[NativeAck]:
            if not received:
                received.extend(await super().receive())
                return received
            await broken.wait()
            raise fail(FailureCode.UNAVAILABLE, "the connection was lost")

    @asynccontextmanager
    async def breaking(stream: StreamRef) -> AsyncIterator[FakeSession]:
        yield Breaking(segment)

    broken = trio.Event()
    received: list[NativeAck] = []
    async with three(segment, wall) as gateways, trio.open_nursery() as nursery:
        one = gateways.backs[0]
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(segment, "append_session", breaking)
            async with one.append_session(STREAM) as session:
                await session.send(appending(b"0"))
                assert len(await session.receive()) == 1
                await trio.sleep(RENEWED)
                gateways.ends[0].hears = trio.Event()
                nursery.start_soon(session.send, appending(b"1"))
                await trio.sleep(0.1)
                broken.set()
                await trio.sleep(0.1)
                gateways.ends[0].hears.set()
                await trio.sleep(0.1)
                with trio.fail_after(60), Fails(FailureCode.UNAVAILABLE):
                    await session.receive()
        segment.store([b"by another client"])
        await one.perform(CheckTail(STREAM))
        segment.store([b"by another client"])
        begun = trio.current_time()
        await one.perform(CheckTail(STREAM))
        assert trio.current_time() - begun < 1


async def test_a_slow_deletion_forgets_no_stream_that_was_created_since(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the index of the new stream was deleted, and its records got other timestamps."""
    forget = Creations.forget

    async def slow(self: Creations, stream: StreamRef, kept: int | None) -> None:
        monkeypatch.setattr(Creations, "forget", forget)
        await trio.sleep(1)
        await forget(self, stream, kept)

    async with three(segment, wall) as gateways, trio.open_nursery() as nursery:
        one, other, _ = gateways.backs
        await one.perform(appending(b"old"))
        monkeypatch.setattr(Creations, "forget", slow)
        nursery.start_soon(one.perform, DeleteStream(STREAM))
        await trio.sleep(0.5)
        await other.perform(CreateStream(STREAM))
        await one.perform(appending(b"new", timestamps=[NOW - 7]))
        await trio.sleep(1)
        assert await same_through(gateways.backs) == [(0, NOW - 7, b"new")]


class Deaf(FakeSession):
    """A session that hears no acknowledgement before it may."""

    def __init__(self, native: FakeNative) -> None:
        super().__init__(native)
        self.hears = trio.Event()

    async def receive(self) -> list[NativeAck]:
        await self.hears.wait()
        return await super().receive()


@asynccontextmanager
async def deaf_sessions(native: FakeNative, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Deaf]]:
    """Make all sessions of a server deaf, and list them."""
    made: list[Deaf] = []

    @asynccontextmanager
    async def session(stream: StreamRef) -> AsyncIterator[Deaf]:
        made.append(Deaf(native))
        yield made[-1]

    with monkeypatch.context() as patches:
        patches.setattr(native, "append_session", session)
        yield made


@pytest.mark.parametrize("expected", [False, True], ids=["", "expected"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("between", [0.0, 0.0005, 1.0])
async def test_appends_of_one_gateway_behind_a_gap_keep_their_timestamps(
    autojump_clock: MockClock,
    segment: FakeNative,
    wall: Wall,
    monkeypatch: pytest.MonkeyPatch,
    expected: bool,
    order: tuple[int, int],
    between: float,
) -> None:
    """Before, the second one, if it was the first to fill the gap, numbered the first one as one of another client."""
    async with three(segment, wall) as gateways:
        one, other, _ = gateways.backs
        await (other if expected else one).perform(appending(b"0", timestamps=[NOW - 20]))
        async with (
            deaf_sessions(segment, monkeypatch) as made,
            one.append_session(STREAM) as first,
            one.append_session(STREAM) as second,
        ):
            segment.store([b"by another client"])
            await first.send(appending(b"1", timestamps=[NOW - 9]))
            await second.send(appending(b"2", timestamps=[NOW - 3]))
            for at in order:
                made[at].hears.set()
                await trio.sleep(between)
            for session in (first, second):
                assert len(await session.receive()) == 1
        found = await same_through(gateways.backs)
        assert found[2:] == [(2, NOW - 9, b"1"), (3, NOW - 3, b"2")]


@pytest.mark.parametrize("others_write", [False, True])
async def test_a_gateway_that_has_not_appended_for_long_is_not_waited_for(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall, others_write: bool
) -> None:
    """Before, the first read of records of another client took `settle_seconds`, until the row was removed."""
    async with three(segment, wall) as gateways:
        one, other, _ = gateways.backs
        table = ByteTable(gateways.states[0], "#other")
        await table.put((b"", b""))
        await one.perform(appending(b"0"))
        await trio.sleep(0.1)
        for _ in range(40):
            if others_write:
                await table.put((b"", b""))
            await trio.sleep(0.2)
        segment.store([b"by another client"])
        begun = trio.current_time()
        assert (await other.perform(CheckTail(STREAM))).seq_num == 2
        assert trio.current_time() - begun < 1
