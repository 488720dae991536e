"""Whether bytes may be appended, and as which records: decided when their turn in the lane has come."""

from __future__ import annotations

from typing import Final

from penstock.backs.base import Back
from penstock.backs.bytes_on_records.counting import Counter
from penstock.backs.bytes_on_records.labels import batches_of
from penstock.backs.bytes_on_records.requests import Request, appended
from penstock.backs.bytes_on_records.resolving import look_again
from penstock.backs.bytes_on_records.streams import Stream
from penstock_codecs.byte_operations import NO_ATTRIBUTE, AppendBytes, Attribute, WriterPosition
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.operations import Appended, Capability

__all__ = ["Decisions"]

_MOST: Final = (1 << 63) - 1


class Decisions:
    """Of one stream."""

    def __init__(self, stream: Stream, records: Back, counter: Counter) -> None:
        self._stream = stream
        self._capabilities = records.capabilities
        self._counter = counter
        self._positions: dict[Attribute, tuple[int, int]] = {}  # on their way: the last one, and of how many appends

    def is_alone(self, request: Request) -> bool:
        """Whether it must wait for all before it, and all behind it must wait for it."""
        append = request.append
        partial = append.writer is not None and append.writer.writer in self._stream.writers.partial
        return partial or append.match_offset is not None or self._must_be_first()

    def _must_be_first(self) -> bool:
        """Whether something that was sent before a crash may still come. What is appended then must be where the stream
        ended when the back was asked: either it is, and the other is too late for good, or the back is asked again."""
        return self._stream.writers.late is not None and Capability.MATCH_SEQ_NUM in self._capabilities

    async def decide(self, request: Request) -> Appended | None:
        """Check an append and make its batches; its result where the back has all of it already.

        Raises OperationFailed, as `AppendBytes` has it.
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

    def settled(self, request: Request) -> None:
        """An append that was decided has its result."""
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
            raise fail(FailureCode.INVALID, "a writer's position is a number of 64 bits")
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

    async def _check_offset(self, request: Request, offset: int) -> None:
        tail = await self._counter.catch_up(self._stream)
        end = self._stream.offsets.end
        if offset != end.offset:
            raise fail(FailureCode.OFFSET_MISMATCH, f"the stream ends at {end.offset}", offset=end.offset)
        if Capability.MATCH_SEQ_NUM in self._capabilities:
            request.match_seq_num = tail.seq_num

    async def _skip(self, request: Request, append: AppendBytes) -> list[bytes]:
        """What the back does not have yet of these bytes."""
        writers = self._stream.writers
        partial = () if append.writer is None else writers.partial.get(append.writer.writer, ())
        if append.writer is None or not partial:
            return list(request.pieces)
        known = b"".join([await self._counter.bytes_of(self._stream, some) for some in partial])[: len(append.data)]
        if not append.data.startswith(known):
            writers.keep_partial(append.writer.writer, ())  # it appends something else now
            return list(request.pieces)
        request.skipped = left = len(known)
        pieces = []
        for piece in request.pieces:
            pieces.append(piece[left:])
            left = max(left - len(piece), 0)
        return pieces

    async def _take_partial(self, request: Request, writer: WriterPosition) -> Appended:
        """The back has these bytes since an earlier attempt."""
        writers = self._stream.writers
        partial = writers.partial[writer.writer]
        writers.reach(writer.writer, writer.position, request.skipped)
        await writers.rest()
        left = writers.partial.get(writer.writer, ())
        result = appended(partial[: len(partial) - len(left)] or partial[:1], partial[-1].end)
        if left:
            return _ending(result, left[0].offset)
        return result


def _ending(result: Appended, offset: int) -> Appended:
    return Appended(result.start, result.end, result.tail, None, offset)
