"""Numbered backs against a list, under random histories: appends by their clients and by others, trims, restarts. There
is one gateway, or several with the same state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.native import FakeNative, MemoryTables
from support.store import NOW, STREAM, Wall, appending, batches
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends.logged_tables import open_logged_tables
from penstock.backends.positions import index as index_module
from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings, numbered, open_indexed
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Locate,
    Start,
    Trim,
)
from penstock.model.records import RecordId


@pytest.fixture(autouse=True)
def dense(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Marks and pages so close that short histories have many."""
    monkeypatch.setattr(numbered, "MARK_RECORDS", 4)
    monkeypatch.setattr(index_module, "PAGE_MARKS", 3)
    monkeypatch.setattr(index_module, "CACHED_PAGES", 2)
    yield


class History:
    """A server, the gateways before it, its expected content, and all answers of the gateways so far."""

    def __init__(self, offsets: bool, exclusive: bool, gateways: int = 1) -> None:
        self.wall = Wall()
        self.native = FakeNative(self.wall, offsets)
        self.tables = MemoryTables()
        self.shared = SharedLog() if gateways > 1 else None
        self.gateways = gateways
        self.settings = IndexedSettings(exclusive=exclusive, settle_seconds=0.002)
        self.told: dict[int, tuple[RecordId, bytes]] = {}
        self.trim_point = 0
        self.backs: list[IndexedBack] = []
        self.back: IndexedBack
        self.count = 0

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Gateways over what is there; `back` is the one whose turn it is."""
        async with AsyncExitStack() as stack:
            self.backs = []
            for _ in range(self.gateways):
                state: Any = self.tables
                if self.shared is not None:
                    end = SharedLogEnd(self.shared, seconds=0)
                    state = await stack.enter_async_context(open_logged_tables(end, 1 << 20))
                back = open_indexed(self.native, "fake", state, self.settings, self.wall)
                self.backs.append(await stack.enter_async_context(back))
            self.back = self.backs[0]
            yield

    @property
    def end(self) -> int:
        return len(self.native.bodies)

    def learn(self, seq_num: int, record_id: RecordId, body: bytes) -> None:
        """Check a record that a client was told against the server's, and against all earlier answers about it."""
        assert self.told.setdefault(seq_num, (record_id, body)) == (record_id, body)
        assert body == self.native.bodies[seq_num]
        if not self.native.offsets:
            assert record_id == self.native.ids[seq_num]

    async def append(self, sizes: list[int], timestamps: list[int | None] | None, one_session: bool) -> None:
        """Batches by a client of the gateway, one after the other or pipelined."""
        appends = []
        for size in sizes:
            self.count += size
            bodies = [b"mine %d" % (self.count + index) for index in range(size)]
            given = None if timestamps is None else [*timestamps, *[None] * size][:size]
            appends.append(appending(*bodies, timestamps=given))
        first = self.end
        results = []
        if one_session:
            async with self.back.append_session(STREAM) as session:
                for append in appends:
                    await session.send(append)
                session.close()
                while found := await session.receive():
                    results += found
        else:
            results = [await self.back.perform(append) for append in appends]
        for append, appended in zip(appends, results, strict=True):
            assert appended.start.seq_num == first
            first += len(append.bodies)
            assert appended.end.seq_num == first and appended.tail.seq_num >= first
            assert appended.last_id is not None
            self.learn(first - 1, appended.last_id, append.bodies[-1])
        assert first == self.end

    async def read(self, start: Start, count: int | None) -> None:
        tail = await self.back.perform(CheckTail(STREAM))
        assert tail.seq_num == self.end
        first = await self.first_at(start)
        try:
            found = await batches(self.back, start, count=count, wait=0)
        except OperationFailed as error:
            assert error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE and first == self.end
            found = []
        numbers: list[int] = []
        for batch in found:
            for record, record_id in zip(batch.records(), batch.record_ids(), strict=True):
                self.learn(record.seq_num, record_id, record.body)
                assert record.timestamp == record_id.ms
                numbers.append(record.seq_num)
        end = self.end if count is None else min(self.end, first + count)
        assert numbers == list(range(first, end))
        told = [self.told[number][0] for number in sorted(self.told)]
        assert told == sorted(told)

    async def first_at(self, start: Start) -> int:
        """Return the number of the first retained record, according to the answers to all clients."""
        for number in range(self.trim_point, self.end):
            match start:
                case FromSeqNum(seq_num) if number >= seq_num:
                    return number
                case FromTailOffset(offset) if number >= self.end - offset:
                    return number
                case FromByteOffset(offset) if self.native.begins[number] >= offset:
                    return number
                case FromTimestamp() | FromRecordId():
                    record_id = await self._id_of(number)
                    wanted = (start.timestamp, 0) if isinstance(start, FromTimestamp) else start.record_id
                    if record_id >= wanted:
                        return number
        return self.end

    async def _id_of(self, number: int) -> RecordId:
        if number not in self.told:
            located = await self.back.perform(Locate(STREAM, FromSeqNum(number)))
            assert located.seq_num == number and located.record_id is not None
            self.learn(number, located.record_id, self.native.bodies[number])
        return self.told[number][0]


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)
given_times = st.none() | st.lists(st.none() | st.integers(NOW - 5, NOW + 20), min_size=1, max_size=3)
starts = st.one_of(
    st.builds(FromSeqNum, st.integers(0, 60)),
    st.builds(FromTailOffset, st.integers(0, 60)),
    st.builds(FromTimestamp, st.integers(NOW - 5, NOW + 40)),
    st.builds(FromRecordId, st.builds(RecordId, st.integers(NOW - 5, NOW + 40), st.integers(0, 8))),
)
steps = st.one_of(
    st.tuples(st.just("append"), sizes, given_times, st.booleans()),
    st.tuples(st.just("foreign"), st.integers(1, 5)),
    st.tuples(st.just("read"), starts, st.none() | st.integers(1, 8)),
    st.tuples(st.just("locate"), st.integers(0, 60)),
    st.tuples(st.just("trim"), starts.filter(lambda start: not isinstance(start, FromTailOffset))),
    st.tuples(st.just("cut"), st.integers(0, 60)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("tick"), st.integers(1, 5)),
    st.tuples(st.just("most"), st.integers(1, 4)),
    st.tuples(st.just("gateway"), st.integers(0, 2)),
)


async def run(history: History, script: list[tuple[object, ...]]) -> None:
    script = [*script, ("read", FromSeqNum(0), None), ("restart",)]
    while script:
        end = script.index(("restart",))
        async with history.started():
            for step in script[:end]:
                await carry_out(history, step)
        script = script[end + 1 :]


async def carry_out(history: History, step: tuple[object, ...]) -> None:
    match step:
        case ("append", list(batch), given, bool(together)):
            await history.append(batch, given, together)  # type: ignore[arg-type]
        case ("foreign", int(count)) if not history.settings.exclusive:
            history.native.store([b"other %d" % (history.end + index) for index in range(count)])
        case ("read", start, count):
            await history.read(start, count)  # type: ignore[arg-type]
        case ("locate", int(number)):
            if history.native.offsets and history.end:
                await history.read(FromByteOffset(history.native.begins[number % history.end]), 2)
        case ("trim", start):
            await history.read(FromSeqNum(0), 1)  # the back may not have seen the others' trims since its last call
            kept = await history.first_at(start)  # type: ignore[arg-type]
            position = await history.back.perform(Trim(STREAM, start))  # type: ignore[arg-type]
            history.trim_point = max(history.trim_point, kept)
            assert position.seq_num == history.trim_point
            assert history.native.first == history.trim_point
        case ("cut", int(number)) if not history.settings.exclusive:
            await history.back.perform(CheckTail(STREAM))  # records trimmed uncounted can never be numbered
            history.native.cut(min(number, history.end))
            history.trim_point = history.native.first
        case ("most", int(records)):  # a server may give fewer than it was asked for
            history.native.most = records
        case ("tick", int(ms)):
            history.wall.now += ms
        case ("gateway", int(number)):
            history.back = history.backs[number % history.gateways]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("offsets", [False, True])
@given(script=st.lists(steps, max_size=14))
@examples(share=2, least=20)
async def test_history(offsets: bool, exclusive: bool, script: list[tuple[object, ...]]) -> None:
    await run(History(offsets, exclusive), script)


@pytest.mark.parametrize("offsets", [False, True])
@given(script=st.lists(steps, max_size=14))
@examples(share=2, least=20)
async def test_history_of_several_gateways(offsets: bool, script: list[tuple[object, ...]]) -> None:
    await run(History(offsets, exclusive=False, gateways=3), script)
