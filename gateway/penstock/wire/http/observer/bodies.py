"""Split bodies of HTTP/1.1 from recorded bytes: in chunks, of a known length, or up to the connection's end (RFC 9112,
6 and 7).

Each takes bytes and passes on those of the body, with their place; `over` is the offset at which the body ended, or
None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.wire.http.chunked import ChunkError, ChunkLines
from penstock.wire.http.events import HttpHeaders
from penstock.wire.http.observer.faults import BytesAt, HttpFault, TimedRange
from penstock.wire.http.observer.heads import MAX_HEAD, Framing

__all__ = ["Body1", "body_of"]

HandOn = Callable[[memoryview, int, int], None]
"""Function that takes a piece of body, its offset and its time."""


class Body1(Protocol):
    """One body."""

    over: TimedRange | None
    """Span that ended it: its last chunk with the trailers, or the empty span behind its last byte."""

    @property
    def trailers(self) -> HttpHeaders:
        """Trailers of a chunked body."""

    @property
    def begun(self) -> bool:
        """True if any of its bytes have arrived."""

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        """Take bytes; return how many of them belong to the body. Raises Fault."""

    def finish(self, offset: int, time_ns: int) -> str:
        """End the connection at `offset`; return a description of the missing part, or "" if that ends the body."""


class _Fixed:
    trailers: HttpHeaders = ()

    def __init__(self, hand_on: HandOn, length: int) -> None:
        self._hand_on = hand_on
        self._length = self._left = length
        self.over: TimedRange | None = None

    @property
    def begun(self) -> bool:
        return self._left < self._length

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        piece = data[: self._left]
        self._left -= len(piece)
        self._hand_on(piece, offset, time_ns)
        if not self._left:
            end = offset + len(piece)
            self.over = TimedRange(end, end, time_ns, time_ns)
        return len(piece)

    def finish(self, offset: int, time_ns: int) -> str:  # noqa: ARG002 - as Body1 has it
        return f"{self._left} bytes of a body are missing"


class _UntilClose:
    trailers: HttpHeaders = ()
    begun = True

    def __init__(self, hand_on: HandOn) -> None:
        self._hand_on = hand_on
        self.over: TimedRange | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        self._hand_on(data, offset, time_ns)
        return len(data)

    def finish(self, offset: int, time_ns: int) -> str:
        self.over = TimedRange(offset, offset, time_ns, time_ns)
        return ""


class _Chunked(ChunkLines):
    def __init__(self, hand_on: HandOn) -> None:
        super().__init__(MAX_HEAD)
        self._hand_on = hand_on
        self._began = (0, 0)  # offset and time of the line at hand, or of the last chunk's
        self.begun = False
        self.over: TimedRange | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        self.begun = True
        at = 0
        while at < len(data) and self.over is None:
            if self._left:
                piece = data[at : at + self._left]
                self._hand_on(piece, offset + at, time_ns)
                self._left -= len(piece)
                self._behind_data = not self._left
                at += len(piece)
            else:
                at = self._next_line(data, at, offset, time_ns)
        return at

    def _next_line(self, data: memoryview, at: int, offset: int, time_ns: int) -> int:
        start = offset + at - len(self._line)
        if not self._line and not self._in_trailers:
            self._began = (start, time_ns)
        try:
            at = self._take_line(data, at)
        except ChunkError as error:
            held = BytesAt(start, error.line) if error.line else None
            raise HttpFault(start + error.at, error.rule, error.clause, held) from None
        if self._complete:
            self.over = TimedRange(self._began[0], offset + at, self._began[1], time_ns)
        return at

    def finish(self, offset: int, time_ns: int) -> str:  # noqa: ARG002 - as Body1 has it
        return "the last chunk of a body is missing"


def body_of(framing: Framing, hand_on: HandOn) -> Body1 | None:
    """Return a reader for the body, or None if the message has none."""
    if framing.chunked:
        return _Chunked(hand_on)
    if framing.length is None:
        return _UntilClose(hand_on)
    return _Fixed(hand_on, framing.length) if framing.length else None
