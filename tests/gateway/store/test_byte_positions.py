"""Bytes of a stream against a model that is a string, under histories of all who append, truncations and restarts.

Positions are checked on the way: whatever a record is found by, the others come out.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.store import BASIN, STREAM, Fails, Wall, appending, bodies, fence, trim_record

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout, event_of, runs_of
from penstock.model.byte_operations import AppendBytes, ByteStreamInfo, GetByteStreamInfo, ReadBytes, Seal, Truncate
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.features import Feature, feature_of
from penstock.model.operations import (
    Append,
    CreateBasin,
    CreateStream,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTimestamp,
    Locate,
    Located,
    Trim,
)
from penstock.model.records import Header, Headers, RecordId, next_record_id

EXAMPLES = examples(share=8, least=5)
"""A history costs 30 to 100 ms."""
ALL = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY | Layout.ENVELOPE_COMMANDS
KEY = (Header(b"k", b"v"),)
BITS = {
    Feature.HEADERS: Layout.ENVELOPE_HEADERS,
    Feature.EMPTY_BODY: Layout.ENVELOPE_EMPTY,
    Feature.COMMAND: Layout.ENVELOPE_COMMANDS,
}


@dataclass
class Stored:
    """A record with its positions, and what was left out of its bytes."""

    record_id: RecordId
    body: bytes
    offset: int
    end: int
    features: list[Feature]
    left_out: list[Feature]


@dataclass
class Model:
    """A model of a stream's content, as simple as it can be while right."""

    envelopes: Layout
    records: list[Stored] = field(default_factory=list)
    data: bytes = b""
    trim_point: int = 0
    truncated_at: int = 0
    sealed: bool = False
    last_modified: int = 0

    def add(self, headers: Headers, body: bytes, layout: Layout, now: int) -> None:
        event = event_of(headers, body, layout)
        features: list[Feature] = []
        if layout & Layout.ENVELOPE_EMPTY or not layout & (Layout.SENT | Layout.RAW):
            feature = feature_of(headers, body)
            features = [feature] if feature else []
            if feature is Feature.HEADERS and not body and not layout & Layout.ENVELOPE_HEADERS:
                features.append(Feature.EMPTY_BODY)
        elif headers:
            features = [feature_of(headers, body)]  # type: ignore[list-item]  # it is unwrapped
        left_out = [feature for feature in features if not layout & BITS[feature]]
        record_id = next_record_id(self.records[-1].record_id if self.records else None, now)
        end = len(self.data) + len(event)
        self.records.append(Stored(record_id, body, len(self.data), end, features, left_out))
        self.data += event
        self.last_modified = now

    @property
    def start(self) -> int:
        """The first byte that is kept."""
        trimmed = self.records[self.trim_point].offset if self.trim_point < len(self.records) else len(self.data)
        return max(trimmed if self.trim_point else 0, self.truncated_at)

    def truncate(self, offset: int, now: int) -> None:
        if offset > self.start:
            self.truncated_at, self.last_modified = offset, now
            ended = sum(record.end <= offset for record in self.records)
            self.trim_point = max(self.trim_point, ended)

    def read(
        self, offset: int, max_bytes: int, refuse: frozenset[Feature]
    ) -> tuple[bytes, Counter[Feature], int | None]:
        """Data, what was left out of it, and the number of the record that is refused where it ends."""
        end = min(offset + max_bytes, len(self.data))
        dropped: Counter[Feature] = Counter()
        for number, record in enumerate(self.records[self.trim_point :], self.trim_point):
            if record.offset < offset and record.end <= offset:
                continue
            if record.offset >= end > offset:
                break
            if not refuse.isdisjoint(record.features):
                return self.data[offset : max(record.offset, offset)], dropped, number
            if record.offset >= offset:
                dropped.update(record.left_out)
        return self.data[offset:end], dropped, None


# ---- steps ---------------------------------------------------------------------------------------------------

BODIES = st.one_of(
    st.binary(max_size=4), st.just(b""), st.just(ENVELOPE_MARK), st.just(wrap((), b"")), st.just(wrap(KEY, b"b"))
)


@st.composite
def records(draw: st.DrawFn) -> Append:
    some = draw(st.lists(BODIES, min_size=1, max_size=5))
    heads = draw(st.dictionaries(st.integers(0, len(some) - 1), st.just(KEY), max_size=2))
    return appending(*some, headers=heads)


@dataclass(frozen=True)
class Events:
    bodies: list[bytes]


@dataclass(frozen=True)
class Raw:
    data: bytes


@dataclass(frozen=True)
class Page:
    """Read all there is, in pieces of these sizes."""

    sizes: list[int]
    refuse: frozenset[Feature]
    from_file: bool


@dataclass(frozen=True)
class Look:
    """At one place: `at` says where, out of 100."""

    at: int
    max_bytes: int


@dataclass(frozen=True)
class TruncateAt:
    at: int


@dataclass(frozen=True)
class TrimAt:
    at: int
    by_command: bool


@dataclass(frozen=True)
class Simple:
    """fence, seal, tick, purge or restart."""

    name: str


SHARE = st.integers(0, 100)
steps = st.one_of(
    records(),
    st.builds(Events, st.lists(BODIES, min_size=1, max_size=5)),
    st.builds(Raw, st.binary(min_size=1, max_size=12)),
    st.builds(
        Page,
        st.lists(st.integers(1, 30), min_size=1, max_size=3),
        st.sets(st.sampled_from(list(Feature)), max_size=1).map(frozenset),
        st.booleans(),
    ),
    st.builds(Look, SHARE, st.integers(1, 40)),
    st.builds(TruncateAt, SHARE),
    st.builds(TrimAt, SHARE, st.booleans()),
    st.builds(Simple, st.sampled_from(["fence", "seal", "tick", "tick", "purge", "purge", "restart", "restart"])),
)


class History:
    """A store, its model, and a clock that both go by."""

    def __init__(self, envelopes: Layout) -> None:
        self.model = Model(envelopes)
        self.wall = Wall()
        self.wall.now = self.model.last_modified = 10

    async def run(self, directory: Path, history: list[object]) -> None:
        rest = iter(history)
        opened = EmbeddedSettings(directory=directory, envelopes=self.model.envelopes)
        async with open_embedded(opened, self.wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
        more = True
        while more:
            async with open_embedded(opened, self.wall) as back:
                more = await self._until_restart(back, rest)
                await self._check(back)

    async def _until_restart(self, back: EmbeddedBack, rest: object) -> bool:
        for step in rest:  # type: ignore[attr-defined]
            match step:
                case Simple("restart"):
                    return True
                case Simple("purge"):
                    await back._store.sweeper.purge()
                case Simple("tick"):
                    self.wall.now += 1
                case Simple("seal"):
                    await self._seal(back)
                case Page():
                    await self._page(back, step)
                case Look(at, max_bytes):
                    await self._look(back, self._offset(at), max_bytes)
                case TruncateAt(at):
                    await self._truncate(back, self._offset(at))
                case _:
                    await self._append(back, step)
        return False

    def _offset(self, at: int) -> int:
        return len(self.model.data) * at // 100

    async def _append(self, back: EmbeddedBack, step: object) -> None:
        model, now = self.model, self.wall.now
        seq_num = 0
        match step:
            case Append():
                operation: Append | AppendBytes = step
            case Simple():
                operation = fence(b"")
            case TrimAt(at, by_command):
                seq_num = len(model.records) * at // 100
                if not by_command:
                    await back.perform(Trim(STREAM, FromSeqNum(seq_num)))
                    model.trim_point = max(model.trim_point, seq_num)
                    return
                operation = trim_record(seq_num)
            case Events(some):
                operation = AppendBytes(STREAM, join_events(some))
            case Raw(data):
                operation = AppendBytes(STREAM, data)
        if model.sealed:
            with Fails(FailureCode.STREAM_SEALED):
                await back.perform(operation)
            return
        appended = await back.perform(operation)
        if isinstance(operation, Append):
            for index, body in enumerate(operation.bodies):
                model.add(operation.headers.get(index, ()), body, model.envelopes, now)
        else:
            before = model.data
            for run in runs_of(operation.data, model.envelopes):
                for index, body in enumerate(run.bodies):
                    model.add(run.headers.get(index, ()), body, run.layout, now)
            assert model.data == before + operation.data
        model.trim_point = max(model.trim_point, min(seq_num, len(model.records)))
        assert appended.offset == len(model.data)

    async def _seal(self, back: EmbeddedBack) -> None:
        if not self.model.sealed:
            self.model.sealed, self.model.last_modified = True, self.wall.now
        assert await back.perform(Seal(STREAM)) == len(self.model.data)

    async def _truncate(self, back: EmbeddedBack, offset: int) -> None:
        self.model.truncate(offset, self.wall.now)
        assert await back.perform(Truncate(STREAM, offset)) == self.model.start
        with Fails(FailureCode.INVALID):
            await back.perform(Truncate(STREAM, len(self.model.data) + 1))

    async def _look(
        self, back: EmbeddedBack, offset: int, max_bytes: int, refuse: frozenset[Feature] = frozenset()
    ) -> int:
        """Read once, compare with the model, and return the offset at which to continue.

        Records left out at the end of a sealed stream are reported there.
        """
        model = self.model
        if offset < model.start:
            with Fails(FailureCode.OFFSET_TRUNCATED) as caught:
                await back.perform(ReadBytes(STREAM, offset, max_bytes, refuse=refuse))
            assert caught.failure.details == {"offset": model.start}
            return model.start
        data, dropped, refused = model.read(offset, max_bytes, refuse)
        if refused is not None and not data:
            with Fails(FailureCode.NOT_REPRESENTABLE) as caught:
                await back.perform(ReadBytes(STREAM, offset, max_bytes, refuse=refuse))
            assert caught.failure.details == {"seq_num": refused}
            return max(offset + 1, model.records[refused].end)
        found = await back.perform(ReadBytes(STREAM, offset, max_bytes, refuse=refuse))
        assert (found.offset, found.data) == (offset, data)
        assert found.at_tail == (offset + len(data) == len(model.data))
        assert found.end_of_stream == (model.sealed and not data)
        if data or model.sealed:
            assert found.dropped == dropped
        return offset + len(data)

    async def _page(self, back: EmbeddedBack, step: Page) -> None:
        if step.from_file:
            stream = back._store.registry.stream(STREAM)
            assert stream is not None
            while stream.recent._batches:
                stream.recent.drop_oldest()
        offset, turn = self.model.start, 0
        while offset < len(self.model.data):
            offset = await self._look(back, offset, step.sizes[turn % len(step.sizes)], step.refuse)
            turn += 1
        if offset == len(self.model.data):
            await self._look(back, offset, 1, step.refuse)

    async def _check(self, back: EmbeddedBack) -> None:
        """Everything, from the file, by the end of a history and before each restart."""
        model = self.model
        await self._page(back, Page([25], frozenset(), from_file=True))
        info = await back.perform(GetByteStreamInfo(STREAM))
        assert info == ByteStreamInfo(model.start, len(model.data), model.sealed, model.last_modified)
        kept = model.records[model.trim_point :]
        assert await self._bodies(back) == [record.body for record in kept]
        for number, record in enumerate(kept, model.trim_point):
            record_id = record.record_id
            expected = Located(number, record_id.ms, record_id, at_tail=False, offset=record.offset)
            assert await back.perform(Locate(STREAM, FromSeqNum(number))) == expected
            assert await back.perform(Locate(STREAM, FromRecordId(record_id))) == expected
            found = await back.perform(Locate(STREAM, FromByteOffset(record.offset)))
            first = min(index for index, other in enumerate(kept) if other.offset == record.offset)
            assert (found.seq_num, found.offset) == (model.trim_point + first, record.offset)
            if record.end > record.offset + 1:
                inside = await back.perform(Locate(STREAM, FromByteOffset(record.offset + 1)))
                assert (inside.seq_num, inside.offset) == (number + 1, record.end)
            at = await back.perform(Locate(STREAM, FromTimestamp(record_id.ms)))
            assert at.seq_num <= number
            assert at.timestamp == record_id.ms
        beyond = await back.perform(Locate(STREAM, FromByteOffset(len(model.data) + 1)))
        assert (beyond.at_tail, beyond.offset, beyond.seq_num) == (True, len(model.data), len(model.records))

    async def _bodies(self, back: EmbeddedBack) -> list[bytes]:
        try:
            return await bodies(back, FromByteOffset(0))
        except OperationFailed as error:
            assert error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            return []


@EXAMPLES
@given(st.sampled_from([Layout.PLAIN, ALL, Layout.ENVELOPE_HEADERS]), st.lists(steps, max_size=20))
def test_whatever_happens_the_bytes_are_those_of_the_model(envelopes: Layout, history: list[object]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(History(envelopes).run, Path(directory), history)
