"""Map one sender's bytes to times, for messages that are recognized only once their last byte has arrived.

Every dialogue feeds its chunks to a `ChunkPlaces` beside its codec, asks for the times of a message's first and last
byte, and then forgets the bytes before the next message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

__all__ = ["CONTEXT_BYTES", "ChunkPlaces", "TimedSpan"]

CONTEXT_BYTES: Final = 256
"""Most bytes of a Problem's context."""
KEPT_BYTES: Final = 4 * 1024
"""Last bytes that are kept for contexts, besides the whole last chunk while it is read. There may be thousands of
conversations at once."""
MOST_CHUNKS: Final = 1024
"""Most chunk boundaries that are kept. Of a message in more chunks the first and last time are still right."""


class TimedSpan(NamedTuple):
    """A run of one sender's bytes, with the times of its first and last byte (ns)."""

    offset: int
    length: int
    start_ns: int
    end_ns: int

    @property
    def end(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.length


class ChunkPlaces:
    """Chunks of one sender: boundaries with times, the last bytes, and the first ones of the current message.

    Memory is bounded for any input: `MOST_CHUNKS` boundaries, `KEPT_BYTES`, and until `trim` the last chunk.
    """

    def __init__(self, offset: int = 0) -> None:
        self._start(offset)

    def _start(self, offset: int) -> None:
        self.end = offset
        """The offset behind the last byte that came."""
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._tail: deque[tuple[int, bytes]] = deque()
        self._tail_bytes = 0
        self._from = offset
        self._head = b""  # bytes of the current message that left the tail

    def restart(self, offset: int) -> None:
        """Continue at this offset: the bytes before it were lost, or were never recorded."""
        self._start(offset)

    def add(self, time_ns: int, data: bytes | bytearray | memoryview) -> bytes:
        """Add the bytes that follow, and return them as immutable bytes."""
        kept = bytes(data)
        if not kept:
            return kept
        self.trim()
        self._offsets.append(self.end)
        self._times.append(time_ns)
        if len(self._offsets) > MOST_CHUNKS:  # every second one, but the first
            del self._offsets[1::2]
            del self._times[1::2]
        self._tail.append((self.end, kept))
        self._tail_bytes += len(kept)
        self.end += len(kept)
        return kept

    def trim(self) -> None:
        """Release the last chunk, which was read, except for its last bytes."""
        while (excess := self._tail_bytes - KEPT_BYTES) > 0:
            offset, data = self._tail.popleft()
            if len(data) > excess:
                self._tail.appendleft((offset + excess, data[excess:]))
            self._let_go(offset, data[:excess])

    def _let_go(self, offset: int, data: bytes) -> None:
        self._tail_bytes -= len(data)
        at = self._from + len(self._head)
        if offset <= at < min(offset + len(data), self._from + CONTEXT_BYTES):
            self._head += data[at - offset : self._from + CONTEXT_BYTES - offset]

    def time(self, offset: int) -> int:
        """Return the time of the byte at this offset in ns, or 0 if none has arrived yet."""
        if not self._times:
            return 0
        return self._times[max(bisect_right(self._offsets, offset) - 1, 0)]

    def span(self, start: int, end: int) -> TimedSpan:
        """Return the span of the bytes from `start` to before `end`."""
        return TimedSpan(start, end - start, self.time(start), self.time(max(end - 1, start)))

    def forget(self, offset: int) -> None:
        """Drop times before this offset, at which a message begins."""
        keep = bisect_right(self._offsets, offset) - 1
        if keep > 0:
            del self._offsets[:keep]
            del self._times[:keep]
        self._from = offset
        self._head = b""

    @property
    def begun(self) -> int:
        """Offset of the current message, as set by `forget`."""
        return self._from

    def head(self) -> bytes:
        """First bytes of the current message, at most `CONTEXT_BYTES`."""
        return self._head + self._kept(self._from + len(self._head), self._from + CONTEXT_BYTES)[0]

    def context(self, offset: int) -> tuple[bytes, int]:
        """Return bytes around an offset, at most `CONTEXT_BYTES`, half of them before it, and the offset of the first.

        Bytes no longer kept are left out; if there are none at all, the result is b"" and the offset itself.
        """
        start = max(offset - CONTEXT_BYTES // 2, 0)
        data, at = self._kept(start, start + CONTEXT_BYTES)
        if data and at <= offset:
            return data, at
        head = self.head()
        return (head, self._from) if self._from <= offset < self._from + len(head) else (b"", offset)

    def _kept(self, start: int, end: int) -> tuple[bytes, int]:
        """Return the kept bytes of a stretch, and the offset of the first."""
        parts = []
        first = end
        for offset, data in reversed(self._tail):  # most requests are for the last bytes
            if offset + len(data) <= start:
                break
            if offset < end:
                first = max(offset, start)
                parts.append(data[max(start - offset, 0) : end - offset])
        return b"".join(reversed(parts)), first
