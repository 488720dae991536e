"""Forward S2S frames untouched, splitting only at frame boundaries (S2 fact sheet, 2.1).

A relay must never stop in the middle of a frame, so its output always ends with a whole frame. The payload is neither
decompressed nor parsed, nor copied unless pieces are small.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.http.events import Buffer, FramePieces
from penstock_s2.codec.s2s.frames import FrameError, FrameReader, Terminal
from penstock_s2.codec.s2s.limits import S2S_MAX_FRAME_LENGTH

__all__ = ["WholeFrames", "split_at_terminal"]

_LENGTH_BYTES: Final = 3
_TERMINAL: Final = 0x80
_SMALL: Final = 4096
"""Pieces smaller than this, in bytes, are joined while held: each would take 40 bytes of memory beside its own, or keep
a larger buffer alive."""


class WholeFrames:
    """Returns the pieces fed to it as far as they form whole frames, and holds the rest: at most 2 MiB + 3 bytes."""

    def __init__(self) -> None:
        self._held: list[Buffer] = []
        self._joint: bytearray | None = None  # the last of them, if it was joined from several
        self._held_size = 0
        self._head = b""  # head of a frame whose length is not known yet
        self._left = 0  # bytes missing of the current frame, once its head is known
        self._is_terminal = False  # the current frame
        self.terminal = False
        """True once a terminal frame was among the output: nothing follows it."""
        self._fault: FrameError | None = None

    @property
    def held(self) -> int:
        """Bytes of an incomplete frame."""
        return self._held_size

    @property
    def missing(self) -> int:
        """Bytes missing of the current frame; 1 while its length is unknown, since any number may be missing."""
        return self._left or 1

    def feed(self, piece: Buffer) -> FramePieces:
        """Return all frames that are now complete, in pieces. Kept pieces are not copied: they must not change.

        Call `check` after each piece: it raises FrameError if what follows these frames is none. Nothing more is taken
        then.
        """
        if self._fault is not None:
            return FramePieces([], 0)
        size = len(piece)
        at = end = frames = 0
        while at < size:
            if not self._left:
                try:
                    at = self._take_head(piece, at)
                except FrameError as fault:
                    self._fault = fault
                    piece, self._head = piece[:end], b""
                    break
                if not self._left:
                    break
            step = min(self._left, size - at)
            self._left -= step
            at += step
            if not self._left:
                end = at
                frames += 1
                self.terminal |= self._is_terminal
        return FramePieces(self._give(piece, end), frames)

    def _take_head(self, piece: Buffer, at: int) -> int:
        """Read length and flags of the next frame; the flags count as the first of the missing bytes."""
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
        self._is_terminal = bool(head[_LENGTH_BYTES] & _TERMINAL)
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

    def check(self) -> None:
        """Raise FrameError if bytes came that are not a frame, as soon as their length shows it."""
        if self._fault is not None:
            raise self._fault

    def finish(self) -> None:
        """End the input. Raises FrameError as `check` does, or if the end cuts a frame short."""
        self.check()
        if self._held_size:
            raise FrameError("bytes remaining on stream")


def split_at_terminal(frames: FramePieces) -> tuple[FramePieces, Terminal]:
    """Return the frames before the first terminal one, and that one; there must be one. Raises FrameError if it has no
    status."""
    data, at, count = b"".join(frames), 0, 0
    while not data[at + _LENGTH_BYTES] & _TERMINAL:
        at += _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
        count += 1
    reader = FrameReader()
    reader.feed(data[at:])
    terminal = reader.next()
    assert isinstance(terminal, Terminal)
    return FramePieces([data[:at]] if at else [], count), terminal
