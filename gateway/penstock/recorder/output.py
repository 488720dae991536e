"""One capture file that is being written: whole blocks, and after an error nothing behind them."""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock_codecs.limits import MIB

__all__ = ["GATHER_BYTES", "MOST_PIECES", "CaptureFile", "Piece"]

Piece = bytes | bytearray | memoryview

MOST_PIECES: Final = 1024
"""Most pieces of one writev (IOV_MAX of Linux)."""
GATHER_BYTES: Final = 1 * MIB
"""So much goes out at once."""


class CaptureFile:
    """Takes whole blocks in pieces, gathers them, and writes them with few calls and without joining them."""

    def __init__(self, path: Path, held: int) -> None:
        """`held`: its descriptor, which `close` closes."""
        self.path = path
        self.size = 0
        """Bytes, with those that are gathered."""
        self.written = 0
        """Bytes that are in the file."""
        self._held = held
        self._pieces: list[Piece] = []
        self._ends: list[int] = []  # where whole blocks end, of what is gathered

    @property
    def is_gone(self) -> bool:
        """Somebody has deleted it: what is written goes nowhere. Raises OSError."""
        return os.fstat(self._held).st_nlink == 0

    def add(self, pieces: Sequence[Piece]) -> None:
        """Whole blocks. Raises OSError, after which the file ends with a whole block."""
        self._pieces += pieces
        self.size += sum(map(len, pieces))
        self._ends.append(self.size)
        if len(self._pieces) >= MOST_PIECES or self.size - self.written >= GATHER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered. Raises OSError, after which the file ends with a whole block."""
        pieces, self._pieces = self._pieces, []
        ends, self._ends = self._ends, []
        whole = self.written
        try:
            self._write(pieces)
        except OSError:
            place = bisect_right(ends, self.written)
            self._cut(ends[place - 1] if place else whole)
            raise

    def _write(self, pieces: list[Piece]) -> None:
        begin = 0
        while begin < len(pieces):
            group = pieces[begin : begin + MOST_PIECES]
            left = os.writev(self._held, group)
            if not left and any(map(len, group)):
                raise OSError(errno.EIO, "nothing could be written")
            self.written += left
            for piece in group:
                if left < len(piece):  # a disk that is almost full takes a part, and says why with the next call
                    pieces[begin] = memoryview(piece)[left:]
                    break
                left -= len(piece)
                begin += 1

    def _cut(self, size: int) -> None:
        self.size = self.written = size
        with contextlib.suppress(OSError):  # one that cannot be cut is readable up to its last whole block
            os.ftruncate(self._held, size)

    def reserve(self, size: int) -> None:
        """Find out, before anything is written, whether there is room for so many bytes. Raises OSError."""
        self._write([bytes(size)])  # what file systems say is free may belong to others
        self.written = 0
        os.ftruncate(self._held, 0)
        os.lseek(self._held, 0, os.SEEK_SET)

    def sync(self) -> None:
        """Onto the disk itself. Raises OSError."""
        os.fdatasync(self._held)

    def close(self) -> None:
        """What was not written is forgotten."""
        self._pieces, self._ends = [], []
        with contextlib.suppress(OSError):  # a network file system's last word; there is nothing left to be done
            os.close(self._held)
