"""A stream of bytes as the log of the gateway's state, for servers that append on a condition and do not compact.

An append is made on the condition that the stream ends where its gateway has read it to, so of two gateways that append
at the same place one does. The position of a record is that of its frame plus its index.

The log cleans itself. Once much of it is outdated, an append takes copies of those records of the first frames along
that nothing has replaced, and the frames are truncated. A copy keeps the position of its record. Nothing has replaced
it where it is appended either, since the append is refused if anything else came first. So a gateway that reads the log
from its new beginning has the same state. A gateway that was so slow that its next frame is gone begins again.

| bytes | of a frame, big-endian |
|---|---|
| 4 | `PSTL` |
| 4 | length of what follows |
| 8 | author, 0 for copies |
| | records |

| bytes | of a record |
|---|---|
| 8 | position, -1: by its place |
| 4 | length of the key |
| 4 | length of the value, -1: removes the key |
| | key, value |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import structlog
import trio

from penstock.backends.logged_tables.back import ChangeLog, LogLost, LogNews
from penstock.backends.logged_tables.state import LoggedBatch, TableChange, TableState, sizes_of
from penstock.model.byte_operations import AppendBytes, ByteStreamInfo, GetByteStreamInfo, ReadBytes, Truncate
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import CreateStream, Operation
from penstock.model.records import StreamRef

__all__ = ["ByteLog"]

log = structlog.get_logger()

R = TypeVar("R")

_MAGIC: Final = b"PSTL"
_FRAME: Final = struct.Struct(">4sI8s")
_UNCOUNTED: Final = 8
"""Bytes of a frame before those that its length counts."""
_RECORD: Final = struct.Struct(">qIi")
_NO_AUTHOR: Final = bytes(8)
_MOST_FRAME: Final = 16 * MIB
_READ: Final = 1 * MIB
"""Bytes to ask for at once."""
_TOGETHER: Final = 1 * MIB
"""Bytes of changes beside which an append takes copies, and of copies in one frame if they are several."""
_POLL_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 10.0
"""Seconds between looks at the ends of the stream."""
_CLEANED: Final = 6 * MIB
"""Bytes of those below that an append may truncate at most: about `_READ`, or a frame that is larger."""
_OUTDATED: Final = 8 * MIB
"""Bytes that the log may have beside twice the size of the state."""


class _Performs(Protocol):
    """A back, or the part of one that is about bytes."""

    async def perform(self, operation: Operation[R]) -> R: ...


class _Frame(NamedTuple):
    batch: LoggedBatch
    end: int


class ByteLog(ChangeLog):
    """The log in a stream of `back`, which has operations on bytes. The stream is created if it is missing.

    `outdated`: bytes that the log may have beside twice the size of the state.
    """

    max_bytes = 4 * MIB

    def __init__(
        self, back: _Performs, stream: StreamRef, where: str, recover_seconds: float, outdated: int = _OUTDATED
    ) -> None:
        self.where = f"{where}, stream {stream}"
        self.recover_seconds = recover_seconds
        self._back = back
        self._stream = stream
        self._outdated = outdated
        self._start = 0  # of the stream, or before it
        self._next: int | None = None
        self._end = 0  # of what was ever read
        self._incarnation = ""  # of the stream that this was read from
        self._lost: LogLost | None = None
        self._looked = 0.0

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def read(self) -> LogNews:
        if self._lost is not None:
            raise self._lost
        start, restarted = self._next, self._next is None
        if start is None:
            start = self._start = await self._beginning()
        elif trio.current_time() >= self._looked + _LOOK_SECONDS:
            self._look(await self._ask(GetByteStreamInfo(self._stream)))
        try:
            frames = await self._frames(start, 0.0 if restarted else _POLL_SECONDS)
        except OperationFailed:
            self._looked = 0.0  # it may have another end
            raise
        end = frames[-1].end if frames else start
        if restarted or self._next is not None:
            self._next = end
        self._end = max(self._end, end)
        return LogNews([frame.batch for frame in frames], end, restarted)

    async def _beginning(self) -> int:
        """Return the offset at which the stream begins; create it if it is missing. Raises STORAGE for one that has
        lost state."""
        try:
            info = await self._ask(GetByteStreamInfo(self._stream))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            try:
                await self._back.perform(CreateStream(self._stream))
            except OperationFailed as refused:
                if refused.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                    raise
            else:
                log.warning("state_created", where=self.where)
            info = await self._ask(GetByteStreamInfo(self._stream))
        self._look(info)
        if self.trouble is not None and not self._end:
            raise fail(FailureCode.STORAGE, self.trouble)
        return info.start_offset

    def _look(self, info: ByteStreamInfo) -> None:
        """Take note of the stream's ends. Raises LogLost if it does not have what was read."""
        self._looked = trio.current_time()
        if self._end and info.incarnation != self._incarnation:
            raise self._loss("it was deleted, and created again")
        self._incarnation = info.incarnation
        if info.length < self._end:
            raise self._loss(f"it ends at offset {info.length}, and was read up to {self._end}")
        if info.start_offset > 0 and info.length - info.start_offset < self._outdated - _CLEANED:
            self.note_trouble(f"its bytes before offset {info.start_offset} were truncated, not by a gateway")

    async def _frames(self, offset: int, wait: float) -> list[_Frame]:
        """Return whole frames from an offset on, none if there are none in the time to wait."""
        held = b""
        while True:
            bytes_read = await self._ask(ReadBytes(self._stream, offset + len(held), _READ, wait))
            held += bytes_read.data
            frames = list(self._whole(held, offset))
            if frames or not bytes_read.data:
                return frames
            wait = _POLL_SECONDS  # the rest of the frame is there

    def _whole(self, data: bytes, offset: int) -> Iterator[_Frame]:
        at = 0
        while len(data) - at >= _FRAME.size:
            magic, length, author = _FRAME.unpack_from(data, at)
            if magic != _MAGIC or not _FRAME.size - _UNCOUNTED <= length <= _MOST_FRAME:
                raise self._damaged(offset + at)
            end = at + _UNCOUNTED + length
            if end > len(data):
                return
            try:
                records = list(_records(data[at + _FRAME.size : end], offset + at))
            except ValueError:
                raise self._damaged(offset + at) from None
            yield _Frame(LoggedBatch(b"" if author == _NO_AUTHOR else author, records), offset + end)
            at = end

    def _damaged(self, offset: int) -> OperationFailed:
        reason = f"at offset {offset} is no state of a gateway"
        if self._end:
            return self._loss(reason)
        self._next = None
        return fail(FailureCode.STORAGE, f"{self.where}: {reason}")

    async def end(self) -> int:
        info = await self._ask(GetByteStreamInfo(self._stream))
        self._look(info)
        return info.length

    async def _ask(self, operation: Operation[R]) -> R:
        """Perform an operation on the stream. If what comes next was truncated, read it again from the beginning.
        Raises LogLost if it was read and is missing."""
        try:
            return await self._back.perform(operation)
        except OperationFailed as error:
            if error.failure.code is FailureCode.OFFSET_TRUNCATED:
                self._next = None
                reason = f"{self.where} is read again from its beginning: {error.failure.message}"
                raise fail(FailureCode.HOT_SERVER, reason) from None
            if error.failure.code is FailureCode.STREAM_NOT_FOUND and self._end:
                raise self._loss("it was deleted") from None
            raise

    def _loss(self, reason: str) -> LogLost:
        self._lost = LogLost(self.where, reason)
        return self._lost

    # ---- writing -----------------------------------------------------------------------------------------------------

    async def append(self, author: bytes, changes: Sequence[TableChange], state: TableState) -> int | None:
        place = self._next
        if place is None:
            raise fail(FailureCode.HOT_SERVER, f"{self.where} is being read")
        copies, cleaned = await self._copies(place, changes, state)
        frame = _frame(author, ((-1, change) for change in changes))
        try:
            await self._ask(AppendBytes(self._stream, copies + frame, match_offset=place))
        except OperationFailed as error:
            if error.failure.code is FailureCode.OFFSET_MISMATCH:
                return None
            raise
        if cleaned > self._start:
            await self._truncate(cleaned)
        return place + len(copies) + len(changes) - 1

    def begin_again(self) -> None:
        self._next = None

    async def _copies(self, place: int, changes: Sequence[TableChange], state: TableState) -> tuple[bytes, int]:
        """Return frames that copy what is in force of the first frames, and the end of these; or nothing, if the log is
        short. `place`: its end, to which it has been read."""
        if place - self._start <= self._outdated + 2 * state.size or sizes_of(changes) > _TOGETHER:
            return b"", 0
        try:
            read = await self._back.perform(ReadBytes(self._stream, self._start, _READ))
            held = read.data
            while not (frames := list(self._whole(held, self._start))) and read.data:
                read = await self._back.perform(ReadBytes(self._stream, self._start + len(held), _READ))
                held += read.data
        except OperationFailed as error:
            start = error.failure.details.get("offset")
            if error.failure.code is FailureCode.OFFSET_TRUNCATED and isinstance(start, int):
                self._start = start  # another gateway was faster
            return b"", 0
        kept = [record for frame in frames for record in frame.batch.changes if state.is_newest(*record)]
        return b"".join(_copied(kept)), frames[-1].end if frames else 0

    async def _truncate(self, offset: int) -> None:
        try:
            self._start = await self._back.perform(Truncate(self._stream, offset))
        except OperationFailed as error:
            log.info("state_not_truncated", where=self.where, reason=str(error.failure))


def _records(data: bytes, offset: int) -> Iterator[tuple[int, TableChange]]:
    """Yield the records of the frame at an offset, with their positions. Raises ValueError if it is damaged."""
    at, index = 0, 0
    while at < len(data):
        if len(data) - at < _RECORD.size:
            raise ValueError("a record is cut off")
        position, key_length, value_length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        key = data[at : at + key_length]
        at += key_length
        value = None if value_length < 0 else data[at : at + value_length]
        at += max(value_length, 0)
        if at > len(data):
            raise ValueError("a record is longer than its frame")
        yield (offset + index if position < 0 else position), TableChange(key, value)
        index += 1


def _frame(author: bytes, records: Iterable[tuple[int, TableChange]]) -> bytes:
    parts: list[Any] = []
    for position, (key, value) in records:
        parts += [_RECORD.pack(position, len(key), -1 if value is None else len(value)), key, value or b""]
    body = b"".join(parts)
    return _FRAME.pack(_MAGIC, len(body) + _FRAME.size - _UNCOUNTED, author) + body


def _copied(records: Iterable[tuple[int, TableChange]]) -> Iterator[bytes]:
    """Yield frames of about `_TOGETHER` bytes at most, unless a single record has more: else frames would grow whenever
    they are copied."""
    together: list[tuple[int, TableChange]] = []
    size = 0
    for record in records:
        more = sizes_of([record[1]])
        if together and size + more > _TOGETHER:
            yield _frame(_NO_AUTHOR, together)
            together, size = [], 0
        together.append(record)
        size += more
    if together:
        yield _frame(_NO_AUTHOR, together)
