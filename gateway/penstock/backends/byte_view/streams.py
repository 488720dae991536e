"""The byte view of another server's streams: their state, and how bytes are read, counted and appended.

`ByteStream` is the state of one stream; `ByteStreams` keeps it, for streams that had a byte operation and for no
others.

`OffsetCounter` counts the bytes of records that others appended, from the end of the index to the tail.

`ReadWindow` is one read session at the back, shared by all readers at about the same place. A reader asks in steps,
each from the end of the last one. The window buffers a bounded amount of what its session gave, and reads on when a
reader needs more. At the tail it follows the stream for all readers that wait there.

`Lane` sends the byte appends of all clients to one stream, one after the other, through one append session at the back:
so their order is known, and no append gets into the middle of another. When the next client has another token for the
back, the session ends and another one begins. The lane makes intents durable for all appends that came meanwhile, then
sends all of them. `Decisions` checks each append and makes its records when its turn has come.

`resolve_intents` finds out which unacknowledged appends the back has, from the bytes that are there.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import islice, pairwise
from secrets import token_hex
from typing import Final

import msgspec
import structlog
import trio

from penstock.backends.byte_view.intents import FoundBatch, IntentGroup, Matcher
from penstock.backends.byte_view.labels import batches_of, count_bytes, render_records, starts
from penstock.backends.byte_view.offsets import Offsets, RecordOffset
from penstock.backends.byte_view.requests import ByteAppend, ack_of_batches
from penstock.backends.byte_view.settings import BytesSettings
from penstock.backends.byte_view.traces import BloomFilter
from penstock.backends.byte_view.writers import GROUP_INTENTS, WriterStates
from penstock.backends.owners import NOT_OWNED, StreamOwners, key_of, lost, ref_of
from penstock.core.back import AppendSession, Back, Following, ReadSession
from penstock.core.identity import CLIENT
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendBytes, Attribute, WriterPosition
from penstock.model.byte_rendering import Rendered
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, Capability, CheckTail, FromSeqNum, Read
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.tables.byte_table import ByteTable

__all__ = [
    "Batches",
    "ByteStream",
    "ByteStreams",
    "Decisions",
    "Lane",
    "OffsetCounter",
    "ReadWindow",
    "ReadWindows",
    "Replaced",
    "look_again",
    "resolve_intents",
    "unknown_stream",
]


log = structlog.get_logger()

TENURE: Final = 0.05
"""Seconds for which a gateway keeps a stream that another one needs, so that it gets on."""
MOST_WITHOUT_BYTES: Final = 1000
"""Most consecutive records without bytes that a window keeps. Refusing a read needs the first one; counts of dropped
records leave out those beyond this."""
_MOST: Final = (1 << 63) - 1


async def resolve_intents(stream: ByteStream, counter: OffsetCounter) -> list[list[FoundBatch]]:
    """Resolve the unresolved intents of a stream and return, for each of them, the batches that the back has.

    Raises OperationFailed if the back cannot be asked, or Replaced; then they stay unresolved.
    """
    async with stream.resolving:
        group = stream.writers.unresolved
        if group is None:
            return []
        batches = await _look(stream, counter, group)
        stream.writers.settle(batches)
        return batches


async def look_again(stream: ByteStream, counter: OffsetCounter) -> None:
    """Search the back for late batches, which it did not have when last asked: they must not be sent again.

    Raises as `resolve_intents` does.
    """
    async with stream.resolving:
        group = stream.writers.late
        if group is None:
            return
        writers = stream.writers
        for intent, batches in zip(group.intents, await _look(stream, counter, group), strict=True):
            if batches and intent.writer is not None:
                writers.keep_partial(intent.writer, (*writers.partial.get(intent.writer, ()), *batches))


async def _look(stream: ByteStream, counter: OffsetCounter, group: IntentGroup) -> list[list[FoundBatch]]:
    """Return the batches that the back has of each intent. The others may still come, behind the present tail."""
    tail = await counter.catch_up(stream)
    matcher = Matcher(prints for intent in group.intents for prints in intent.prints)
    at = group.base.offset
    async with counter.batches(stream, group.base.seq_num, tail.seq_num) as batches:
        while not matcher.done and (batch := await batches.next()) is not None:
            records = list(_records(stream, batch, at))
            matcher.feed(records)
            at = records[-1][2] + len(records[-1][3])
    remaining = iter(matcher.found)
    resolved = [list(islice(remaining, len(intent.prints))) for intent in group.intents]
    base = await counter.place_of(stream, tail.seq_num, group.base)
    missing = [
        intent._replace(prints=intent.prints[len(prints) :])
        for intent, prints in zip(group.intents, resolved, strict=True)
        if len(prints) < len(intent.prints)
    ]
    stream.writers.late = IntentGroup(0, base, missing) if missing else None
    return resolved


def _records(stream: ByteStream, batch: RecordBatch, begin: int) -> Iterator[tuple[int, int, int, bytes]]:
    data = stream.render(batch, begin).data
    timestamps = batch.columns.timestamps
    for (start, stop, seq_num), timestamp in zip(stream.spans(batch, begin), timestamps, strict=True):
        yield seq_num, timestamp, start, data[start - begin : stop - begin]


class ReadWindow:
    """Consecutive bytes of a stream from `first` to `end`, and the session that reads more, for clients of one token.

    `on_unused` is called when the last reader leaves.
    """

    def __init__(
        self,
        stream: ByteStream,
        counter: OffsetCounter,
        start: RecordOffset,
        offset: int,
        ahead: int,
        token: str | None,
        on_unused: Callable[[], object],
    ) -> None:
        self.stream = stream
        self.token = token
        self.following = False
        self.failure: Failure | None = None
        self.over = False
        self.idle_since = trio.current_time()
        self.scope = trio.CancelScope()
        self.first = self.end = start.offset
        self._on_unused = on_unused
        self._counter = counter
        self._seq_num = start.seq_num
        self._wanted = offset  # bytes before it are dropped, except for the last `ahead`
        self._goal = 0
        self._ahead = ahead
        self._pieces: deque[Rendered] = deque()
        self._empty = 0  # records without bytes since the last piece that has bytes
        self._readers: list[int] = []
        self._room = trio.lowlevel.ParkingLot()

    def serves(self, offset: int) -> bool:
        """Return whether a read from this offset can be answered here, now or after reading on."""
        if self.over or self.scope.cancel_called or offset < self.first:
            return False
        return self.following or offset <= max(self.end, self._wanted)

    @property
    def used(self) -> bool:
        """True if the window has readers."""
        return bool(self._readers)

    @contextmanager
    def reading(self, offset: int, max_bytes: int) -> Iterator[None]:
        """Register a reader of these bytes until the block ends."""
        self._readers.append(offset)
        self._goal = max(self._goal, offset + max_bytes + self._ahead)
        self._room.unpark_all()
        try:
            yield
        finally:
            self._readers.remove(offset)
            self._wanted = max(self._wanted, offset)
            self.idle_since = trio.current_time()
            if not self._readers:
                self._on_unused()

    def pieces(self) -> deque[Rendered]:
        """Return the buffered pieces."""
        return self._pieces

    async def run(self, records: Back) -> None:
        """Read from the back, never further than the readers' requests and the read-ahead."""
        read = Read(self.stream.ref, FromSeqNum(self._seq_num), clamp=True, create_if_missing=False)
        try:
            with self.scope:
                async with records.read_session(read) as session:
                    while (delivered := await session.next()) is not None:
                        if isinstance(delivered, Following):
                            self.following = True
                        else:
                            await self._take(delivered)
                        self.stream.changed.unpark_all()
                        while self.end >= self._goal:
                            await self._room.park()
                self.failure = Failure(FailureCode.UNAVAILABLE, f"the read of stream {self.stream.ref} ended")
        except OperationFailed as error:
            self.failure = error.failure
        finally:
            self.over = True
            self.stream.windows.remove(self)
            self.stream.changed.unpark_all()

    async def _take(self, batch: RecordBatch) -> None:
        if batch.first_seq_num > self._seq_num:  # the records between were trimmed
            place = await self._counter.first_at(self.stream, batch.first_seq_num)
            self.stream.first = max(self.stream.first, place)
            self._pieces.clear()
            self.first = self.end = place.offset
        self._seq_num = batch.next_seq_num
        self._counter.take(self.stream, batch)
        self._keep(self.stream.render(batch, self.end))

    def _keep(self, piece: Rendered) -> None:
        self.end = piece.end_offset
        if piece.data:
            self._empty = 0
        else:
            self._empty += len(piece.marks)
            if self._empty > MOST_WITHOUT_BYTES:
                return
        self._pieces.append(piece)
        lowest = min(self._readers, default=self._wanted)
        while self._pieces and self._pieces[0].end_offset < lowest - self._ahead:
            self._pieces.popleft()
        self.first = self._pieces[0].first_offset if self._pieces else self.end


class ReadWindows:
    """The windows of all streams of one back, at most `most` of them."""

    def __init__(self, records: Back, counter: OffsetCounter, nursery: trio.Nursery, most: int, ahead: int) -> None:
        self._records = records
        self._counter = counter
        self._nursery = nursery
        self._most = most
        self._turns = trio.StrictFIFOLock()
        self._ended = trio.lowlevel.ParkingLot()
        self._wanted = 0  # reads that wait for room
        self._ahead = ahead
        self._all: list[ReadWindow] = []

    async def find(self, stream: ByteStream, offset: int) -> ReadWindow:
        """Return a window for a read from this offset, and open one if there is none.

        Raises OperationFailed(PERMISSION_DENIED) if the back has no token for the client.
        """
        shown = self._records.access_token()
        if (window := _serving(stream, offset, shown)) is not None:
            return window
        async with self._turns:
            while (window := _serving(stream, offset, shown)) is None and len(self._all) >= self._most:
                self._wanted += 1
                self._make_room()
                try:
                    await self._ended.park()
                finally:
                    self._wanted -= 1
            return window or self._open(stream, offset, shown)

    def _open(self, stream: ByteStream, offset: int, shown: str | None) -> ReadWindow:
        start = stream.offsets.before_offset(offset)
        window = ReadWindow(stream, self._counter, start, offset, self._ahead, shown, self._make_room)
        stream.windows.append(window)
        self._all.append(window)
        self._nursery.start_soon(self._run, window)
        return window

    async def _run(self, window: ReadWindow) -> None:
        try:
            await window.run(self._records)
        finally:
            self._all.remove(window)
            self._ended.unpark_all()

    def _make_room(self) -> None:
        """If a read waits for room, end the window that was unused for longest, unless one is ending already.

        An ending window serves no further reads: a reader that comes back to it waits for room as well.
        """
        idle = [window for window in self._all if not window.used] if self._wanted else []
        if idle and not any(window.scope.cancel_called for window in idle):
            min(idle, key=lambda window: window.idle_since).scope.cancel()

    def close_idle(self, before: float) -> None:
        """End the windows that were unused since before this time, in trio's seconds."""
        for window in self._all:
            if not window.used and window.idle_since < before:
                window.scope.cancel()

    def close(self, stream: ByteStream, *, used: bool = True) -> None:
        """End all windows of a stream; with `used`, also those that have readers."""
        for window in stream.windows:
            if used or not window.used:
                window.scope.cancel()


def _serving(stream: ByteStream, offset: int, shown: str | None) -> ReadWindow | None:
    return next((window for window in stream.windows if window.token == shown and window.serves(offset)), None)


class Replaced(Exception):
    """The stream at the back was replaced by another: it ends before the end that was counted."""

    def __init__(self, stream: StreamRef) -> None:
        super().__init__(f"{stream} was replaced")
        self.stream = stream


class Batches:
    """Batches of a read session before record `stop`."""

    def __init__(self, session: ReadSession | None, stop: int) -> None:
        self._session = session
        self._stop = stop

    async def next(self) -> RecordBatch | None:
        """Return the next batch, or None at the end."""
        if self._session is None:
            return None
        while isinstance(batch := await self._session.next(), Following):
            pass
        if batch is None or batch.first_seq_num >= self._stop:
            return None
        return batch.part(0, min(batch.count, self._stop - batch.first_seq_num))


class OffsetCounter:
    """Counts the bytes of streams' records, and finds places by record or by offset."""

    def __init__(self, records: Back) -> None:
        self._records = records

    async def catch_up(self, stream: ByteStream, to: int | None = None) -> StreamPosition:
        """Count all records before record `to`, or before the tail, and return the tail.

        Raises Replaced, or OperationFailed as reading does.
        """
        stream.check()
        tail = await self._records.perform(CheckTail(stream.ref, create_if_missing=False))
        if tail.seq_num < stream.offsets.end.seq_num:
            raise Replaced(stream.ref)
        stop = tail.seq_num if to is None else min(to, tail.seq_num)
        if stream.offsets.end.seq_num < stop:
            async with stream.counting:
                await self._count(stream, stop)
        return tail

    async def count_durably(self, stream: ByteStream) -> None:
        """Count all records durably, before some of them are trimmed. Raises Replaced or OperationFailed."""
        with stream.used():
            await self.catch_up(stream)
            await stream.offsets.save()
            await stream.writers.rest()

    async def _count(self, stream: ByteStream, stop: int) -> None:
        while (start := stream.offsets.end).seq_num < stop:
            async with self.batches(stream, start.seq_num, stop) as batches:
                while (batch := await batches.next()) is not None:
                    self.take(stream, batch)
                    if stream.offsets.must_save:
                        await stream.offsets.save()
            if stream.offsets.end == start:  # all of them were trimmed before they were counted
                stream.offsets.advance(RecordOffset(stop, start.offset))

    def take(self, stream: ByteStream, batch: RecordBatch) -> None:
        """Count the records of a batch that are not counted yet.

        Uncounted records before the batch were trimmed, and count as without bytes.
        """
        end = stream.offsets.end
        if batch.next_seq_num <= end.seq_num:
            return
        if batch.first_seq_num < end.seq_num:
            batch = batch.part(end.seq_num - batch.first_seq_num, batch.count)
        elif batch.first_seq_num > end.seq_num:
            stream.first = max(stream.first, RecordOffset(batch.first_seq_num, end.offset))
        stream.offsets.advance(RecordOffset(batch.next_seq_num, end.offset + stream.length_of(batch)))

    @asynccontextmanager
    async def batches(self, stream: ByteStream, start: int, stop: int) -> AsyncIterator[Batches]:
        """Open a read of the records from `start` up to `stop` that the back has."""
        if start >= stop:
            yield Batches(None, stop)
            return
        read = Read(stream.ref, FromSeqNum(start), count=stop - start, wait=0.0, create_if_missing=False)
        async with AsyncExitStack() as stack:
            session = None
            try:
                session = await stack.enter_async_context(self._records.read_session(read))
            except OperationFailed as error:
                if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                    raise
            yield Batches(session, stop)

    async def find_first(self, stream: ByteStream, tail: StreamPosition) -> RecordOffset:
        """Return the first record that is kept, or the tail if there is none. All before the tail must be counted."""
        async with self.batches(stream, stream.first.seq_num, tail.seq_num) as batches:
            batch = await batches.next()
            first = tail.seq_num if batch is None else batch.first_seq_num
        if first > stream.first.seq_num:
            stream.first = await self.first_at(stream, first)
        return stream.first

    async def first_at(self, stream: ByteStream, seq_num: int) -> RecordOffset:
        """Return the place of the first record that is kept.

        Records before it are gone, so its offset is counted backwards from the next mark. If it was trimmed meanwhile,
        the result is the first record that is kept now.
        """
        behind = stream.offsets.after_seq_num(seq_num)
        first, offset = behind
        async with self.batches(stream, seq_num, behind.seq_num) as batches:
            while (batch := await batches.next()) is not None:
                first = min(first, batch.first_seq_num)
                offset -= stream.length_of(batch)
        return RecordOffset(first, max(offset, 0))

    async def place_of(self, stream: ByteStream, seq_num: int, known: RecordOffset) -> RecordOffset:
        """Return the place of a record that is present or will be the next one. `known` is a place before it."""
        if stream.offsets.end.seq_num < seq_num:
            await self.catch_up(stream, seq_num)
        at = max(known, stream.offsets.before_seq_num(seq_num))
        async with self.batches(stream, at.seq_num, seq_num) as batches:
            while (batch := await batches.next()) is not None:
                if batch.first_seq_num > at.seq_num:  # the records before it were trimmed
                    at = await self.first_at(stream, batch.first_seq_num)
                at = RecordOffset(batch.next_seq_num, at.offset + stream.length_of(batch))
        if at.seq_num < seq_num:
            at = await self.first_at(stream, seq_num)
        return RecordOffset(seq_num, at.offset)

    async def bytes_of(self, stream: ByteStream, found_batch: FoundBatch) -> bytes:
        """Return the bytes of a batch that the back has, from `found.offset` on."""
        pieces = []
        async with self.batches(stream, found_batch.start.seq_num, found_batch.end.seq_num) as batches:
            while (batch := await batches.next()) is not None:
                pieces.append(stream.render(batch, 0).data)
        return b"".join(pieces)[-(found_batch.end_offset - found_batch.offset) :]

    async def ending_behind(self, stream: ByteStream, offset: int) -> RecordOffset:
        """Return the first record whose bytes end after this offset, or the end of the counted records."""
        return await self._first_where(stream, offset, lambda _, stop: stop > offset)

    async def beginning_at(self, stream: ByteStream, offset: int) -> RecordOffset:
        """Return the first record whose bytes begin at or after this offset, or the end of the counted records."""
        return await self._first_where(stream, offset, lambda start, _: start >= offset)

    async def _first_where(self, stream: ByteStream, offset: int, holds: Callable[[int, int], bool]) -> RecordOffset:
        at, end = stream.offsets.before_offset(offset), stream.offsets.end
        async with self.batches(stream, at.seq_num, end.seq_num) as batches:
            while (batch := await batches.next()) is not None:
                if batch.first_seq_num > at.seq_num:
                    at = await self.first_at(stream, batch.first_seq_num)
                for start, stop, seq_num in stream.spans(batch, at.offset):
                    if holds(start, stop):
                        return RecordOffset(seq_num, start)
                    at = RecordOffset(seq_num + 1, stop)
        return end


class Decisions:
    """Checks the byte appends to one stream, and makes their records."""

    def __init__(self, stream: ByteStream, records: Back, counter: OffsetCounter) -> None:
        self._stream = stream
        self._capabilities = records.capabilities
        self._counter = counter
        self._positions: dict[Attribute, tuple[int, int]] = {}  # last position in flight, and number of such appends

    def is_alone(self, request: ByteAppend) -> bool:
        """Return whether a request must wait for all before it, and all after it must wait for it."""
        append = request.append
        partial = append.writer is not None and append.writer.writer in self._stream.writers.partial
        return partial or append.match_offset is not None or self._must_be_first()

    def _must_be_first(self) -> bool:
        """Return whether batches that were sent before a crash may still arrive at the back.

        Then the next append must begin at the end that the stream had when the back was asked. If that succeeds, the
        late batches can never be applied; if it fails, the back is asked again.
        """
        return self._stream.writers.late is not None and Capability.MATCH_SEQ_NUM in self._capabilities

    async def decide(self, request: ByteAppend) -> Appended | None:
        """Check an append and make its batches. Returns its result if the back has all of it already, else None.

        Raises OperationFailed as `AppendBytes` says.
        """
        stream, append = self._stream, request.append
        stream.check()
        if stream.row.sealed_at is not None:
            raise fail(FailureCode.STREAM_SEALED, f"stream {stream.ref} is sealed")
        if not append.data:
            raise fail(FailureCode.INVALID, "an append of bytes has at least one")
        request.match_seq_num = None
        if self._must_be_first():
            await look_again(stream, self._counter)
            request.match_seq_num = None if stream.writers.late is None else stream.writers.late.base.seq_num
        writer = append.writer
        if writer is not None:
            await self._check_position(writer)
        if append.match_offset is not None:
            await self._check_offset(request, append.match_offset)
        pieces = await self._skip(request, append)
        if writer is not None and not any(pieces):
            return await self._take_partial(request, writer)
        request.batches = batches_of(pieces, stream.envelopes, labels=Capability.HEADERS in self._capabilities)
        if writer is not None:
            _, count = self._positions.get(writer.writer, (0, 0))
            self._positions[writer.writer] = (writer.position, count + 1)
        request.decided = True
        return None

    def settled(self, request: ByteAppend) -> None:
        """Forget the position of an append that was decided and is over now."""
        if request.append.writer is None:
            return
        writer = request.append.writer.writer
        position, count = self._positions[writer]
        if count > 1:
            self._positions[writer] = (position, count - 1)
        else:
            del self._positions[writer]

    async def _check_position(self, writer: WriterPosition) -> None:
        if not NO_ATTRIBUTE <= writer.position <= _MOST:
            raise fail(FailureCode.INVALID, "a writer's position is a 64-bit number")
        if writer.writer in self._positions:
            last = self._positions[writer.writer][0]
        else:
            last = await self._stream.writers.value(writer.writer)
        if writer.position <= last:
            message = f"position {writer.position} of the writer is not above its last, {last}"
            raise fail(FailureCode.STALE_WRITER_POSITION, message, position=last)
        if writer.after is not None and writer.after != last:
            message = f"the writer was at {writer.after}, but it is at {last}"
            raise fail(FailureCode.STALE_WRITER_POSITION, message, position=last)

    async def _check_offset(self, request: ByteAppend, offset: int) -> None:
        tail = await self._counter.catch_up(self._stream)
        end = self._stream.offsets.end
        if offset != end.offset:
            raise fail(FailureCode.OFFSET_MISMATCH, f"the stream ends at {end.offset}", offset=end.offset)
        if Capability.MATCH_SEQ_NUM in self._capabilities:
            request.match_seq_num = tail.seq_num

    async def _skip(self, request: ByteAppend, append: AppendBytes) -> list[bytes]:
        """Return the pieces of an append without the leading bytes that the back has already."""
        writers = self._stream.writers
        partial = () if append.writer is None else writers.partial.get(append.writer.writer, ())
        if append.writer is None or not partial:
            return list(request.pieces)
        known = b"".join([await self._counter.bytes_of(self._stream, batch) for batch in partial])[: len(append.data)]
        if not append.data.startswith(known):
            writers.keep_partial(append.writer.writer, ())  # the writer appends other bytes now
            return list(request.pieces)
        request.skipped = left = len(known)
        pieces = []
        for piece in request.pieces:
            pieces.append(piece[left:])
            left = max(left - len(piece), 0)
        return pieces

    async def _take_partial(self, request: ByteAppend, writer: WriterPosition) -> Appended:
        """Return the result of an append that the back has whole since an earlier attempt."""
        writers = self._stream.writers
        partial = writers.partial[writer.writer]
        writers.reach(writer.writer, writer.position, request.skipped)
        await writers.rest()
        left = writers.partial.get(writer.writer, ())
        result = ack_of_batches(partial[: len(partial) - len(left)] or partial[:1], partial[-1].end)
        if left:
            return _ending(result, left[0].offset)
        return result


def _ending(result: Appended, offset: int) -> Appended:
    return Appended(result.start, result.end, result.tail, None, offset)


class Lane:
    """The byte appends to one stream, in order, through one append session at a time.

    `run` is a task of the back's nursery; a lane that has been idle ends, and `ended` is set.
    """

    def __init__(self, stream: ByteStream, records: Back, counter: OffsetCounter, settings: BytesSettings) -> None:
        self._stream = stream
        self._records = records
        self._counter = counter
        self._settings = settings
        self._decisions = Decisions(stream, records, counter)
        self._queue: deque[ByteAppend] = deque()
        self._accepted: deque[ByteAppend] = deque()  # decided, or about to be, and not settled
        self._size = 0
        self._room = trio.lowlevel.ParkingLot()
        self._turns = trio.StrictFIFOLock()
        self._work = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._at = RecordOffset(0, 0)  # end of the last acknowledged batch
        self._broken: Failure | None = None
        self._token: str | None = None  # the token that the session was opened with
        self.ended = False

    @property
    def last(self) -> ByteAppend | None:
        """The last of the requests that are not settled; None if all are settled."""
        return next((appends[-1] for appends in (self._queue, self._accepted) if appends), None)

    @property
    def large(self) -> ByteAppend | None:
        """An append of several batches in flight, in the middle of which nothing may be appended; None if none is."""
        return next((request for request in self._accepted if len(request.batches) > 1), None)

    async def room(self, request: ByteAppend) -> None:
        """Wait until `submit` may be called, in order of calls: small requests do not overtake a large one."""
        async with self._turns:
            while self._size and self._size + request.size > self._settings.append_inflight_bytes and not self.ended:
                await self._room.park()

    def submit(self, request: ByteAppend) -> None:
        """Queue an append. Requests that are queued before a seal begins are appended before it.

        Raises OperationFailed(PERMISSION_DENIED) if the back has no token for the client.
        """
        request.token = self._records.access_token()
        if self._stream.leaving:
            request.fail(lost(self._stream.ref).failure)
            return
        if self._stream.sealing:
            request.fail(Failure(FailureCode.STREAM_SEALED, f"stream {self._stream.ref} is sealed"))
            return
        self._size += request.size
        self._queue.append(request)
        self._work.unpark_all()

    def withdraw(self, request: ByteAppend) -> None:
        """Remove an append from the queue. Does nothing if it is not queued any more."""
        if request in self._queue:
            self._queue.remove(request)
            self._leave(request)

    async def run(self) -> None:
        """Carry out queued appends until the lane has been idle for `idle_seconds`."""
        try:
            while self._queue or await self._has_work():
                try:
                    await self._run_session()
                except OperationFailed as error:
                    await self._failed(error.failure)
                except Replaced:
                    await self._failed(unknown_stream(self._stream.ref).failure)
        finally:
            self.ended = True
            if self._stream.lane is self:
                self._stream.lane = None
            self._room.unpark_all()

    async def _has_work(self) -> bool:
        with trio.move_on_after(self._settings.idle_seconds):
            while not self._queue:
                await self._work.park()
        return bool(self._queue)

    # ---- to the back ---------------------------------------------------------------------------------------------

    async def _run_session(self) -> None:
        if not self._queue:  # it was withdrawn
            return
        CLIENT.set(self._queue[0].client)
        self._token = self._queue[0].token
        await resolve_intents(self._stream, self._counter)
        self._at, self._broken = self._stream.offsets.end, None
        async with self._records.append_session(self._stream.ref, create_if_missing=False) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, session, nursery.cancel_scope)
                await self._send(session, nursery.cancel_scope)
            if self._broken is not None:
                raise OperationFailed(self._broken)

    async def _send(self, session: AppendSession, scope: trio.CancelScope) -> None:
        try:
            while (self._queue or await self._has_work()) and self._is_next_of_same():
                alone = self._decisions.is_alone(self._queue[0])
                if alone:
                    await self._settled()
                group = await self._next_alone() if alone else await self._next_group()
                intents = [intent for request in group if (intent := request.intent) is not None]
                if intents:
                    await _apart(self._stream.writers.intend(self._at, intents))
                for request in group:
                    await self._hand_over(session, request)
                if alone:
                    await self._settled()
            session.close()
        except OperationFailed as error:
            self._break(error.failure, scope)

    async def _next_group(self) -> list[ByteAppend]:
        """Accept queued requests, in order, and return those to be sent together."""
        group: list[ByteAppend] = []
        while len(group) < GROUP_INTENTS and self._is_next_of_same() and not self._decisions.is_alone(self._queue[0]):
            request = self._queue.popleft()
            self._accepted.append(request)
            if await self._accept(request):
                group.append(request)
        return group

    def _is_next_of_same(self) -> bool:
        """Return whether there is a next request, and its token is that of the session."""
        return bool(self._queue) and self._queue[0].token == self._token

    async def _next_alone(self) -> list[ByteAppend]:
        if not self._is_next_of_same():  # it was withdrawn
            return []
        request = self._queue.popleft()
        self._accepted.append(request)
        return [request] if await self._accept(request) else []

    async def _accept(self, request: ByteAppend) -> bool:
        """Decide about a request and return whether it is to be sent; else it is settled."""
        failure = request.chain.failure
        try:
            done = None if failure else await self._decisions.decide(request)
        except OperationFailed as error:
            failure = error.failure
        except Replaced:
            failure = unknown_stream(self._stream.ref).failure
        if failure is None and done is None:
            return True
        self._accepted.remove(request)
        self._end(request, failure or done)
        return False

    async def _hand_over(self, session: AppendSession, request: ByteAppend) -> None:
        stream, match = self._stream.ref, request.match_seq_num
        for bodies, headers, metered, _ in request.batches:
            await session.send(Append(stream, bodies, metered, headers, match_seq_num=match, create_if_missing=False))
            match = None if match is None else match + len(bodies)

    def _break(self, failure: Failure, scope: trio.CancelScope) -> None:
        """End the session with a failure."""
        self._broken = self._broken or failure
        scope.cancel()

    # ---- from the back -------------------------------------------------------------------------------------------

    async def _receive(self, session: AppendSession, scope: trio.CancelScope) -> None:
        try:
            while acknowledged := await session.receive():
                for ack in acknowledged:
                    await _apart(self._acknowledge(ack))
        except OperationFailed as error:
            self._break(error.failure, scope)
        except Replaced:
            self._break(unknown_stream(self._stream.ref).failure, scope)

    async def _acknowledge(self, ack: Appended) -> None:
        request = self._accepted[0]
        length = request.batches[len(request.found)].print.length
        start = ack.start.seq_num
        begin = await self._counter.place_of(self._stream, start, self._at)
        end = RecordOffset(ack.end.seq_num, begin.offset + length)
        if self._stream.offsets.end.seq_num == start:
            self._stream.offsets.advance(end)
        self._at = end
        if request.match_seq_num is not None:
            self._stream.writers.late = None  # late batches can never be applied now
        request.found.append(FoundBatch(ack.start, ack.end, begin.offset, end.offset))
        if len(request.found) == len(request.batches):
            self._accepted.popleft()
            self._confirm(request, end)
            first = request.found[0].start
            self._end(request, Appended(first, ack.end, ack.tail, ack.last_id, end.offset))

    def _confirm(self, request: ByteAppend, end: RecordOffset) -> None:
        if (writer := request.append.writer) is not None:
            self._stream.writers.confirm(writer.writer, writer.position, end, request.skipped)
        self._decisions.settled(request)

    async def _failed(self, failure: Failure) -> None:
        """Settle the accepted requests after a session failed: find out which the back has, and fail the others.

        If none was accepted, fail the queued requests of the session's token.
        """
        accepted = [request for request in self._accepted if request.decided]
        self._queue.extendleft([request for request in self._accepted if not request.decided])  # at most one
        self._accepted.clear()
        if not accepted:
            while self._is_next_of_same():
                self._end(self._queue.popleft(), failure)
            return
        for request in accepted:
            self._decisions.settled(request)
        if failure.code is FailureCode.SEQ_NUM_MISMATCH and accepted[0].match_seq_num is not None:
            self._outrun(accepted[0])
            return
        await self._look(accepted, failure)
        for request in accepted:
            if request.found and len(request.found) == len(request.batches):
                self._end(request, ack_of_batches(request.found, request.found[-1].end))
            else:
                self._end(request, failure)

    def _outrun(self, request: ByteAppend) -> None:
        """Queue a request again whose condition failed because another client appended first.

        Only requests that are sent alone have a condition. Fails the request if it is at an offset and part of it was
        applied before the other append.
        """
        writers, writer = self._stream.writers, request.append.writer
        found_batches, request.found, request.decided = request.found, [], False
        if found_batches and writer is not None:
            writers.keep_partial(writer.writer, (*writers.partial.get(writer.writer, ()), *found_batches))
        writers.give_up()
        if found_batches and request.append.match_offset is not None:
            message = f"part of it was appended before another client appended to stream {self._stream.ref}"
            self._end(request, Failure(FailureCode.UNAVAILABLE, message))
            return
        self._queue.appendleft(request)

    async def _look(self, accepted: list[ByteAppend], failure: Failure) -> None:
        """Find out which batches the back has of the accepted requests that have a writer."""
        writers = self._stream.writers
        tracked = {request: intent for request in accepted if (intent := request.intent) is not None}
        for request, intent in tracked.items():
            if request.found and intent.writer is not None:
                writers.keep_partial(intent.writer, (*writers.partial.get(intent.writer, ()), *request.found))
        if not failure.side_effect_possible:
            writers.give_up()
            return
        writers.unresolved = IntentGroup(0, self._at, list(tracked.values()))
        try:
            resolved = await resolve_intents(self._stream, self._counter)
        except (OperationFailed, Replaced):
            return  # it stays unresolved, and the next attempt looks again
        for request, batches in zip(tracked, resolved, strict=True):
            request.found += batches

    # ---- ends ----------------------------------------------------------------------------------------------------

    async def _settled(self) -> None:
        """Wait until all accepted requests are settled."""
        while self._accepted:
            await self._drained.park()

    def _end(self, request: ByteAppend, outcome: Appended | Failure | None) -> None:
        self._leave(request)
        if isinstance(outcome, Appended):
            request.succeed(outcome)
        elif outcome is not None:
            request.fail(outcome)
        if not self._accepted:
            self._drained.unpark_all()

    def _leave(self, request: ByteAppend) -> None:
        self._size -= request.size
        self._room.unpark_all()


async def _apart(doing: Awaitable[None]) -> None:
    """Await work that is not part of the session. Its failure says nothing about the appends that were sent, so it is
    raised as one after which they may have been applied."""
    try:
        await doing
    except OperationFailed as error:
        if error.failure.side_effect_possible:
            raise
        raise OperationFailed(Failure(FailureCode.UNAVAILABLE, error.failure.message)) from None


class _Row(msgspec.Struct, frozen=True):
    """The durable state of a stream. `layouts`: pairs of a record number and the `Layout` bits from that record on; see
    `ByteStream.parts`. `sealed_at`: its length once it is sealed, and with several gateways `sealed_seq_num`, the
    number of its records. `sealing`: one of several gateways has begun to seal it. `incarnation`: see
    `ByteStreamInfo`; it is chosen at the first byte operation and lasts until the row is deleted."""

    layouts: tuple[tuple[int, int], ...]
    start_offset: int = 0
    sealed_at: int | None = None
    sealed_seq_num: int | None = None
    sealing: bool = False
    last_modified: int = 0
    incarnation: str = ""


_ROW: Final = msgspec.json.Decoder(_Row)


class ByteStream:
    """The byte view of one stream. Tasks that wait for a change of it park at `changed`."""

    def __init__(
        self, ref: StreamRef, row: _Row, owned: int, table: ByteTable, offsets: Offsets, writers: WriterStates
    ) -> None:
        self.ref = ref
        self.row = row
        self.offsets = offsets
        self.writers = writers
        self.first = RecordOffset(0, 0)
        """The first record known to be kept."""
        self.changed = trio.lowlevel.ParkingLot()
        self.counting = trio.Lock()
        self.resolving = trio.Lock()
        self.changing = trio.Lock()
        self.windows: list[ReadWindow] = []
        self.lane: Lane | None = None
        self.users = 0
        self.gone = False
        self.owned = owned
        """The version of the ownership (`StreamOwners.take`)."""
        self.leaving = False
        """True once another gateway needs the stream: no appends of bytes are accepted any more."""
        self.left = trio.Event()
        """Set when another gateway may own the stream."""
        self.sealing = row.sealed_at is not None
        self._table = table

    @property
    def start_offset(self) -> int:
        """Offset of the first byte known to be kept."""
        return max(self.row.start_offset, self.first.offset)

    @property
    def envelopes(self) -> Layout:
        """The `Layout` bits for records that are appended now."""
        return Layout(self.row.layouts[-1][1])

    @property
    def rests(self) -> bool:
        """True if the stream has no users, windows or lane."""
        return not (self.users or self.windows or self.lane)

    async def save(self, **changes: object) -> None:
        """Change fields of the row durably, and wake the tasks at `changed`."""
        row = msgspec.structs.replace(self.row, **changes)
        await self._table.put((key_of(self.ref), msgspec.json.encode(row)))
        self.row = row
        self.changed.unpark_all()

    def update(self, row: _Row) -> None:
        """Take note of a row that another gateway has stored."""
        if row != self.row:
            self.row, self.sealing = row, row.sealed_at is not None
            self.changed.unpark_all()

    def parts(self, batch: RecordBatch) -> Iterator[tuple[RecordBatch, Layout]]:
        """Split a batch by layout: the layout of a record never changes once it was counted."""
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
        """Return the length of these records in bytes of the stream."""
        return sum(count_bytes(part.columns, layout) for part, layout in self.parts(batch))

    def spans(self, batch: RecordBatch, begin: int) -> Iterator[tuple[int, int, int]]:
        """Yield the start and end offset of each record's bytes, and its number; the first one begins at `begin`."""
        seq_num = batch.first_seq_num
        for part, layout in self.parts(batch):
            for start, stop in pairwise(starts(part.columns, layout)):
                yield begin + start, begin + stop, seq_num
                seq_num += 1
            begin += stop

    def render(self, batch: RecordBatch, first_offset: int) -> Rendered:
        """Render records as bytes; the first one begins at `first_offset`."""
        pieces = []
        for part, layout in self.parts(batch):
            pieces.append(render_records(part.columns, layout, first_offset))
            first_offset = pieces[-1].end_offset
        if len(pieces) == 1:
            return pieces[0]
        marks = [mark for piece in pieces for mark in piece.marks]
        return Rendered(pieces[0].first_offset, b"".join([piece.data for piece in pieces]), marks)

    def check(self, offset: int | None = None) -> None:
        """Raise STREAM_NOT_FOUND if the stream was deleted, OFFSET_TRUNCATED if this offset is not kept any more."""
        if self.gone:
            raise unknown_stream(self.ref)
        start = self.start_offset
        if offset is not None and offset < start:
            raise fail(FailureCode.OFFSET_TRUNCATED, f"{self.ref} is kept from offset {start} on", offset=start)

    @contextmanager
    def used(self) -> Iterator[ByteStream]:
        """Keep the stream in memory until the block ends."""
        self.users += 1
        try:
            yield self
        finally:
            self.users -= 1


class ByteStreams:
    """The byte views of all streams of one back that had a byte operation; the most recently used are in memory."""

    def __init__(self, records: Back, name: str, state: Back, settings: BytesSettings) -> None:
        self.direct: Counter[StreamRef] = Counter()
        """Number of appends of records in flight to the back, outside of lanes."""
        self.settled = trio.lowlevel.ParkingLot()
        """Tasks park here until `direct` is zero for a stream."""
        self.count: Callable[[ByteStream], Awaitable[object]]
        """Counts a stream's bytes up to its tail; set by the owner after construction."""
        self._records = records
        self._name = name
        self._state = state
        self._settings = settings
        self._rows = ByteTable(state, f"#bytes/{name}")
        self._owners = StreamOwners(state, self._rows)
        self._cached: OrderedDict[StreamRef, ByteStream] = OrderedDict()
        self._taking: Counter[StreamRef] = Counter()  # tasks that are about to own a stream
        self._took = trio.lowlevel.ParkingLot()
        self._leaving: set[StreamRef] = set()  # streams that are given up soon
        self._given_up: dict[StreamRef, trio.Event] = {}  # of streams for which no further task may be `_taking`
        self._views: dict[StreamRef, ByteStream] = {}  # of streams that are read, and not owned
        self._touched = BloomFilter()
        self._loading = trio.Lock()

    def __iter__(self) -> Iterator[ByteStream]:
        return iter(list(self._cached.values()))

    def peek(self, ref: StreamRef) -> ByteStream | None:
        """Return the stream if it is in memory."""
        return self._cached.get(ref)

    async def load(self) -> None:
        """Read the names of all streams that had a byte operation, unless the state is in memory anyway."""
        if self._owners.several:
            return
        async for key, _ in self._rows.items():
            self._touched.add(ref_of(key))

    async def of_basin(self, basin: str) -> list[StreamRef]:
        """Return the streams of a basin that had a byte operation."""
        return [ref_of(key) async for key, _ in self._rows.items(f"{basin}/".encode())]

    def may_be_known(self, ref: StreamRef) -> bool:
        """Return whether the stream may have had a byte operation; rarely true of one that had none. Of several
        gateways, one hears of it a moment after another has begun."""
        return self._owners.has_row(key_of(ref)) if self._owners.several else ref in self._touched

    async def known(self, ref: StreamRef) -> ByteStream | None:
        """Return the stream, or None if it never had a byte operation."""
        if self._owners.several:
            return await self._owned(ref)
        if ref not in self._touched:
            return None
        if (stream := self._cached.get(ref)) is not None:
            self._cached.move_to_end(ref)
            return stream
        async with self._loading:
            return self._cached.get(ref) or await self._load(ref)

    async def _owned(self, ref: StreamRef) -> ByteStream | None:
        """Return the stream and own it, or None if it never had a byte operation through any gateway."""
        if (await self._rows.get(key_of(ref)))[0] is None:
            return None
        while True:
            while (given_up := self._given_up.get(ref)) is not None:
                await given_up.wait()
            if (stream := self._cached.get(ref)) is not None and stream.leaving:
                await stream.left.wait()
            if (stream := await self._taken(ref)) is None or not stream.leaving:
                return stream

    async def _taken(self, ref: StreamRef) -> ByteStream | None:
        """Own a stream, and return it as it is now, or None if it never had a byte operation."""
        self._taking[ref] += 1
        try:
            owned = await self._owners.take(ref)
            async with self._loading:
                stream = self._cached.get(ref)
                if stream is None or stream.owned != owned:
                    self._drop(ref, stream)
                    stream = await self._load(ref, owned)
                if stream is not None and stream.row.sealing and not stream.sealing:  # the seal was not finished
                    await stream.save(sealing=False)
                return stream
        finally:
            self._taking[ref] -= 1
            if not self._taking[ref]:
                del self._taking[ref]
                self._took.unpark_all()

    def _drop(self, ref: StreamRef, stream: ByteStream | None) -> None:
        """Forget the state in memory of a stream that another gateway has, or has had."""
        if stream is not None and self._cached.get(ref) is stream:
            del self._cached[ref]
            stream.leaving = True
            stream.left.set()
            stream.changed.unpark_all()

    async def has(self, ref: StreamRef) -> bool:
        """Return whether the stream had a byte operation, without owning it."""
        if self._owners.several:
            return (await self._rows.get(key_of(ref)))[0] is not None
        return await self.known(ref) is not None

    async def for_records(self, ref: StreamRef) -> ByteStream | None:
        """Return the stream if appends of records may meet byte operations of this gateway. Raises STREAM_SEALED.

        Another gateway may seal the stream after that: see `sealed_end`.
        """
        if self._owners.several:
            stored = self._owners.peek(key_of(ref))
            row = None if stored is None else _ROW.decode(stored)
            stream = self._cached.get(ref)
            if row is not None and row.sealing and not (stream is not None and stream.sealing):
                row = await self._row_after_seal(ref)
            sealed = row is not None and row.sealed_at is not None
        else:
            stream, sealed = await self.known(ref), False
        if sealed or (stream is not None and stream.sealing):
            raise fail(FailureCode.STREAM_SEALED, f"stream {ref} is sealed")
        return stream

    async def sealed_end(self, ref: StreamRef) -> int | None:
        """Return the number of records of a stream that another gateway may have sealed while this one appended; None
        for an open stream. What was appended behind it is not part of the stream.

        A gateway that seals a stream first says so in its row, and then counts the records. So records that it has not
        counted came to the server after that, and the row shows it now.
        """
        if not self._owners.several:
            return None
        (stored,) = await self._rows.get(key_of(ref))
        row = None if stored is None else _ROW.decode(stored)
        stream = self._cached.get(ref)
        if row is not None and row.sealing and not (stream is not None and stream.sealing):
            row = await self._row_after_seal(ref)
        return None if row is None else row.sealed_seq_num

    async def _row_after_seal(self, ref: StreamRef) -> _Row | None:
        """Wait until another gateway has sealed a stream, or gives it up, and return the row."""
        stream = await self._owned(ref)
        return None if stream is None else stream.row

    async def for_reads(self, ref: StreamRef) -> ByteStream:
        """Return the stream for an operation that reads bytes, which need not own it. Raises as `find` does."""
        if not self._owners.several or ((stream := self._cached.get(ref)) is not None and not stream.leaving):
            return await self.find(ref)
        (stored,) = await self._rows.get(key_of(ref))
        if stored is None or Layout(_ROW.decode(stored).layouts[-1][1]) != self._settings.envelopes:
            return await self.find(ref)
        view = self._views.get(ref)
        if view is None:
            async with self._loading:
                view = self._views[ref] = await self._loaded(ref, stored, NOT_OWNED)
        view.update(_ROW.decode(stored))
        return view

    async def give_up_wanted(self) -> None:
        """Give streams up that other gateways need, until cancelled."""
        async with trio.open_nursery() as nursery:
            async for ref in self._owners.wanted():
                if ref not in self._leaving:
                    self._leaving.add(ref)
                    nursery.start_soon(self._give_up, ref)

    async def _give_up(self, ref: StreamRef) -> None:
        """End what was begun with a stream, store what is known of it, and let another gateway own it."""
        await trio.sleep(TENURE)
        given_up = self._given_up[ref] = trio.Event()
        try:
            while self._taking[ref]:
                await self._took.park()
            self._leaving.discard(ref)
            await self._give_up_now(ref)
        finally:
            given_up.set()
            if self._given_up.get(ref) is given_up:
                del self._given_up[ref]

    async def _give_up_now(self, ref: StreamRef) -> None:
        stream = self._cached.get(ref)
        try:
            if stream is not None:
                stream.leaving = True
                async with stream.changing:  # a seal is finished: others wait for its end, and want the stream for that
                    pass
                while stream.lane is not None and (last := stream.lane.last) is not None:
                    await last.wait_settled()
                await stream.writers.rest()
                await stream.offsets.save()
            await self._owners.give_up(ref)
        except OperationFailed as error:
            log.info("stream_not_given_up", stream=str(ref), reason=str(error.failure))
        finally:
            self._drop(ref, stream)

    async def find(self, ref: StreamRef) -> ByteStream:
        """Return the stream for a byte operation. Raises STREAM_NOT_FOUND if the back does not have it."""
        if (stream := await self.known(ref)) is None:
            stream = await self._begin(ref)
        if stream.envelopes != self._settings.envelopes:
            await self._change_layout(stream)
        return stream

    async def _begin(self, ref: StreamRef) -> ByteStream:
        await self._records.perform(CheckTail(ref, create_if_missing=False))
        several = self._owners.several
        async with self._loading:
            stream = None if several else self._cached.get(ref) or await self._load(ref)
            if stream is None:
                row = _Row(((0, int(self._settings.envelopes)),), incarnation=token_hex(8))
                self._touched.add(ref)
                await self._rows.add((key_of(ref), msgspec.json.encode(row)))
                stream = None if several else await self._load(ref)
        stream = stream or await self._owned(ref)
        assert stream is not None
        return stream

    async def _change_layout(self, stream: ByteStream) -> None:
        """Apply changed `envelopes` settings, for records appended from now on only."""
        async with stream.changing:
            if stream.envelopes != self._settings.envelopes:
                await self.count(stream)
                await stream.offsets.save()
                layout = (stream.offsets.end.seq_num, int(self._settings.envelopes))
                await stream.save(layouts=(*stream.row.layouts, layout))

    async def forget(self, ref: StreamRef) -> None:
        """Delete all state of a stream that was deleted or replaced."""
        if await self.known(ref) is None:
            return
        async with self._loading:
            if (stream := self._cached.pop(ref, None)) is not None:
                stream.gone = True
                stream.changed.unpark_all()
            await ByteTable(self._state, self._offsets_of(ref)).delete()
            await ByteTable(self._state, self._writers_of(ref)).delete()
            await self._rows.remove(key_of(ref))
            await self._owners.forget(ref)

    @property
    def several(self) -> bool:
        """True if byte operations may come through other gateways."""
        return self._owners.several

    async def rest(self) -> None:
        """Make counts durable, and drop unused streams from memory if there are more than `cached_streams`."""
        for stream in self:
            if not stream.gone and (stream.offsets.must_save or (stream.rests and not stream.offsets.is_saved)):
                with stream.used():
                    await stream.offsets.save()
            if stream.rests and not stream.gone:
                with stream.used():
                    await stream.writers.rest()
        for ref, view in list(self._views.items()):
            if view.rests:
                del self._views[ref]
        excess = len(self._cached) - self._settings.cached_streams
        for ref, stream in list(self._cached.items()):
            if excess <= 0:
                break
            if stream.rests and stream.offsets.is_saved and stream.writers.is_saved:
                del self._cached[ref]
                excess -= 1

    async def _load(self, ref: StreamRef, owned: int = 0) -> ByteStream | None:
        (stored,) = await self._rows.get(key_of(ref))
        if stored is None:
            return None
        stream = self._cached[ref] = await self._loaded(ref, stored, owned)
        return stream

    async def _loaded(self, ref: StreamRef, row: bytes, owned: int) -> ByteStream:
        table = self._owners.tables(ref, owned)
        offsets = await Offsets.load(table(self._offsets_of(ref)), self._settings.mark_every_bytes)
        writers = await WriterStates.load(table(self._writers_of(ref)))
        return ByteStream(ref, _ROW.decode(row), owned, table(self._rows.name), offsets, writers)

    def _offsets_of(self, ref: StreamRef) -> str:
        return f"#offsets/{self._name}/{ref}"

    def _writers_of(self, ref: StreamRef) -> str:
        return f"#writers/{self._name}/{ref}"


def unknown_stream(ref: StreamRef) -> OperationFailed:
    """Return the error for a stream that does not exist."""
    return fail(FailureCode.STREAM_NOT_FOUND, f"stream {ref} does not exist")
