"""The store against a model that is a list, under random histories of appends, trims, reads and restarts."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.store import BASIN, STREAM, Wall, appending, batches, fence, trim_record

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Locate,
    Start,
    Trim,
)
from penstock.model.records import U64_MAX, Headers, Record, RecordId, metered_size, next_record_id

EXAMPLES = examples(share=8, least=5)
"""A history costs 30 to 100 ms."""


@dataclass
class Model:
    """A model of a stream's content, as simple as it can be while right."""

    records: list[tuple[RecordId, Headers, bytes]] = field(default_factory=list)
    trim_point: int = 0
    token: str = ""

    def append(self, append: Append, now: int) -> None:
        last = self.records[-1][0] if self.records else None
        for index, body in enumerate(append.bodies):
            given = None if append.timestamps is None else append.timestamps[index]
            wanted = now if given is None else min(given, now)
            if append.exact_timestamp is not None:
                wanted = append.exact_timestamp
            last = next_record_id(last, wanted)
            self.records.append((last, append.headers.get(index, ()), body))

    def trim(self, seq_num: int) -> None:
        self.trim_point = max(self.trim_point, min(seq_num, len(self.records)))

    def first_at(self, start: Start) -> int:
        """The first retained record at or after `start`."""
        for number in range(self.trim_point, len(self.records)):
            found = self.records[number][0]
            match start:
                case FromSeqNum(seq_num) if number >= seq_num:
                    return number
                case FromTailOffset(offset) if number >= len(self.records) - offset:
                    return number
                case FromTimestamp(timestamp) if found.ms >= timestamp:
                    return number
                case FromRecordId(record_id) if found >= record_id:
                    return number
        return len(self.records)

    def expected(self, start: Start, count: int | None, max_bytes: int | None, until: int | None) -> list[Record]:
        """Return the records of a bounded read."""
        found: list[Record] = []
        size = 0
        for number in range(self.first_at(start), len(self.records)):
            record_id, headers, body = self.records[number]
            size += metered_size((body,), {0: headers})
            stop = (
                (count is not None and len(found) >= count)
                or (max_bytes is not None and size > max_bytes)
                or (until is not None and record_id.ms >= until)
            )
            if stop:
                break
            found.append(Record(number, record_id.ms, headers, body))
        return found


SMALL_TIMES = st.integers(0, 30)
times = st.one_of(SMALL_TIMES, SMALL_TIMES, st.sampled_from([2**63 - 1, 2**63, U64_MAX]))
payloads = st.lists(st.binary(max_size=3), min_size=1, max_size=5)
starts: st.SearchStrategy[Start] = st.one_of(
    st.builds(FromSeqNum, st.integers(0, 25)),
    st.builds(FromTailOffset, st.integers(0, 25)),
    st.builds(FromTimestamp, times),
    st.builds(FromRecordId, st.builds(RecordId, times, st.integers(0, 6))),
)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    bodies = draw(payloads)
    exact = draw(st.none() | st.none() | times)
    timestamps = draw(st.none() | st.lists(st.none() | times, min_size=len(bodies), max_size=len(bodies)))
    match = draw(st.none() | st.none() | st.integers(0, 12))
    token = draw(st.none() | st.none() | st.sampled_from(["", "a"]))
    return appending(*bodies, timestamps=timestamps, exact=exact, match=match, token=token)


@dataclass(frozen=True)
class ReadStep:
    start: Start
    count: int | None
    max_bytes: int | None
    until: int | None
    from_file: bool


@dataclass(frozen=True)
class AdvanceClock:
    by: int


@dataclass(frozen=True)
class Fence:
    token: str


@dataclass(frozen=True)
class TrimRecord:
    seq_num: int


class Restart:
    pass


class Purge:
    pass


limits = st.none() | st.integers(0, 12)
read_steps = st.builds(ReadStep, starts, limits, st.none() | st.integers(0, 99), st.none() | times, st.booleans())
steps = st.one_of(
    appends(),
    appends(),
    st.lists(appends(), min_size=2, max_size=4),
    read_steps,
    read_steps,
    st.builds(Trim, st.just(STREAM), starts.filter(lambda start: not isinstance(start, FromTailOffset))),
    st.builds(TrimRecord, st.integers(0, 25)),
    st.builds(Fence, st.sampled_from(["", "a"])),
    st.builds(AdvanceClock, st.integers(-10, 20)),
    st.builds(Restart),
    st.builds(Purge),
)


class History:
    """A store, its model, and a clock that both go by."""

    def __init__(self) -> None:
        self.model = Model()
        self.wall = Wall()
        self.wall.now = 10

    async def run(self, directory: Path, history: list[object]) -> None:
        rest = iter(history)
        opened = EmbeddedSettings(directory=directory)
        async with open_embedded(opened, self.wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
        more = True
        while more:
            async with open_embedded(opened, self.wall) as back:
                more = await self._until_restart(back, rest)
                for start in (FromSeqNum(0), FromTimestamp(11), FromRecordId(RecordId(12, 1))):
                    await self.read(back, ReadStep(start, None, None, U64_MAX, from_file=True))

    async def _until_restart(self, back: EmbeddedBack, rest: object) -> bool:
        for step in rest:  # type: ignore[attr-defined]
            match step:
                case Restart():
                    return True
                case Purge():
                    await back._store.sweeper.purge()
                case AdvanceClock(by):
                    self.wall.now = max(self.wall.now + by, 0)
                case Append():
                    await self.append(back, step)
                case list():
                    await self.append_together(back, step)
                case Fence(token):
                    await self.append(back, fence(token.encode()))
                    self.model.token = token
                case TrimRecord(seq_num):
                    await self.append(back, trim_record(seq_num))
                    self.model.trim(seq_num)
                case Trim(_, start):
                    self.model.trim(start.seq_num if isinstance(start, FromSeqNum) else self.model.first_at(start))
                    assert (await back.perform(step)).seq_num == self.model.trim_point
                case ReadStep():
                    await self.read(back, step)
        return False

    def verdict(self, append: Append) -> FailureCode | None:
        last = self.model.records[-1][0].ms if self.model.records else 0
        if append.fencing_token not in (None, self.model.token):
            return FailureCode.FENCING_TOKEN_MISMATCH
        if append.match_seq_num not in (None, len(self.model.records)):
            return FailureCode.SEQ_NUM_MISMATCH
        if append.exact_timestamp is not None and append.exact_timestamp < last:
            return FailureCode.NON_MONOTONIC_TIMESTAMP
        return None

    async def append(self, back: EmbeddedBack, append: Append) -> None:
        expected = self.verdict(append)
        try:
            appended = await back.perform(append)
        except OperationFailed as error:
            assert error.failure.code is expected
            return
        assert expected is None
        assert appended.start.seq_num == len(self.model.records)
        self.model.append(append, self.wall.now)
        assert appended.last_id == self.model.records[-1][0]
        tail = await back.perform(CheckTail(STREAM))
        assert appended.end == appended.tail == tail == (len(self.model.records), self.model.records[-1][0].ms)

    async def append_together(self, back: EmbeddedBack, together: list[Append]) -> None:
        """In a session, pipelined: all up to the first that fails."""
        async with back.append_session(STREAM) as session:
            for append in together:
                await session.send(append)
            session.close()
            acknowledged = 0
            try:
                while ready := await session.receive():
                    acknowledged += len(ready)
            except OperationFailed as error:
                code: FailureCode | None = error.failure.code
            else:
                code = None
        for append in together[:acknowledged]:
            assert self.verdict(append) is None
            self.model.append(append, self.wall.now)
        assert (acknowledged == len(together)) == (code is None)
        if code is not None:
            assert self.verdict(together[acknowledged]) is code

    async def read(self, back: EmbeddedBack, step: ReadStep) -> None:
        if isinstance(step.start, FromTimestamp) and step.until is not None and step.start.timestamp >= step.until:
            return
        stream = back._store.registry.stream(STREAM)
        assert stream is not None
        if step.from_file:
            stream.recent._batches.clear()
            stream.recent._joined.clear()
        located = await back.perform(Locate(STREAM, step.start))
        number = self.model.first_at(step.start)
        assert (located.seq_num, located.at_tail) == (number, number == len(self.model.records))
        if not located.at_tail:
            assert located.record_id == self.model.records[number][0]
        bounds = {"count": step.count, "max_bytes": step.max_bytes, "until": step.until}
        try:
            found = await batches(back, step.start, wait=0, **bounds)
        except OperationFailed as error:
            assert error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            assert not self.model.expected(step.start, None, None, None) or step.start == FromTailOffset(0)
            return
        assert not (located.at_tail and isinstance(step.start, FromTimestamp) and step.count)
        records = [record for batch in found for record in batch.records()]
        assert records == self.model.expected(step.start, step.count, step.max_bytes, step.until)
        ids = [record_id for batch in found for record_id in batch.record_ids()]
        assert ids == [self.model.records[record.seq_num][0] for record in records]


@EXAMPLES
@given(st.lists(steps, max_size=25))
def test_whatever_happens_the_store_says_what_the_model_says(history: list[object]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(History().run, Path(directory), history)
