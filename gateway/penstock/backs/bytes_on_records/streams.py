"""What is known of streams as bytes: kept for those on which a byte operation was ever done, and for no others."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from penstock.backs.base import Back
from penstock.backs.bytes_on_records.labels import count_bytes, render_records, starts
from penstock.backs.bytes_on_records.offsets import Offsets, Place
from penstock.backs.bytes_on_records.settings import BytesSettings
from penstock.backs.bytes_on_records.tables import Table
from penstock.backs.bytes_on_records.traces import Traces
from penstock.backs.bytes_on_records.writers import Writers
from penstock_codecs.byte_layout import Layout
from penstock_codecs.byte_rendering import Rendered
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import RecordBatch, StreamRef
from penstock_codecs.operations import CheckTail

if TYPE_CHECKING:
    from penstock.backs.bytes_on_records.lanes import Lane
    from penstock.backs.bytes_on_records.windows import Window

__all__ = ["Stream", "Streams", "unknown"]


class _Row(msgspec.Struct, frozen=True):
    """What is durable of a stream. `layouts`: from which record on which envelopes are made; see `Stream.parts`."""

    layouts: tuple[tuple[int, int], ...]
    start_offset: int = 0
    sealed_at: int | None = None
    last_modified: int = 0


_ROW: Final = msgspec.json.Decoder(_Row)


class Stream:
    """One stream as bytes. Whoever waits for something to happen to it parks at `changed`."""

    def __init__(self, ref: StreamRef, row: _Row, table: Table, offsets: Offsets, writers: Writers) -> None:
        self.ref = ref
        self.row = row
        self.offsets = offsets
        self.writers = writers
        self.first = Place(0, 0)
        """The first record that is kept, as far as is known."""
        self.changed = trio.lowlevel.ParkingLot()
        self.counting = trio.Lock()
        self.resolving = trio.Lock()
        self.changing = trio.Lock()
        self.windows: list[Window] = []
        self.lane: Lane | None = None
        self.users = 0
        self.gone = False
        self.sealing = row.sealed_at is not None
        self._table = table

    @property
    def start_offset(self) -> int:
        """The first byte that is kept, as far as is known."""
        return max(self.row.start_offset, self.first.offset)

    @property
    def envelopes(self) -> Layout:
        """What is enveloped of records that are appended now."""
        return Layout(self.row.layouts[-1][1])

    @property
    def rests(self) -> bool:
        """Whether nothing is under way."""
        return not (self.users or self.windows or self.lane)

    async def save(self, **changes: object) -> None:
        """Change the row, durably."""
        row = msgspec.structs.replace(self.row, **changes)
        await self._table.put((key_of(self.ref), msgspec.json.encode(row)))
        self.row = row
        self.changed.unpark_all()

    def parts(self, batch: RecordBatch) -> Iterator[tuple[RecordBatch, Layout]]:
        """Its records by what is enveloped of them: that never changes once they were counted."""
        layouts = self.row.layouts
        if len(layouts) == 1 or batch.first_seq_num >= layouts[-1][0]:
            yield batch, Layout(layouts[-1][1])
            return
        first, stop = batch.first_seq_num, batch.next_seq_num
        ends = [*(since for since, _ in layouts[1:]), stop]
        for (_, bits), end in zip(layouts, ends, strict=True):
            end = min(end, stop)
            if first < end:
                yield batch.part(first - batch.first_seq_num, end - batch.first_seq_num), Layout(bits)
                first = end

    def length_of(self, batch: RecordBatch) -> int:
        """How many bytes these records are."""
        return sum(count_bytes(part.columns, layout) for part, layout in self.parts(batch))

    def spans(self, batch: RecordBatch, begin: int) -> Iterator[tuple[int, int, int]]:
        """Where each record's bytes begin and end, and its number; those of the first one begin at `begin`."""
        seq_num = batch.first_seq_num
        for part, layout in self.parts(batch):
            for start, stop in pairwise(starts(part.columns, layout)):
                yield begin + start, begin + stop, seq_num
                seq_num += 1
            begin += stop

    def render(self, batch: RecordBatch, first_offset: int) -> Rendered:
        """The bytes of these records, the first of which begins at this offset."""
        pieces = []
        for part, layout in self.parts(batch):
            pieces.append(render_records(part.columns, layout, first_offset))
            first_offset = pieces[-1].end_offset
        if len(pieces) == 1:
            return pieces[0]
        marks = [mark for piece in pieces for mark in piece.marks]
        return Rendered(pieces[0].first_offset, b"".join([piece.data for piece in pieces]), marks)

    def check(self, offset: int | None = None) -> None:
        """Raise STREAM_NOT_FOUND where it was deleted, OFFSET_TRUNCATED where this offset is not kept any more."""
        if self.gone:
            raise unknown(self.ref)
        start = self.start_offset
        if offset is not None and offset < start:
            raise fail(FailureCode.OFFSET_TRUNCATED, f"{self.ref} is kept from offset {start} on", offset=start)

    @contextmanager
    def used(self) -> Iterator[Stream]:
        """It stays in memory until the block ends."""
        self.users += 1
        try:
            yield self
        finally:
            self.users -= 1


class Streams:
    """All of one back."""

    def __init__(self, records: Back, name: str, state: Back, settings: BytesSettings) -> None:
        self.direct: Counter[StreamRef] = Counter()
        """Appends of records that are on their way to the back, not in a lane."""
        self.settled = trio.lowlevel.ParkingLot()
        """Whoever waits for these to be over parks here."""
        self.count: Callable[[Stream], Awaitable[object]]
        """Counts a stream's bytes up to its tail; set by who can."""
        self._records = records
        self._name = name
        self._state = state
        self._settings = settings
        self._rows = Table(state, f"#bytes/{name}")
        self._cached: OrderedDict[StreamRef, Stream] = OrderedDict()
        self._touched = Traces()
        self._loading = trio.Lock()

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._cached.values()))

    def peek(self, ref: StreamRef) -> Stream | None:
        """The stream, if it is in memory."""
        return self._cached.get(ref)

    async def load(self) -> None:
        """Learn which streams there are."""
        async for key, _ in self._rows.items():
            self._touched.add(_ref_of(key))

    async def of_basin(self, basin: str) -> list[StreamRef]:
        """The streams of a basin on which byte operations were done."""
        return [_ref_of(key) async for key, _ in self._rows.items(f"{basin}/".encode())]

    def may_be_known(self, ref: StreamRef) -> bool:
        """Whether a byte operation was ever done on this stream; true of a few others too."""
        return ref in self._touched

    async def known(self, ref: StreamRef) -> Stream | None:
        """The stream, if a byte operation was ever done on it."""
        if ref not in self._touched:
            return None
        if (stream := self._cached.get(ref)) is not None:
            self._cached.move_to_end(ref)
            return stream
        async with self._loading:
            return self._cached.get(ref) or await self._load(ref)

    async def find(self, ref: StreamRef) -> Stream:
        """The stream, for a byte operation. Raises STREAM_NOT_FOUND where the back does not have it."""
        if (stream := await self.known(ref)) is None:
            stream = await self._begin(ref)
        if stream.envelopes != self._settings.envelopes:
            await self._change_layout(stream)
        return stream

    async def _begin(self, ref: StreamRef) -> Stream:
        await self._records.perform(CheckTail(ref, create_if_missing=False))
        async with self._loading:
            if (stream := self._cached.get(ref) or await self._load(ref)) is None:
                row = _Row(((0, int(self._settings.envelopes)),))
                self._touched.add(ref)
                await self._rows.put((key_of(ref), msgspec.json.encode(row)))
                stream = await self._load(ref)
        assert stream is not None
        return stream

    async def _change_layout(self, stream: Stream) -> None:
        """Other envelopes are configured than before: for what comes now, not for what is there."""
        async with stream.changing:
            if stream.envelopes != self._settings.envelopes:
                await self.count(stream)
                await stream.offsets.save()
                layout = (stream.offsets.end.seq_num, int(self._settings.envelopes))
                await stream.save(layouts=(*stream.row.layouts, layout))

    async def forget(self, ref: StreamRef) -> None:
        """The stream was deleted, or is another one now: nothing that was known of it is true."""
        if await self.known(ref) is None:
            return
        async with self._loading:
            if (stream := self._cached.pop(ref, None)) is not None:
                stream.gone = True
                stream.changed.unpark_all()
            await self._offsets(ref).delete()
            await self._writers(ref).delete()
            await self._rows.remove(key_of(ref))

    async def rest(self) -> None:
        """Make durable what was counted of streams, and let those go that nobody uses, where there are too many."""
        for stream in self:
            if not stream.gone and (stream.offsets.must_save or (stream.rests and not stream.offsets.is_saved)):
                with stream.used():
                    await stream.offsets.save()
            if stream.rests and not stream.gone:
                with stream.used():
                    await stream.writers.rest()
        excess = len(self._cached) - self._settings.cached_streams
        for ref, stream in list(self._cached.items()):
            if excess <= 0:
                break
            if stream.rests and stream.offsets.is_saved and stream.writers.is_saved:
                del self._cached[ref]
                excess -= 1

    async def _load(self, ref: StreamRef) -> Stream | None:
        (found,) = await self._rows.get(key_of(ref))
        if found is None:
            return None
        offsets = await Offsets.load(self._offsets(ref), self._settings.mark_every_bytes)
        writers = await Writers.load(self._writers(ref))
        stream = Stream(ref, _ROW.decode(found), self._rows, offsets, writers)
        self._cached[ref] = stream
        return stream

    def _offsets(self, ref: StreamRef) -> Table:
        return Table(self._state, f"#offsets/{self._name}/{ref}")

    def _writers(self, ref: StreamRef) -> Table:
        return Table(self._state, f"#writers/{self._name}/{ref}")


def key_of(ref: StreamRef) -> bytes:
    """What a stream's row is found by."""
    return str(ref).encode()


def _ref_of(key: bytes) -> StreamRef:
    return StreamRef(*key.decode().split("/", 1))


def unknown(ref: StreamRef) -> OperationFailed:
    """For a stream that is not there."""
    return fail(FailureCode.STREAM_NOT_FOUND, f"stream {ref} does not exist")
