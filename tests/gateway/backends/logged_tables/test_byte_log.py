"""Tables on a log in a stream of bytes: gateways that race, are slow or lose answers, and a log that cleans itself."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.backs import DecodedBack
from support.clocks import threads_hold
from support.examples import examples
from support.store import Fails
from support.store.table_histories import STEPS, Step, compare, count_up
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.backends.logged_tables import ByteLog, LoggedTables, TableState, byte_log, open_logged_tables
from penstock.core.back import Back
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo, ReadBytes, Truncate
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MIB
from penstock.model.operations import CreateBasin, CreateStream, DeleteStream
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)

LOG = StreamRef("state-of-gateways", "log")
TABLE = "#table"


class Store(DecodedBack):
    """The server that has the log. `lossy` is asked at each append: True loses the answer, False the request, None
    neither. Reads wait while `deaf` is set."""

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.lossy: Callable[[], bool | None] = lambda: None
        self.hears = trio.Event()
        self.hears.set()

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, ReadBytes):
            await self.hears.wait()
        lost = self.lossy() if isinstance(operation, AppendBytes) else None
        if lost is False:
            raise fail(FailureCode.UNAVAILABLE, "the request was lost")
        found = await super().perform(operation)
        if lost:
            raise fail(FailureCode.UNAVAILABLE, "the answer was lost")
        return found


@asynccontextmanager
async def new_store() -> AsyncIterator[Store]:
    with tempfile.TemporaryDirectory() as directory:
        async with open_embedded(EmbeddedSettings(directory=Path(directory))) as back:
            await back.perform(CreateBasin(LOG.basin, BasinConfig()))
            yield Store(back)


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with new_store() as opened:
        yield opened


@asynccontextmanager
async def gateways(*stores: Back, outdated: int = MIB, max_bytes: int = MIB) -> AsyncIterator[list[LoggedTables]]:
    """One gateway for each view of the store."""
    async with AsyncExitStack() as stack:
        logs = [ByteLog(store, LOG, "the store", 30.0, outdated) for store in stores]
        yield [await stack.enter_async_context(open_logged_tables(log, max_bytes)) for log in logs]


async def put(back: Back, key: bytes, value: bytes, version: int = ANY_VERSION) -> int:
    (now,) = await back.perform(UpdateTable(TABLE, (TableItem(key, value, version),)))
    return now


async def items(back: Back) -> dict[bytes, bytes]:
    return {item.key: item.value for item in (await back.perform(ListTable(TABLE))).items}


async def size_of(store: Back) -> int:
    info = await store.perform(GetByteStreamInfo(LOG))
    return info.length - info.start_offset


async def test_what_is_acknowledged_is_seen_through_every_gateway_and_after_a_restart(
    clock: MockClock, store: Store
) -> None:
    async with gateways(store, store, store) as (one, two, three):
        await one.perform(CreateTable(TABLE))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await two.perform(CreateTable(TABLE))
        version = await put(two, b"a", b"1", NOT_EXISTS)
        assert await three.perform(ReadTable(TABLE, (b"a", b"b"))) == (TableItem(b"a", b"1", version), None)
        with Fails(FailureCode.TABLE_KEY_VERSION):
            await put(one, b"a", b"2", NOT_EXISTS)
        await put(one, b"empty", b"")
        await three.perform(RemoveTableKeys(TABLE, (VersionedKey(b"a", version),)))
        assert await items(two) == {b"empty": b""}
        large = tuple(TableItem(b"%d" % number, bytes([number]) * 700_000) for number in range(5))
        with Fails(FailureCode.LIMIT_EXCEEDED):
            await two.perform(UpdateTable(TABLE, large))
    async with gateways(store, store, max_bytes=8 * MIB) as (again, other):
        versions = await again.perform(UpdateTable(TABLE, large))
        assert versions == tuple(range(versions[0], versions[0] + 5))
        found = await other.perform(ReadTable(TABLE, (b"0", b"4", b"empty")))
        assert found[1] == TableItem(b"4", large[4].value, versions[4]), "a frame of several reads"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
async def test_of_lost_requests_and_answers_each_change_is_made_once(clock: MockClock, store: Store, seed: int) -> None:
    """While the log is cleaned again and again."""
    dice = random.Random(seed)
    store.lossy = lambda: dice.choice([None, None, None, None, True, False])
    async with gateways(store, store, store, outdated=1) as backs:
        await backs[0].perform(CreateTable(TABLE))
        async with trio.open_nursery() as nursery:
            for back in backs:
                nursery.start_soon(count_up, back, TABLE, b"sum", 15)
        assert await items(backs[1]) == {b"sum": b"45"}
    async with gateways(store) as (again,):
        assert await items(again) == {b"sum": b"45"}


async def test_the_log_stays_short_and_keeps_every_version(
    clock: MockClock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old items move on with each cleaning, and removed ones do not come back."""
    monkeypatch.setattr(byte_log, "_READ", 10_000)
    async with gateways(store, store, outdated=20_000) as (one, other):
        for table in (TABLE, "#gone", "#other"):
            await one.perform(CreateTable(table))
        await one.perform(UpdateTable("#gone", (TableItem(b"x", bytes(3000)),)))
        await one.perform(DeleteTable("#gone"))
        kept = {b"kept-%d" % number: await put(one, b"kept-%d" % number, bytes(500)) for number in range(5)}
        await put(one, b"removed", b"x")
        await other.perform(RemoveTableKeys(TABLE, (VersionedKey(b"removed"),)))
        for number in range(120):
            newest = await put((one, other)[number % 2], b"often", b"%d" % number)
            await one.perform(UpdateTable("#other", (TableItem(b"often", bytes(1000)),)))
            assert (await other.perform(GetTableInfo(TABLE))).length == newest + 1
            assert await size_of(store) < 60_000
        assert (await store.perform(GetByteStreamInfo(LOG))).start_offset > 60_000
        expected = await other.perform(ListTable(TABLE))
    async with gateways(store, store) as (fresh, _):
        assert await fresh.perform(ListTable(TABLE)) == expected
        assert {item.key: item.version for item in expected.items if item.key in kept} == kept
        assert [item.key for item in expected.items] == [*sorted(kept), b"often"]
        assert await put(fresh, b"kept-1", b"", kept[b"kept-1"]) > kept[b"kept-1"]


def test_a_copy_of_an_old_record_changes_nothing() -> None:
    state = TableState(MIB)
    records = [(7, change) for change in state.decide(CreateTable(TABLE)).changes]
    state.apply(*records[0])
    for position, key in ((20, b"old"), (30, b"new")):
        records += [(position, one) for one in state.decide(UpdateTable(TABLE, (TableItem(key, b"x"),))).changes]
        state.apply(*records[-1])
    before = state.read(GetTableInfo(TABLE)), state.read(ListTable(TABLE)), state.size
    for record in records:
        assert state.is_newest(*record)
        state.apply(*record)
        assert (state.read(GetTableInfo(TABLE)), state.read(ListTable(TABLE)), state.size) == before


@pytest.mark.slow
async def test_frames_do_not_grow_when_they_are_copied(clock: MockClock, store: Store) -> None:
    """Large items that stay, and large changes beside them."""
    async with gateways(store, outdated=1, max_bytes=16 * MIB) as (back,):
        await back.perform(CreateTable(TABLE))
        for number in range(6):
            await put(back, b"kept-%d" % number, bytes(900_000))
        largest = 0
        for number in range(30):
            before = (await store.perform(GetByteStreamInfo(LOG))).length
            await put(back, b"often", b"%d" % number + bytes(900_000))
            largest = max(largest, (await store.perform(GetByteStreamInfo(LOG))).length - before)
        assert largest < 3 * MIB
        assert (await store.perform(GetByteStreamInfo(LOG))).start_offset > 6_000_000, "all that stays was copied"
        found = await back.perform(ReadTable(TABLE, (b"kept-0",)))
        assert found[0] is not None and len(found[0].value) == 900_000


async def test_a_gateway_that_was_too_slow_for_the_log_begins_again(clock: MockClock, store: Store) -> None:
    """It does not have an item that was removed in the meantime, although the log has the removal no more."""
    slow = Store(store)
    async with gateways(store, slow, outdated=10_000) as (fast, back):
        await fast.perform(CreateTable(TABLE))
        await put(fast, b"removed", b"1")
        assert await items(back) == {b"removed": b"1"}
        slow.hears = trio.Event()
        await trio.sleep(10)
        await fast.perform(RemoveTableKeys(TABLE, (VersionedKey(b"removed"),)))
        for number in range(100):
            await put(fast, b"often", b"%d" % number + bytes(1000))
        with Fails(FailureCode.HOT_SERVER):
            await items(back)
        slow.hears.set()
        assert sorted(await items(back)) == [b"often"]
        await put(back, b"more", b"")
        assert sorted(await items(fast)) == [b"more", b"often"]


@pytest.mark.parametrize("again", [False, True])
async def test_the_state_of_a_log_that_was_deleted_is_not_thrown_away(
    clock: MockClock, store: Store, again: bool
) -> None:
    """Before, all gateways went on with an empty state, and were ready."""
    async with gateways(store, store) as (one, other):
        await one.perform(CreateTable(TABLE))
        await put(one, b"a", b"1")
        assert await items(other) == {b"a": b"1"}
        with capture_logs() as logs:
            await store.perform(DeleteStream(LOG))
            if again:
                await store.perform(CreateStream(LOG))
                await store.perform(AppendBytes(LOG, bytes(10_000)))
            await trio.sleep(20)
            for back in (one, other):
                for operation in (ListTable(TABLE), CreateTable("#new"), UpdateTable(TABLE, (TableItem(b"b", b""),))):
                    with Fails(FailureCode.HOT_SERVER, "was deleted"):
                        await back.perform(operation)
                assert back.trouble is not None and "was deleted" in back.trouble
                assert back.peek(ListTable(TABLE)).items[0].value == b"1"
        assert [line["log_level"] for line in logs if line["event"] == "state_lost"] == ["error", "error"]
        async with gateways(store) as (fresh,):  # a person has restarted one
            if not again:
                await fresh.perform(CreateTable("#new"))
                await trio.sleep(20)
                assert one.trouble is not None and fresh.trouble is None


async def test_a_log_that_someone_else_truncated_is_a_reason_not_to_be_ready(clock: MockClock, store: Store) -> None:
    """Gateways that have its state go on; one that starts would not have all of it."""
    async with gateways(store, outdated=8 * MIB) as (back,):
        await back.perform(CreateTable(TABLE))
        await put(back, b"a", b"1")
        assert back.trouble is None
        await store.perform(Truncate(LOG, (await store.perform(GetByteStreamInfo(LOG))).length))
        await trio.sleep(20)
        assert back.trouble is not None and "were truncated" in back.trouble
        await put(back, b"b", b"2")
        assert await items(back) == {b"a": b"1", b"b": b"2"}
        async with gateways(store, outdated=8 * MIB) as (fresh,):
            with Fails(FailureCode.HOT_SERVER, "were truncated"):
                await fresh.perform(CreateTable("#new"))


async def test_a_stream_of_something_else_is_refused(clock: MockClock, store: Store) -> None:
    await store.perform(CreateStream(LOG))
    await store.perform(AppendBytes(LOG, b"not what a gateway has written"))
    async with gateways(store) as (back,):
        with Fails(FailureCode.HOT_SERVER, "at offset 0 is no state of a gateway"):
            await back.perform(CreateTable(TABLE))
        await trio.sleep(60)
        assert back.trouble is not None and "no state of a gateway" in back.trouble


async def test_a_truncation_that_fails_delays_nothing(clock: MockClock, store: Store) -> None:
    class Full(Store):
        async def perform(self, operation: Any) -> Any:
            if isinstance(operation, Truncate):
                raise fail(FailureCode.UNAVAILABLE, "not now")
            return await super().perform(operation)

    async with gateways(Full(store), store, outdated=1) as (one, other):
        await one.perform(CreateTable(TABLE))
        await put(one, b"kept", b"")
        for number in range(20):
            await put(one, b"often", b"%d" % number)
        before = await size_of(store)
        for number in range(20):
            await put(other, b"often", b"%d" % number)
        assert await size_of(store) < before
        assert await items(one) == {b"kept": b"", b"often": b"19"}


@pytest.mark.slow
@examples(share=4, least=10)
@given(STEPS, st.randoms(use_true_random=False))
def test_whatever_happens_the_tables_are_those_of_one_store(history: list[Step], dice: random.Random) -> None:
    """Also if requests and answers are lost, and the log is cleaned with every change."""

    async def run() -> None:
        async with new_store() as store:
            store.lossy = lambda: dice.choice([None, None, True, False])
            async with gateways(store, store, outdated=-4096) as backs:
                await compare(backs, history)

    _run(run)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        trio.run(main, clock=threads_hold(MockClock(), patch))


@pytest.mark.parametrize("body", [b"short", struct.pack(">qIi", -1, 1 << 20, 5) + b"cut off"], ids=["short", "cut off"])
async def test_a_damaged_frame_is_a_reason_not_to_be_ready(clock: MockClock, store: Store, body: bytes) -> None:
    """Before, the gateway ended, and so at each start."""
    await store.perform(CreateStream(LOG))
    frame = b"PSTL" + struct.pack(">I", 8 + len(body)) + bytes(8) + body
    await store.perform(AppendBytes(LOG, frame, match_offset=0))
    async with gateways(store) as (back,):
        with Fails(FailureCode.HOT_SERVER, "at offset 0 is no state of a gateway"):
            await back.perform(CreateTable(TABLE))
        assert "at offset 0 is no state of a gateway" in str(back.trouble)
