"""Tables on a log that several gateways share, in memory: with answers and requests that are lost, and compacted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.examples import examples
from support.store import STREAM, Fails
from support.store.shared_log import SharedLog, SharedLogEnd
from support.store.table_histories import STEPS, Step, compare, count_up
from trio.testing import MockClock

from penstock.backends.logged_tables import (
    GuardedChange,
    LoggedTables,
    LogNews,
    TableChange,
    TableState,
    open_logged_tables,
)
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import Capability, CheckTail
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)

TABLE = "#table"


@asynccontextmanager
async def gateways(shared: SharedLog, count: int = 2, max_bytes: int = MIB) -> AsyncIterator[list[LoggedTables]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), max_bytes)) for _ in range(count)
        ]


async def put(back: Back, key: bytes, value: bytes, version: int = ANY_VERSION) -> int:
    (now,) = await back.perform(UpdateTable(TABLE, (TableItem(key, value, version),)))
    return now


async def items(back: Back, table: str = TABLE) -> dict[bytes, bytes]:
    return {item.key: item.value for item in (await back.perform(ListTable(table))).items}


async def test_what_is_acknowledged_is_seen_through_every_gateway(autojump_clock: MockClock) -> None:
    async with gateways(SharedLog(), 3) as (one, two, three):
        assert one.capabilities == {Capability.TABLES}
        await one.perform(CreateTable(TABLE))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await two.perform(CreateTable(TABLE))
        version = await put(two, b"a", b"1", NOT_EXISTS)
        assert await three.perform(ReadTable(TABLE, (b"a", b"b"))) == (TableItem(b"a", b"1", version), None)
        assert await put(three, b"a", b"2", version) > version
        with Fails(FailureCode.TABLE_KEY_VERSION):
            await one.perform(RemoveTableKeys(TABLE, (VersionedKey(b"a", version),)))
        await one.perform(RemoveTableKeys(TABLE, (VersionedKey(b"a"),)))
        assert await items(two) == {}
        await two.perform(DeleteTable(TABLE, must_be_empty=True))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await three.perform(GetTableInfo(TABLE))
        with Fails(FailureCode.NOT_IMPLEMENTED, "no embedded store"):
            await one.perform(CheckTail(STREAM))


async def test_a_deleted_table_leaves_nothing_in_the_log(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    async with gateways(shared) as (one, other):
        for _ in range(2):
            await one.perform(CreateTable(TABLE))
            await put(one, b"a", b"1")
            await other.perform(DeleteTable(TABLE))
        await one.perform(CreateTable(TABLE))
        assert await items(other) == {}
        await put(other, b"b", b"2")
        assert await items(one) == {b"b": b"2"}
        shared.compact()
        assert sum(len(batch.changes) for batch in shared.batches) == 2


async def test_what_a_deleted_table_leaves_is_removed_in_batches_that_the_log_takes(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    async with gateways(shared, 1, max_bytes=64 * MIB) as (back,):
        await back.perform(CreateTable(TABLE))
        keys = [b"%04d" % number * 2_000 for number in range(1_000)]
        for at in range(0, len(keys), 100):
            await back.perform(UpdateTable(TABLE, tuple(TableItem(key, b"") for key in keys[at : at + 100])))
        await back.perform(DeleteTable(TABLE))
        await back.perform(CreateTable("#other"))
        for _ in range(200):
            await back.perform(UpdateTable("#other", (TableItem(b"key", b""),)))
        shared.compact()
        assert sum(len(batch.changes) for batch in shared.batches) == 2


async def test_changes_of_other_keys_go_together_and_those_of_one_key_in_turn(autojump_clock: MockClock) -> None:
    shared, wins = SharedLog(), 0

    async def create(back: Back) -> None:
        nonlocal wins
        try:
            await put(back, b"contested", b"", NOT_EXISTS)
            wins += 1
        except OperationFailed as error:
            assert error.failure.code is FailureCode.TABLE_KEY_VERSION

    async with gateways(shared) as (one, other):
        await one.perform(CreateTable(TABLE))
        await items(other)
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(put, one, b"%d" % number, b"")
        assert len(shared.batches) < 10
        async with trio.open_nursery() as nursery:
            for back in (one, other) * 10:
                nursery.start_soon(create, back)
        assert wins == 1
        info = await other.perform(GetTableInfo(TABLE))
        assert info.entries == 101
        await put(one, b"more", b"")
        with Fails(FailureCode.OFFSET_MISMATCH):
            await other.perform(UpdateTable(TABLE, (TableItem(b"x", b""),), info.length))
        delta = await other.perform(ReadTableDelta(TABLE, info.length, 10))
        assert [item.key for item in delta.items] == [b"more"]


async def test_a_guard_is_a_key_of_any_table(autojump_clock: MockClock) -> None:
    async with gateways(SharedLog()) as (one, other):
        for table in (TABLE, "#other"):
            await one.perform(CreateTable(table))
        owned = await put(one, b"owner", b"one")
        update = UpdateTable("#other", (TableItem(b"a", b"1"),))
        await one.perform(GuardedChange(update, TABLE, b"owner", owned))
        await put(other, b"owner", b"other")
        for change in (update, DeleteTable("#other")):
            with Fails(FailureCode.HOT_SERVER, "owner"):
                await one.perform(GuardedChange(change, TABLE, b"owner", owned))
        assert await items(other, "#other") == {b"a": b"1"}


async def test_memory_and_single_changes_are_bounded(autojump_clock: MockClock) -> None:
    async with gateways(SharedLog(), 1, max_bytes=100_000) as (back,):
        await back.perform(CreateTable(TABLE))
        await put(back, b"a", bytes(50_000))
        with Fails(FailureCode.LIMIT_EXCEEDED, "at most 100000"):
            await put(back, b"b", bytes(50_000))
        for size in (50_000, 49_000, 60_000):  # it is replaced
            await put(back, b"a", bytes(size))
        with Fails(FailureCode.LIMIT_EXCEEDED):
            await put(back, b"a", bytes(100_000))
        await back.perform(RemoveTableKeys(TABLE, (VersionedKey(b"a"),)))
        await put(back, b"b", bytes(50_000))
    async with gateways(SharedLog(), 1, max_bytes=64 * MIB) as (back,):
        await back.perform(CreateTable(TABLE))
        large = tuple(TableItem(b"%d" % number, bytes(1_000_000)) for number in range(5))
        with Fails(FailureCode.LIMIT_EXCEEDED, "at once"):
            await back.perform(UpdateTable(TABLE, large))


async def test_a_gateway_that_always_writes_gives_way_to_slower_ones(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    async with (
        open_logged_tables(SharedLogEnd(shared, 0.001), MIB) as busy,
        open_logged_tables(SharedLogEnd(shared, 0.0015), MIB) as other,
        trio.open_nursery() as nursery,
    ):
        await busy.perform(CreateTable(TABLE))
        written = 0

        async def write() -> None:
            nonlocal written
            while True:
                await put(busy, b"busy", b"")
                written += 1

        nursery.start_soon(write)
        before = trio.current_time()
        for _ in range(10):
            await put(other, b"other", b"")
        took = trio.current_time() - before
        assert took < 10 * 0.3
        assert written > 0.9 * took / 0.002, "it rests seldom"
        nursery.cancel_scope.cancel()


async def test_what_stays_in_doubt_is_reported_so(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    async with gateways(shared) as (one, other):
        await one.perform(CreateTable(TABLE))
        shared.lossy = lambda: False
        with Fails(FailureCode.UNAVAILABLE):
            await put(one, b"a", b"1")
        shared.lossy = lambda: None
        await put(one, b"a", b"2", NOT_EXISTS)
        assert await items(other) == {b"a": b"2"}


class Unreachable(SharedLogEnd):
    """An end of the log that cannot be read while `why` is set."""

    def __init__(self, shared: SharedLog, why: FailureCode | None) -> None:
        super().__init__(shared)
        self.why = why

    async def read(self) -> LogNews:
        if self.why is not None:
            raise fail(self.why, "at 192.0.2.1: no")
        with trio.move_on_after(1):
            return await super().read()
        return LogNews((), await self.end())


class Lost(SharedLogEnd):
    """An end of a log that is lost when it is asked for its end while `armed`: it is read again from its beginning, at
    first only so many batches. `seconds`: time until the question is answered, with the end of those."""

    def __init__(self, shared: SharedLog, first: int, seconds: float) -> None:
        super().__init__(shared)
        self.armed = False
        self._first = shared.batches[:first]
        self._lost = trio.Event()
        self._seconds = seconds

    async def read(self) -> LogNews:
        if not self._begun:
            return await super().read()
        await self._lost.wait()
        if self._read:
            self._read = 0
            return LogNews(self._first, len(self._first), restarted=True)
        await trio.sleep(2)
        self._lost = trio.Event()
        return await super().read()

    async def end(self) -> int:
        if self.armed:
            self.armed = False
            self._lost.set()
            if self._seconds:
                await trio.sleep(self._seconds)
                return len(self._first)
        return self._shared.end


@pytest.mark.parametrize(("first", "seconds"), [(0, 0), (1, 1)])
async def test_a_log_that_is_lost_while_its_end_is_looked_for_is_read_to_its_end_again(
    autojump_clock: MockClock, first: int, seconds: float
) -> None:
    """Before, an operation could be decided on tables of which nothing, or only a part, had been read."""
    for _ in range(20):  # the order of tasks that can go on is random
        shared = SharedLog()
        async with gateways(shared, 1) as (other,):
            await other.perform(CreateTable(TABLE))
            await put(other, b"a", b"1")
        end = Lost(shared, first, seconds)
        async with open_logged_tables(end, MIB) as back:
            await items(back)
            end.armed = True
            assert await items(back) == {b"a": b"1"}
            end.armed = True
            with Fails(FailureCode.TABLE_KEY_VERSION):
                await put(back, b"a", b"2", 7)


class Emptied(SharedLogEnd):
    """An end of a log that is replaced by an empty one when it is first appended to."""

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(shared)
        self._emptied, self._told = trio.Event(), False

    async def read(self) -> LogNews:
        if not self._begun or self._told:
            return await super().read()
        await self._emptied.wait()
        self._told = True
        return LogNews((), 0, restarted=True)

    async def append(self, author: bytes, changes: Sequence[TableChange], state: TableState) -> int | None:
        if self._emptied.is_set():
            return await super().append(author, changes, state)
        self._shared.batches, self._shared.end, self._read = [], 0, 0
        self._emptied.set()
        raise fail(FailureCode.UNAVAILABLE, "the log was deleted")


async def test_a_change_is_decided_again_if_the_log_is_emptied_while_it_is_made(autojump_clock: MockClock) -> None:
    """Before, an item was appended for a table that the new log does not have."""
    shared = SharedLog()
    async with gateways(shared, 1) as (other,):
        await other.perform(CreateTable(TABLE))
    async with open_logged_tables(Emptied(shared), MIB) as back:
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await put(back, b"a", b"1")
        assert shared.batches == []


@pytest.mark.parametrize("operation", [CreateTable(TABLE), ReadTable(TABLE, (b"a",))], ids=["change", "read"])
async def test_a_task_that_waits_in_spite_of_cancellation_ends_with_the_gateway(
    autojump_clock: MockClock, operation: Any
) -> None:
    """A position index does while it is written. Before, the gateway never stopped then."""
    told: list[str] = []

    async def stubborn(back: Back) -> None:
        with trio.CancelScope(shield=True):
            try:
                await back.perform(operation)
            except OperationFailed as error:
                told.append(str(error))

    with trio.fail_after(60):
        with trio.move_on_after(1):
            async with (
                open_logged_tables(SharedLogEnd(SharedLog(), seconds=10), MIB) as back,
                trio.open_nursery() as tasks,
            ):
                tasks.start_soon(stubborn, back)
                tasks.start_soon(stubborn, back)
        with Fails(FailureCode.HOT_SERVER, "the gateway stops"):
            await back.perform(operation)
    assert told == ["unavailable: the gateway stops, and its state is no longer at hand"] * 2


async def test_a_gateway_waits_for_its_state_and_says_so(autojump_clock: MockClock) -> None:
    """Before its state was read once it is in trouble at once, and later after `recover_seconds`."""
    shared = SharedLog()
    async with gateways(shared) as (other, _):
        await other.perform(CreateTable(TABLE))
        await put(other, b"a", b"1")
    end = Unreachable(shared, FailureCode.HOT_SERVER)
    with capture_logs() as lines:
        async with open_logged_tables(end, MIB) as back:
            assert back.trouble == "the gateway's state is being read from the shared log"
            for _ in range(3):
                await trio.sleep(20)
                assert back.trouble == "the gateway's state cannot be read: at 192.0.2.1: no"
            with Fails(FailureCode.HOT_SERVER, "the gateway's state cannot be read: at 192.0.2.1"):
                await items(back)
            end.why = FailureCode.STORAGE
            await trio.sleep(20)
            end.why = None
            await trio.sleep(5)
            assert back.trouble is None, "without a question of any client"
            assert await items(back) == {b"a": b"1"}
            end.why = FailureCode.HOT_SERVER
            await trio.sleep(20)
            assert back.trouble is None
            await trio.sleep(20)
            assert back.trouble == "the gateway's state cannot be read: at 192.0.2.1: no"
    told = [(line["event"], line["where"], line.get("reason")) for line in lines]
    waiting = [("waiting_for_state", end.where, f"{why}: at 192.0.2.1: no") for why in ("hot_server", "storage")]
    assert told == [*waiting, ("state_reached", end.where, None), waiting[0]]


@pytest.mark.parametrize("seed", range(5))
async def test_of_lost_requests_and_answers_each_change_is_made_once(autojump_clock: MockClock, seed: int) -> None:
    """Three gateways add to one number, with a third of all requests or answers lost, and a compaction now and then."""
    dice = random.Random(seed)
    shared = SharedLog(lambda: dice.choice([None, None, None, None, True, False]))

    async with gateways(shared, 3) as backs:
        await backs[0].perform(CreateTable(TABLE))
        async with trio.open_nursery() as nursery:
            for back in backs:
                nursery.start_soon(count_up, back, TABLE, b"sum", 20)
        assert await items(backs[1]) == {b"sum": b"60"}
    shared.compact()
    async with gateways(shared, 1) as (again,):
        assert await items(again) == {b"sum": b"60"}


@examples(share=4, least=10)
@given(STEPS, st.randoms(use_true_random=False))
def test_whatever_happens_the_tables_are_those_of_one_store(history: list[Step], dice: random.Random) -> None:
    """Also if requests and answers are lost."""

    async def run() -> None:
        async with gateways(SharedLog(lambda: dice.choice([None, None, True, False]))) as backs:
            await compare(backs, history)

    trio.run(run, clock=MockClock(autojump_threshold=0))


class Unheard(SharedLogEnd):
    """An end of the log that takes batches, and gives none back once `deaf`."""

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(shared)
        self.deaf = False

    async def read(self) -> LogNews:
        found = await super().read()
        if self.deaf:
            await trio.sleep_forever()
        return found


async def test_a_change_that_is_in_the_log_and_cannot_be_read_back_is_in_doubt(autojump_clock: MockClock) -> None:
    """Before, it was refused with an error that says that nothing was changed."""
    shared = SharedLog()
    end = Unheard(shared)
    async with gateways(shared, 1) as (other,), open_logged_tables(end, MIB) as back:
        await back.perform(CreateTable(TABLE))
        end.deaf = True
        with Fails(FailureCode.UNAVAILABLE):
            await put(back, b"a", b"1")
        assert await items(other) == {b"a": b"1"}


class Halved(SharedLogEnd):
    """An end of the log that loses the answer to an append once `armed`, and is then read again from its beginning, at
    first one batch."""

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(shared)
        self.armed = False
        self._again = trio.Event()

    async def read(self) -> LogNews:
        if not self._begun:
            return await super().read()
        if self._again.is_set():
            self._again = trio.Event()
            await trio.sleep(1)
            self._read = len(self._shared.batches)
            return LogNews(self._shared.batches[1:], self._shared.end)
        if self.armed:
            await self._again.wait()
            return LogNews(self._shared.batches[:1], 1, restarted=True)
        with trio.move_on_after(0.01):
            return await super().read()
        return LogNews((), self._shared.end)

    async def append(self, author: bytes, changes: Sequence[TableChange], state: TableState) -> int | None:
        found = await super().append(author, changes, state)
        if self.armed:
            self._again.set()
            raise fail(FailureCode.UNAVAILABLE, "the answer was lost")
        return found


async def test_a_change_is_found_further_on_in_a_log_that_is_read_again(autojump_clock: MockClock) -> None:
    """Before, it was decided again, and refused because of itself."""
    end = Halved(SharedLog())
    async with open_logged_tables(end, MIB) as back:
        await back.perform(CreateTable(TABLE))
        await put(back, b"a", b"1")
        end.armed = True
        await trio.sleep(1)
        assert await put(back, b"b", b"2", NOT_EXISTS) == 2
        end.armed = False
        assert await items(back) == {b"a": b"1", b"b": b"2"}
