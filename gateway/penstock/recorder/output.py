"""A capture file being written. It consists of whole blocks, even after an error."""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.model.limits import MIB

__all__ = ["GATHER_BYTES", "MOST_PIECES", "CaptureFile", "Piece"]

Piece = bytes | bytearray | memoryview

MOST_PIECES: Final = 1024
"""Maximum number of buffers per writev (IOV_MAX of Linux)."""
GATHER_BYTES: Final = 1 * MIB
"""Bytes gathered per write."""


class CaptureFile:
    """Gathers the buffers of whole blocks, and writes them with few system calls and without joining them."""

    def __init__(self, path: Path, held: int) -> None:
        """`held`: its descriptor, which `close` closes."""
        self.path = path
        self.size = 0
        """Bytes added, written or not."""
        self.written = 0
        """Bytes written to the file."""
        self._held = held
        self._pieces: list[Piece] = []
        self._ends: list[int] = []  # offsets at which gathered blocks end

    @property
    def is_gone(self) -> bool:
        """True if the file was deleted, so that further writes are lost. Raises OSError."""
        return os.fstat(self._held).st_nlink == 0

    def add(self, pieces: Sequence[Piece]) -> None:
        """Add a whole block. Raises OSError, after which the file ends with a whole block."""
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
                raise OSError(errno.EIO, "the disk took no bytes")
            self.written += left
            for piece in group:
                if left < len(piece):  # a disk that is almost full writes a part; the next call reports the error
                    pieces[begin] = memoryview(piece)[left:]
                    break
                left -= len(piece)
                begin += 1

    def _cut(self, size: int) -> None:
        self.size = self.written = size
        with contextlib.suppress(OSError):  # a file that cannot be truncated is readable up to its last whole block
            os.ftruncate(self._held, size)

    def reserve(self, size: int) -> None:
        """Check, before anything is written, that `size` bytes can be written. Raises OSError."""
        self._write([bytes(size)])  # the free space that a file system reports may be reserved for others
        self.written = 0
        os.ftruncate(self._held, 0)
        os.lseek(self._held, 0, os.SEEK_SET)

    def sync(self) -> None:
        """Flush the file to the disk. Raises OSError."""
        os.fdatasync(self._held)

    def close(self) -> None:
        """Close the file; what is gathered is dropped."""
        self._pieces, self._ends = [], []
        with contextlib.suppress(OSError):  # a late error of a network file system; nothing more can be done
            os.close(self._held)
