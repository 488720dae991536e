"""Read sessions: they catch up from the file, and follow the tail from memory (S2 fact sheet 5.4, S3P 8.3)."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from penstock.core.back import Following, ReadSession
from penstock.core.identity import CLIENT
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MIB
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTailOffset, FromTimestamp, Read
from penstock.model.records import U64_MAX, RecordBatch, RecordId, StreamPosition, StreamRef
from penstock.model.streams import StreamConfig
from penstock.store.batch_windows import BatchWindows
from penstock.store.catalog import StoreCatalog
from penstock.store.committer import CLOSED, Committer
from penstock.store.encryption import RecordCipher, record_cipher
from penstock.store.heads import StoredStream
from penstock.store.positions import find_position, is_beyond, next_id
from penstock.store.reader import ReaderThreads
from penstock.store.registry import unknown_stream
from penstock.store.tail_cache import memory_of
from penstock.store.usage import Usage

__all__ = ["StoreReadSession", "StoreReads"]

MOST_BATCHES: Final = 16
"""Most batches of one hop to a thread and back, which takes as long as reading 200 KiB; READ_BYTES bounds large
ones."""


DECODED_BYTES: Final = 64 * MIB
"""Memory of what all readers together have decoded and not been given yet, as of a large batch in another encoding than
theirs. A reader without room reads the rest again."""
CALLS_PER_PASS: Final = 8
"""Calls of read sessions that need not wait, for one pass through the scheduler."""


class StoreReads:
    """Opens read sessions, and reads ahead for them."""

    def __init__(
        self,
        catalog: StoreCatalog,
        committer: Committer,
        reader: ReaderThreads,
        read_ahead_batches: int,
        usage: Usage,
    ) -> None:
        self._catalog = catalog
        self._committer = committer
        self.reader = reader
        self.usage = usage
        self.nursery: trio.Nursery  # runs the reads of batches; set when the store starts
        self.windows = BatchWindows(MOST_BATCHES)
        self._ahead_left = read_ahead_batches
        self.decoded_room = DECODED_BYTES
        self._not_passed = 0

    async def find_stream(
        self, ref: StreamRef, create_if_missing: bool, create_config: StreamConfig | None = None
    ) -> StoredStream:
        """Return the stream to read, once it is durable; it is created if its basin says so. Raises OperationFailed."""
        try:
            stream, created = self._catalog.find_or_create(
                ref, create_if_missing, "create_stream_on_read", create_config
            )
        except OperationFailed as error:
            await self._committer.settle(error.failure)
            raise
        if created is None and stream.durably_alive:
            return stream
        with stream.held():  # else it might be dropped from memory when durable, before this task goes on
            if created is not None:
                await created.wait()
            elif not stream.durably_alive:  # another task's creation is not durable yet
                await self._committer.settle(None)
        if not stream.durably_alive:
            raise unknown_stream(stream.ref)
        return stream

    def session(self, read: Read) -> _Opening:
        """Open a read session; see `Back.read_session`."""
        return _Opening(self, read)

    async def begin(self, read: Read) -> StoreReadSession:
        """Begin a read; its stream is held until `StoreReadSession.end`. Raises OperationFailed."""
        if isinstance(read.start, FromTimestamp) and read.until is not None and read.start.timestamp >= read.until:
            raise fail(FailureCode.INVALID, "start `timestamp` exceeds or equal to `until`")
        stream = await self.find_stream(read.stream, read.create_if_missing, read.create_config)
        cipher = record_cipher(stream, CLIENT.get().encryption_key)
        stream.users += 1
        try:
            session = StoreReadSession(self, stream, read, await self._start(stream, read), cipher)
        except BaseException:
            stream.users -= 1
            raise
        unary = read.count is not None and read.max_bytes is not None and read.wait is not None
        self.usage.read(read.stream.basin, "unary" if unary else "streaming")
        return session

    async def _start(self, stream: StoredStream, read: Read) -> int | RecordId:
        """Return the start of a read: a sequence number, or an identifier that lies in the future."""
        head = stream.durable
        tail = head.tail
        if read.exhausted:
            return tail.seq_num
        match read.start:
            case FromRecordId(record_id):
                if is_beyond(read.start, head):
                    return tail.seq_num if record_id <= next_id(head) else record_id
                found = self.windows.find(stream, read.start)
                return (await find_position(self.reader, stream, read.start)).seq_num if found is None else found
            case FromTimestamp(timestamp) if timestamp <= tail.timestamp:
                found = self.windows.find(stream, read.start)
                position = (await find_position(self.reader, stream, read.start)).seq_num if found is None else found
            case FromByteOffset(offset) if offset <= head.next_offset:
                position = (await find_position(self.reader, stream, read.start)).seq_num
            case FromSeqNum(seq_num):
                position = seq_num
            case FromTailOffset(offset):
                position = max(tail.seq_num - offset, 0)
            case _:
                position = tail.seq_num + 1  # a timestamp or an offset after the tail's
        tail = stream.durable.tail  # records may have come while the position was looked up
        if position > tail.seq_num and read.clamp:
            position = tail.seq_num
        if position > tail.seq_num or (position == tail.seq_num and not read.may_follow):
            raise fail(
                FailureCode.RANGE_NOT_SATISFIABLE,
                f"the read starts at or after the tail {tail.seq_num}",
                tail={"seq_num": tail.seq_num, "timestamp": tail.timestamp},
            )
        return position

    def fetch(
        self, stream: StoredStream, position: int, max_records: int, max_bytes: int, most: int, ahead: bool
    ) -> ReadFetch | None:
        """Start reading up to `most` batches from the file, or fewer if too many batches are read ahead. Only the first
        one does not count among these, unless it is read `ahead` itself. Return None if none may be read."""
        needed = 0 if ahead else 1
        reserved = min(most - needed, self._ahead_left)
        if not needed + reserved:
            return None
        self._ahead_left -= reserved
        fetch = ReadFetch(position, needed + reserved, reserved)
        span = range(position, stream.durable.next_seq)
        self.nursery.start_soon(self._carry_out, fetch, stream.id, span, max_records, max_bytes)
        return fetch

    async def check_in(self) -> None:
        """Pass through the scheduler, unless fewer than CALLS_PER_PASS calls have been made since the last time.

        A pass takes as long as a read of a few records from memory, and a task that has just begun has made one.
        """
        self._not_passed = (self._not_passed + 1) % CALLS_PER_PASS
        if self._not_passed:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()

    def give_back(self, reserved: int) -> None:
        """Give back the read-ahead room of batches that their reader has taken or dropped."""
        self._ahead_left += reserved

    async def _carry_out(self, fetch: ReadFetch, stream: int, span: range, max_records: int, max_bytes: int) -> None:
        try:
            with fetch.scope:
                fetch.batches = await self.reader.batches(stream, span, max_records, max_bytes, fetch.most)
        except OperationFailed as error:
            fetch.failure = error.failure
        except trio.Cancelled:
            fetch.failure = CLOSED
            raise
        finally:
            fetch.done.set()


class _Opening:
    """A read session while its block runs. A generator in its place would take 300 bytes of each follower's memory."""

    __slots__ = ("_read", "_reads", "_session")

    def __init__(self, reads: StoreReads, read: Read) -> None:
        self._reads = reads
        self._read = read
        self._session: StoreReadSession

    async def __aenter__(self) -> StoreReadSession:
        self._session = await self._reads.begin(self._read)
        return self._session

    async def __aexit__(self, *_: object) -> None:
        self._session.end()


class ReadFetch:
    """Up to `most` consecutive batches being read from the file; `reserved` of them take read-ahead room."""

    __slots__ = ("batches", "done", "failure", "most", "position", "reserved", "scope")

    def __init__(self, position: int, most: int, reserved: int) -> None:
        self.position = position
        self.most = most
        self.reserved = reserved
        self.batches: list[RecordBatch] = []
        self.failure: Failure | None = None
        self.done = trio.Event()
        self.scope = trio.CancelScope()  # cancelled when its session drops it


class _Bounds(msgspec.Struct):
    """The remaining bounds of a read: records, metered bytes, and the sequence number before which it ends."""

    count: int
    max_bytes: int
    end: int = U64_MAX

    def cut(self, batch: RecordBatch) -> RecordBatch | None:
        """Return the part of a batch that is within the bounds, or None if it is empty; reduce the bounds by it."""
        stop = min(batch.count, self.count, max(self.end - batch.first_seq_num, 0))
        if batch.metered > self.max_bytes and stop:
            stop = min(stop, batch.fitting(self.max_bytes))
        if not stop:
            return None
        part = batch.part(0, stop)
        self.count -= stop
        self.max_bytes -= part.metered
        return part


class StoreReadSession(ReadSession):
    """A read session. `start`: a sequence number, or an identifier in the future that records must reach. `cipher`
    decrypts the records; None if they are stored in plain text."""

    __slots__ = (
        "_bounds",
        "_cipher",
        "_deadline",
        "_decoded_bytes",
        "_delivered",
        "_depth",
        "_ended",
        "_fetch",
        "_following",
        "_least_id",
        "_pages",
        "_position",
        "_read",
        "_reads",
        "_ready",
        "_reserved",
        "_stream",
        "_until",
        "_waits",
    )

    def __init__(
        self,
        reads: StoreReads,
        stream: StoredStream,
        read: Read,
        start: int | RecordId,
        cipher: RecordCipher | None = None,
    ) -> None:
        self._cipher = cipher
        self._reads = reads
        self._stream = stream
        self._read = read
        self._position = start if isinstance(start, int) else stream.durable.next_seq
        self._least_id = None if isinstance(start, int) else start
        self._bounds = _Bounds(
            U64_MAX if read.count is None else read.count, U64_MAX if read.max_bytes is None else read.max_bytes
        )
        self._pages = read.paged or (read.count is not None and read.count <= MAX_BATCH_RECORDS)
        self._until = read.until
        self._waits = read.wait is None or read.wait > 0 if not read.bounded else bool(read.wait)
        self._deadline: float | None = None
        self._following = False
        self._delivered = False
        self._ended = False
        self._fetch: ReadFetch | None = None
        self._ready: list[RecordBatch] = []  # read, and not delivered yet
        self._reserved = 0  # the read-ahead room that they take
        self._decoded_bytes = 0  # of the first of them, if it is the rest of a batch that was decoded
        self._depth = 1  # batches of the next fetch: twice as many each time, for a client that reads on

    def behind(self) -> bool:
        if self._position >= self._stream.durable.next_seq:  # as of most followers, at each of their heartbeats
            return False
        bounds = self._bounds
        return not self._ended and self._position < bounds.end and bounds.count > 0 and bounds.max_bytes > 0

    def tail(self) -> StreamPosition:
        return self._stream.durable.tail

    def end(self) -> None:
        """End the session."""
        self._drop()
        self._stream.users -= 1

    def _drop(self) -> None:
        """Drop what was read ahead."""
        self._ready.clear()
        self._reserve(0)
        self._release_decoded()
        if self._fetch is not None:
            self._reads.give_back(self._fetch.reserved)
            self._fetch.scope.cancel()
            self._fetch = None

    async def next(self) -> RecordBatch | Following | None:
        # A long read lets other tasks run after each batch; a page has few batches, and goes on at once.
        if self._following or (self._delivered and not self._read.paged and self.behind()):
            await trio.lowlevel.checkpoint()
        else:
            await self._reads.check_in()
        while not self._ended:
            if not self._stream.durably_alive:
                raise unknown_stream(self._stream.ref)
            if not (self._bounds.count and self._bounds.max_bytes):
                break
            await self._resolve()
            head = self._stream.durable
            self._position = max(self._position, head.trim_point)
            if self._position >= self._bounds.end:
                break
            if self._position < head.next_seq:
                batch = await self._next_batch()
                if batch is not None:
                    return batch
            elif not self._waits:
                break
            elif not self._following:
                self._following = True
                self._arm()
                return Following(head.tail)
            elif self._read.wait is None:
                await self._stream.followers.park()
            elif not await self._more():
                break
        self._ended = True
        return None

    async def _resolve(self) -> None:
        """Convert bounds by identifier or timestamp into sequence numbers, once records at or after them exist."""
        while True:
            head = self._stream.durable
            if self._least_id is not None and head.last_id is not None and head.last_id >= self._least_id:
                self._position = await self._find(FromRecordId(self._least_id))
                self._least_id = None
            elif self._until is not None and head.last_id is not None and head.last_id.ms >= self._until:
                self._bounds.end = await self._find(FromTimestamp(self._until))
                self._until = None
            else:
                break
        if self._least_id is not None:
            self._position = head.next_seq

    async def _find(self, start: FromRecordId | FromTimestamp) -> int:
        return (await find_position(self._reads.reader, self._stream, start)).seq_num

    # ---- batches ----

    def ready(self) -> RecordBatch | None:
        wanted = self._ready and not self._ended and self._stream.durably_alive and self._until is None
        if not wanted or self._stream.durable.trim_point > self._position or not self.behind():
            return None
        whole = self._take_ready()
        return None if whole is None else self._delivery(whole)

    async def _next_batch(self) -> RecordBatch | None:
        """Return the next records; None if they were trimmed meanwhile or lie beyond a bound."""
        stream = self._stream
        whole = self._take_ready() or stream.recent.take(self._position, stream.durable.tail)
        if whole is None and self._pages:
            whole = self._reads.windows.take(stream, self._position)
        if whole is None:
            self._following = False
            whole = await self._fetched()
            if whole is None:
                return None
        return self._delivery(whole)

    def _delivery(self, whole: RecordBatch) -> RecordBatch | None:
        """Return what the reader gets of a batch at once, and go on behind it; None if it lies beyond a bound."""
        batch = whole
        if self._cipher is not None:
            batch = self._cipher.opened(whole.part(0, min(whole.count, self._bounds.count, MAX_BATCH_RECORDS)))
        limited = batch if batch.wire is not None and batch.wire.encoding == self._read.encoding else _limited(batch)
        delivered = self._bounds.cut(limited)
        if delivered is None or delivered.count < limited.count:
            self._ended = True
        if delivered is None:
            return None
        has_room = True
        if delivered.count < whole.count and not self._ended:
            has_room = self._keep(whole.part(delivered.count, whole.count))
        # Not behind the first batch: clients that never take it would hold the read-ahead room of all readers.
        reads_ahead = has_room and self._delivered
        self._position = delivered.next_seq_num
        self._delivered = True
        self._deadline = None
        self._reads.usage.delivered(self._stream.basin.name, delivered.metered)
        if reads_ahead:
            self._read_ahead()
        return delivered

    def _keep(self, remainder: RecordBatch) -> bool:
        """Keep the remainder of a batch for the next delivery, or drop all that was read and return False if there is
        no room."""
        size = memory_of(remainder)
        if size > self._reads.decoded_room:
            self._drop()
            return False
        self._reads.decoded_room -= size
        self._decoded_bytes = size
        self._ready.insert(0, remainder)
        return True

    def _release_decoded(self) -> None:
        self._reads.decoded_room += self._decoded_bytes
        self._decoded_bytes = 0

    def _take_ready(self) -> RecordBatch | None:
        """Return the next batch that was read already; None if there is none, or if records were trimmed meanwhile."""
        ready = self._ready
        self._release_decoded()
        if ready and ready[0].first_seq_num != self._position:
            ready.clear()
        batch = ready.pop(0) if ready else None
        self._reserve(len(ready))
        if batch is not None and batch.next_seq_num == self._stream.durable.next_seq:
            batch.tail = self._stream.durable.tail
        return batch

    def _reserve(self, most: int) -> None:
        """Give back the read-ahead room for more than `most` batches."""
        if self._reserved > most:
            self._reads.give_back(self._reserved - most)
            self._reserved = most

    async def _fetched(self) -> RecordBatch | None:
        fetch = self._fetch
        if fetch is None or fetch.position != self._position:
            self._drop()
            fetch = self._fetch = self._start_fetch(self._position, ahead=False)
            assert fetch is not None
        await fetch.done.wait()
        self._fetch = None
        self._reserved += fetch.reserved
        self._ready.extend(fetch.batches)
        if len(self._ready) < fetch.most:  # as many as READ_BYTES allows
            self._depth = max(len(self._ready), 1)
        if fetch.failure is not None:
            self._drop()
            raise OperationFailed(fetch.failure)
        if self._pages:
            self._reads.windows.keep(self._stream, fetch.batches)
        if not self._stream.durably_alive:
            raise unknown_stream(self._stream.ref)
        first = self._ready[0].first_seq_num if self._ready else U64_MAX
        if first > self._position >= self._stream.durable.trim_point:
            raise fail(FailureCode.STORAGE, f"record {self._position} of {self._stream.ref} is missing from the store")
        return self._take_ready()

    def _start_fetch(self, position: int, ahead: bool) -> ReadFetch | None:
        """Start reading from `position`, which follows the batches that are ready."""
        max_records = self._bounds.count - sum([batch.count for batch in self._ready])
        max_bytes = self._bounds.max_bytes - sum([batch.metered for batch in self._ready])
        if max_records <= 0 or max_bytes <= 0:
            return None
        depth, self._depth = self._depth, min(2 * self._depth, MOST_BATCHES)
        most = self._reads.windows.depth(self._stream, position) if self._pages and not ahead else 1
        if most > 1 or self._read.paged:
            depth, max_records, max_bytes = most, U64_MAX, U64_MAX  # it reads on for the requests to come
        return self._reads.fetch(self._stream, position, max_records, max_bytes, depth, ahead)

    def _read_ahead(self) -> None:
        """Start reading the next batches while those before them are sent to the client."""
        if self._fetch is not None or self._ended or self._read.paged:
            return
        position = self._ready[-1].next_seq_num if self._ready else self._position
        oldest = self._stream.recent.first_seq_num
        if position < min(self._bounds.end, oldest, self._stream.durable.next_seq):
            self._fetch = self._start_fetch(position, ahead=True)

    # ---- the tail ----

    def _arm(self) -> None:
        if self._deadline is None and self._read.wait is not None:
            self._deadline = trio.current_time() + self._read.wait

    async def _more(self) -> bool:
        """Wait until the stream changes; return False if the wait has expired."""
        self._arm()
        assert self._deadline is not None, "the read's wait is bounded"
        with trio.move_on_at(self._deadline) as scope:
            await self._stream.followers.park()
        return not scope.cancelled_caught


def _limited(batch: RecordBatch) -> RecordBatch:
    """Return the part of a batch that a reader of any protocol accepts at once; at least one record."""
    if batch.count <= MAX_BATCH_RECORDS and batch.metered <= MAX_BATCH_BYTES:
        return batch
    return batch.part(0, max(min(MAX_BATCH_RECORDS, batch.fitting(MAX_BATCH_BYTES)), 1))
