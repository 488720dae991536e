"""The store against a model that is a list of pieces of bytes, under random histories of all that appends and cuts."""

import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.store import BASIN, STREAM, Unwritable, Wall, appending, bodies

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events, split_events
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    Merged,
    ReadBytes,
    Seal,
    Truncate,
    WriterPosition,
)
from penstock.model.envelope import wrap
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append, CheckTail, CreateBasin, CreateStream, DeleteStream, FromSeqNum, Trim
from penstock.model.records import Header, Headers, StreamRef
from penstock.store.tail_cache import TailCache

EXAMPLES = examples(share=8, least=5)
"""A history costs 30 to 100 ms."""
ENVELOPES = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY | Layout.ENVELOPE_COMMANDS
SOURCE = StreamRef(BASIN, "source")
WRITERS = (bytes(16), bytes(range(16)))
HEADERS = (Header(b"name", b"value"),)
FENCE = (Header(b"", b"fence"),)


@dataclass
class Model:
    """A model of a stream's bytes, as simple as it can be while right: one piece for each record."""

    envelopes: bool
    pieces: list[bytes] = field(default_factory=list)
    positions: dict[bytes, int] = field(default_factory=dict)
    trim_point: int = 0
    truncated_at: int = 0
    sealed: bool = False

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def start(self) -> int:
        """The first byte that is kept."""
        return max(self.truncated_at, sum(map(len, self.pieces[: self.trim_point])))

    def verdict(self, append: Append | AppendBytes) -> FailureCode | None:
        if self.sealed:
            return FailureCode.STREAM_SEALED
        if isinstance(append, Append):
            return None
        writer = append.writer
        if writer is not None and writer.position <= self.positions.get(writer.writer, NO_ATTRIBUTE):
            return FailureCode.STALE_WRITER_POSITION
        if append.match_offset not in (None, len(self.data)):
            return FailureCode.OFFSET_MISMATCH
        return None

    def append(self, append: Append | AppendBytes) -> None:
        if isinstance(append, Append):
            for index, body in enumerate(append.bodies):
                self.pieces.append(self._piece(append.headers.get(index, ()), body))
            return
        self.add(append.data)
        if append.writer is not None:
            self.positions[append.writer.writer] = append.writer.position

    def add(self, data: bytes) -> None:
        """Bytes, each event a record."""
        try:
            self.pieces += [join_events([body]) for body in split_events(data)]
        except ValueError:
            self.pieces.append(data)

    def _piece(self, headers: Headers, body: bytes) -> bytes:
        if self.envelopes and (headers or not body):
            return join_events([wrap(headers, body)])
        return b"" if headers == FENCE or not body else join_events([body])

    def trim(self, seq_num: int) -> None:
        self.trim_point = max(self.trim_point, min(seq_num, len(self.pieces)))

    def truncate(self, offset: int) -> None:
        """Truncate at an offset. Bytes before the start are gone already, so an offset there changes nothing, not even
        records without bytes.
        """
        if offset <= self.start:
            return
        self.truncated_at = max(self.truncated_at, offset)
        end = 0
        for number, piece in enumerate(self.pieces, 1):
            end += len(piece)
            if end <= offset:
                self.trim_point = max(self.trim_point, number)


@dataclass(frozen=True)
class Together:
    """In a session, pipelined; all of it lost, where the disk is full."""

    appends: tuple[Append | AppendBytes, ...]
    lost: bool


@dataclass(frozen=True)
class MergeStep:
    data: bytes
    lost: bool


@dataclass(frozen=True)
class ReadStep:
    offset: int
    max_bytes: int
    from_file: bool


class Restart:
    pass


class Purge:
    pass


class AskPositions:
    pass


small = st.binary(max_size=3)
event_data = st.lists(small, min_size=1, max_size=4).map(join_events)
byte_data = st.one_of(event_data, event_data, st.binary(min_size=1, max_size=12))
writers = st.none() | st.builds(WriterPosition, st.sampled_from(WRITERS), st.integers(-1, 8))


@st.composite
def records_appended(draw: st.DrawFn) -> Append:
    found = draw(st.lists(small, min_size=1, max_size=4))
    headers = {index: HEADERS for index in range(len(found)) if draw(st.integers(0, 5)) == 0}
    if draw(st.integers(0, 5)) == 0:
        found[0], headers[0] = b"", FENCE
    return appending(*found, headers=headers)


pipelined = st.one_of(records_appended(), st.builds(AppendBytes, st.just(STREAM), byte_data, writers))
offsets = st.integers(0, 60)
steps = st.one_of(
    pipelined,
    st.builds(AppendBytes, st.just(STREAM), byte_data, writers, st.none() | offsets),
    st.builds(Together, st.lists(pipelined, min_size=1, max_size=4).map(tuple), st.booleans()),
    st.builds(MergeStep, byte_data | st.just(b""), st.booleans()),
    st.builds(ReadStep, offsets, st.integers(1, 40), st.booleans()),
    st.builds(ReadStep, offsets, st.just(100), st.booleans()),
    st.builds(Truncate, st.just(STREAM), offsets),
    st.builds(Trim, st.just(STREAM), st.builds(FromSeqNum, st.integers(0, 12))),
    st.builds(Restart),
    st.builds(Purge),
    st.builds(AskPositions),
)
histories = st.tuples(st.lists(steps, max_size=20), st.lists(st.just(Seal(STREAM)), max_size=1), st.lists(steps))


class History:
    """A store and its model."""

    def __init__(self, envelopes: bool) -> None:
        self.model = Model(envelopes)
        self.wall = Wall()

    async def run(self, directory: Path, history: list[object]) -> None:
        opened = EmbeddedSettings(directory=directory, envelopes=ENVELOPES if self.model.envelopes else Layout.PLAIN)
        async with open_embedded(opened, self.wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
        rest = iter(history)
        more = True
        while more:
            async with open_embedded(opened, self.wall) as back:
                await self.check(back, from_file=True)
                more = await self._until_restart(back, rest)
                await self.check(back, from_file=False)

    async def _until_restart(self, back: EmbeddedBack, rest: Iterator[object]) -> bool:
        for step in rest:
            match step:
                case Restart():
                    return True
                case Purge():
                    await back._store.sweeper.purge()
                case Append() | AppendBytes():
                    await self.append(back, step)
                case Together():
                    await self.together(back, step)
                case MergeStep():
                    await self.merge(back, step)
                case Seal():
                    assert await back.perform(step) == len(self.model.data)
                    self.model.sealed = True
                case Truncate():
                    await self.truncate(back, step)
                case Trim():
                    assert isinstance(step.start, FromSeqNum)
                    await back.perform(step)
                    self.model.trim(step.start.seq_num)
                case AskPositions():
                    await self.check_positions(back)
                case ReadStep():
                    await self.read(back, step)
        return False

    # ---- what changes it ----

    async def append(self, back: EmbeddedBack, append: Append | AppendBytes) -> None:
        expected = self.model.verdict(append)
        before = len(self.model.pieces)
        try:
            appended = await back.perform(append)
        except OperationFailed as error:
            assert error.failure.code is expected
            return
        assert expected is None
        self.model.append(append)
        assert (appended.start.seq_num, appended.end.seq_num) == (before, len(self.model.pieces))
        assert appended.offset == len(self.model.data)

    async def together(self, back: EmbeddedBack, step: Together) -> None:
        with Unwritable(back) if step.lost else nullcontext():
            code, offsets = await self._in_session(back, step.appends)
        if step.lost and (self.model.verdict(step.appends[0]) is None or code is FailureCode.STORAGE):
            assert (code, offsets) == (FailureCode.STORAGE, [])
            await self.check_positions(back)
            return
        for append, offset in zip(step.appends, offsets, strict=False):
            assert self.model.verdict(append) is None
            self.model.append(append)
            assert offset == len(self.model.data)
        assert (code is None) == (len(offsets) == len(step.appends))
        if code is not None:
            assert self.model.verdict(step.appends[len(offsets)]) is code

    async def _in_session(
        self, back: EmbeddedBack, appends: tuple[Append | AppendBytes, ...]
    ) -> tuple[FailureCode | None, list[int | None]]:
        """Append in a session, and return its failure, if any, and the offsets that were acknowledged."""
        offsets: list[int | None] = []
        async with back.append_session(STREAM) as session:
            for append in appends:
                await session.send(append)
            session.close()
            try:
                while ready := await session.receive():
                    offsets += [appended.offset for appended in ready]
            except OperationFailed as error:
                return error.failure.code, offsets
        return None, offsets

    async def merge(self, back: EmbeddedBack, step: MergeStep) -> None:
        await back.perform(CreateStream(SOURCE))
        if step.data:
            await back.perform(AppendBytes(SOURCE, step.data))
        await back.perform(Seal(SOURCE))
        try:
            with Unwritable(back) if step.lost else nullcontext():
                merged = await back.perform(Merge(STREAM, (SOURCE,)))
        except OperationFailed as error:
            sealed = self.model.sealed and error.failure.code is FailureCode.STREAM_SEALED
            assert sealed or (step.lost and error.failure.code is FailureCode.STORAGE)
            await back.perform(DeleteStream(SOURCE))
            await back._store.sweeper.purge()
            return
        assert not (self.model.sealed or step.lost)
        self.model.add(step.data)
        assert merged == Merged((len(self.model.data),))

    async def truncate(self, back: EmbeddedBack, step: Truncate) -> None:
        try:
            await back.perform(step)
        except OperationFailed as error:
            assert error.failure.code is FailureCode.INVALID and step.offset > len(self.model.data)
            return
        self.model.truncate(step.offset)

    # ---- what looks at it ----

    async def check(self, back: EmbeddedBack, from_file: bool) -> None:
        """Everything that can be seen."""
        model = self.model
        info = await back.perform(GetByteStreamInfo(STREAM))
        assert (info.start_offset, info.length, info.sealed) == (model.start, len(model.data), model.sealed)
        await self.read(back, ReadStep(model.start, 10_000, from_file))
        assert (await back.perform(CheckTail(STREAM))).seq_num == len(model.pieces)
        if model.trim_point < len(model.pieces):
            assert len(await bodies(back, FromSeqNum(0))) == len(model.pieces) - model.trim_point
        await self.check_positions(back)

    async def check_positions(self, back: EmbeddedBack) -> None:
        for writer in WRITERS:
            found = await back.perform(GetAttribute(STREAM, writer))
            assert found == self.model.positions.get(writer, NO_ATTRIBUTE)

    async def read(self, back: EmbeddedBack, step: ReadStep) -> None:
        stream = back._store.registry.stream(STREAM)
        assert stream is not None
        if step.from_file:
            stream.recent = TailCache()
        model = self.model
        try:
            found = await back.perform(ReadBytes(STREAM, step.offset, step.max_bytes))
        except OperationFailed as error:
            beyond = step.offset > len(model.data) and model.sealed
            assert error.failure.code is (FailureCode.INVALID if beyond else FailureCode.OFFSET_TRUNCATED)
            assert beyond or (error.failure.details == {"offset": model.start} and step.offset < model.start)
            return
        assert found.data == model.data[step.offset : step.offset + step.max_bytes]
        assert found.end_of_stream == (model.sealed and step.offset == len(model.data))


@EXAMPLES
@given(histories, st.booleans())
def test_whatever_happens_the_bytes_are_what_the_model_says(
    history: tuple[list[object], list[object], list[object]], envelopes: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(History(envelopes).run, Path(directory), [step for part in history for step in part])
