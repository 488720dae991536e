"""S2S frames on their way through, untouched: only where one ends is looked at (S2 fact sheet, 2.1).

Who passes a session on must never end amid a frame: what goes out is always whole. The payload is neither decompressed
nor parsed, nor copied except where pieces are small.
"""

from __future__ import annotations

from typing import Final

from penstock_codecs.http.events import Buffer
from penstock_codecs.limits import S2S_MAX_FRAME_LENGTH
from penstock_codecs.s2s.frames import FrameError

__all__ = ["WholeFrames"]

_LENGTH_BYTES: Final = 3
_TERMINAL: Final = 0x80
_SMALL: Final = 4096
"""Smaller pieces that are held are joined: each would take 40 bytes of memory beside its own, or keep a larger one."""


class WholeFrames:
    """Gives out the pieces that it is fed as far as they are whole frames, and holds the rest: at most 2 MiB and 3."""

    def __init__(self) -> None:
        self._held: list[Buffer] = []
        self._joint: bytearray | None = None  # the last of them, where it is made of several
        self._held_size = 0
        self._head = b""  # of a frame whose length is not known yet
        self._left = 0  # bytes of the frame at hand that have not come, once its head is known
        self.terminal = False
        """Whether a terminal frame was among what was given out: nothing follows it."""

    @property
    def held(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._held_size

    @property
    def missing(self) -> int:
        """How many bytes complete the frame at hand; where its length is not known yet, 1: it may be any."""
        return self._left or 1

    def feed(self, piece: Buffer) -> list[Buffer]:
        """All frames that are complete now, in pieces. A piece that is kept is not copied: it must not change.

        Raises FrameError as soon as it is clear that no frame will come of these bytes; what came before the bad frame
        was given out, unless it came in this piece.
        """
        size = len(piece)
        at = end = 0
        while at < size:
            if not self._left:
                at = self._take_head(piece, at)
                if not self._left:
                    break
            step = min(self._left, size - at)
            self._left -= step
            at += step
            if not self._left:
                end = at
        return self._give(piece, end)

    def _take_head(self, piece: Buffer, at: int) -> int:
        """Length and flags of the next frame; the flags count as the first of the bytes that are left."""
        head = self._head + bytes(piece[at : at + _LENGTH_BYTES + 1 - len(self._head)])
        if len(head) >= _LENGTH_BYTES:
            length = int.from_bytes(head[:_LENGTH_BYTES], "big")
            if length > S2S_MAX_FRAME_LENGTH:
                raise FrameError("frame exceeds decode limit")
            if length == 0:
                raise FrameError("empty frame payload")
        if len(head) <= _LENGTH_BYTES:
            self._head = head
            return len(piece)
        at += _LENGTH_BYTES - len(self._head)
        self._head = b""
        self._left = length
        self.terminal |= bool(head[_LENGTH_BYTES] & _TERMINAL)
        return at

    def _give(self, piece: Buffer, end: int) -> list[Buffer]:
        if end == 0:
            self._keep(piece)
            self._held_size += len(piece)
            return []
        whole, self._held, self._joint = self._held, [], None
        self._held_size = len(piece) - end
        if not self._held_size:
            whole.append(piece)
            return whole
        view = memoryview(piece)
        whole.append(view[:end])
        rest = view[end:]
        self._held.append(bytes(rest) if len(rest) < _SMALL else rest)
        return whole

    def _keep(self, piece: Buffer) -> None:
        if self._joint is not None and len(piece) < _SMALL:
            self._joint += piece
        elif self._held and len(piece) < _SMALL and len(self._held[-1]) < _SMALL:
            self._joint = bytearray(self._held[-1])
            self._joint += piece
            self._held[-1] = self._joint
        else:
            self._joint = None
            self._held.append(piece)

    def finish(self) -> None:
        """There is no more. Raises FrameError where that cuts a frame short."""
        if self._held_size:
            raise FrameError("bytes remaining on stream")
