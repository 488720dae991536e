"""Map the bytes of a body to offsets in its sender's bytes, and to times."""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.wire.http.observer.faults import TimedRange

__all__ = ["BodyPlaces"]

_MOST_PIECES: Final = 4096
"""Most pieces that are kept apart: a body in pieces of one byte would take 100 times its size."""


class _Piece:
    __slots__ = ("at", "behind", "came_ns", "end", "start", "start_ns")

    def __init__(self, at: int, start: int, length: int, time_ns: int) -> None:
        self.at = at  # in the body
        self.behind = at + length
        self.start = start  # in what was sent
        self.end = start + length
        self.start_ns = self.came_ns = time_ns


class BodyPlaces:
    """Pieces in which a body came, as far as they have not been taken."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._come = 0
        self._taken = 0

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return self._come - self._taken

    def add(self, offset: int, length: int, time_ns: int) -> None:
        """Add the next `length` bytes of the body (at least one), which begin at `offset` of the side's bytes."""
        if len(self._pieces) < _MOST_PIECES:
            self._pieces.append(_Piece(self._come, offset, length, time_ns))
        else:
            last = self._pieces[-1]
            last.behind += length
            last.end = offset + length
            last.came_ns = time_ns
        self._come += length

    @property
    def whole(self) -> TimedRange:
        """Return the span of all bytes that have not been taken, of which there is at least one."""
        first, last = self._pieces[0], self._pieces[-1]
        return TimedRange(self._offset(first, self._taken), last.end, first.start_ns, last.came_ns)

    def take(self, length: int) -> TimedRange:
        """Take the next `length` bytes of the body: at least one, and no more than have arrived."""
        pieces = self._pieces
        first = pieces[0]
        start, start_ns = self._offset(first, self._taken), first.start_ns
        self._taken += length
        while first.behind < self._taken:
            pieces.popleft()
            first = pieces[0]
        span = TimedRange(start, self._offset(first, self._taken - 1) + 1, start_ns, first.came_ns)
        if first.behind == self._taken:
            pieces.popleft()
        return span

    def offset(self, ahead: int = 0) -> int:
        """Return the offset of the byte that is `ahead` bytes behind those taken; if it has not arrived, its earliest
        offset."""
        at = self._taken + ahead
        for piece in self._pieces:
            if at < piece.behind:
                return self._offset(piece, at)
        return self._pieces[-1].end if self._pieces else 0

    def _offset(self, piece: _Piece, at: int) -> int:
        return min(piece.start + at - piece.at, piece.end - 1)
