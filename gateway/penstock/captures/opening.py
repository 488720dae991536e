"""Capture files as one run of events: plain or compressed, a directory of them, several, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

import zstandard

from penstock_codecs.capture import CaptureEvent, CaptureReader
from penstock_codecs.limits import MIB

__all__ = ["STANDARD_INPUT", "Captures", "UnreadableCapture"]

STANDARD_INPUT: Final = Path("-")
PIECE_BYTES: Final = 1 * MIB
"""So much is read at once."""
MAX_ZSTD_WINDOW: Final = 128 * MIB
"""Largest window of a compressed file, which is held in memory; what `zstd --long` takes."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PATTERNS: Final = ("*.pcapng", "*.pcapng.zst", "*.pcap", "*.pcap.zst")


class UnreadableCapture(Exception):
    """There is no such capture, or it is none; the text says which and why."""


class Captures:
    """An iterator of what files say, in their order; once. Several are read as one recording: a conversation that goes
    on in the next file stays the same object.

    Raises UnreadableCapture where a file that was named cannot be opened or is no capture. One that is damaged gives
    all that is whole, and `warnings` says what is wrong; also where a file of a directory is no capture, or was deleted
    meanwhile by whoever records into it.
    """

    def __init__(self, paths: Sequence[Path], on_read: Callable[[int], object] = lambda _size: None) -> None:
        """`paths`: files, directories of captures (read in the order of their names), or `-`. `on_read` is told how
        many more bytes of the files were read, compressed as they are."""
        self.files = [file for path in paths for file in _files(path)]
        self._found = set(self.files).difference(paths)
        self.on_read = on_read
        self.warnings: list[str] = []
        """What is damaged, as far as was read; each with its file."""
        self._reader = CaptureReader()
        self._failed = False

    @property
    def live(self) -> bool:
        """Standard input or another pipe is among them: what is said is to be shown at once."""
        return any(file == STANDARD_INPUT or file.is_fifo() or file.is_char_device() for file in self.files)

    @property
    def size(self) -> int | None:
        """Bytes of all files together, as they are; None where nobody knows."""
        if self.live:
            return None
        return sum(file.stat().st_size for file in self.files if file.is_file())

    @property
    def ignored(self) -> dict[str, int]:
        """Packets that say nothing here: how many, by why."""
        return self._reader.ignored

    def __iter__(self) -> Iterator[CaptureEvent]:
        reader = self._reader
        for file in self.files:
            try:
                with self._opened(file) as source:
                    yield from self._read(file, source)
            except UnreadableCapture as error:
                if file not in self._found:
                    raise
                self.warnings.append(str(error))
                reader.next_file()
                continue
            damage = reader.next_file()
            if damage is not None:
                self.warnings.append(f"{file}: {damage}")
        reader.receive(b"")
        yield from reader.events()

    def _read(self, file: Path, source: _Source) -> Iterator[CaptureEvent]:
        """One file, as far as it is whole."""
        reader, self._failed = self._reader, False
        while piece := self._piece(file, source):
            reader.receive(piece)
            yield from reader.events()
            if reader.damage is not None:
                break
        if reader.recognized:
            return
        if not piece and len(self.files) > 1:  # nothing was written to it yet, or ever
            return
        reader.receive(b"")
        for _ in reader.events():
            pass
        raise UnreadableCapture(f"{file}: {reader.damage}" if not self._failed else self.warnings[-1])

    def _piece(self, file: Path, source: _Source) -> bytes:
        try:
            return source.read(PIECE_BYTES)
        except zstandard.ZstdError as error:
            self.warnings.append(f"{file}: its compression is damaged: {error}")
        except OSError as error:
            self.warnings.append(f"{file}: {error.strerror}")
        self._failed = True
        return b""

    @contextmanager
    def _opened(self, file: Path) -> Iterator[_Source]:
        """The plain bytes of a file."""
        if file == STANDARD_INPUT:
            source = sys.stdin.buffer  # unbuffered where that can be: a process may end while a thread waits for it
            yield _plain(_Counted(getattr(source, "raw", source), self.on_read))
            return
        squeezed = file.with_name(f"{file.name}.zst")
        if file in self._found and not file.exists() and squeezed.exists():  # compressed since it was found
            file = squeezed
        try:
            opened = file.open("rb")
        except OSError as error:
            raise UnreadableCapture(f"{file}: {error.strerror}") from error
        with opened:
            yield _plain(_Counted(opened, self.on_read))


class _Source(Protocol):
    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none: it has ended."""


class _Counted:
    """A file whose first bytes can be looked at. Reads what is there, without waiting for more."""

    def __init__(self, file: BinaryIO, on_read: Callable[[int], object]) -> None:
        self._read = getattr(file, "read1", file.read)
        self._on_read = on_read
        self._ahead = b""

    def begins_with(self, magic: bytes) -> bool:
        """The file's first bytes are these."""
        while len(self._ahead) < len(magic) and (piece := self._read(PIECE_BYTES)):
            self._ahead += piece
        return self._ahead.startswith(magic)

    def read(self, size: int) -> bytes:
        """Up to so many bytes."""
        piece, self._ahead = self._ahead[:size], self._ahead[size:]
        piece = piece or self._read(size)
        self._on_read(len(piece))
        return piece


def _plain(source: _Counted) -> _Source:
    if not source.begins_with(_ZSTD_MAGIC):
        return source
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    return _Decompressed(decompressor.stream_reader(cast(Any, source), read_across_frames=True))


class _Decompressed:
    """What a compressed file holds, as far as it has come: what stands before damage is not lost with it."""

    def __init__(self, reader: zstandard.ZstdDecompressionReader) -> None:
        self.read = reader.read1


def _files(path: Path) -> list[Path]:
    """The captures that a path means."""
    if path == STANDARD_INPUT or not path.is_dir():
        return [path]
    try:
        next(path.iterdir(), None)  # glob takes a directory that cannot be read for an empty one
    except OSError as error:
        raise UnreadableCapture(f"{path}: {error.strerror}") from error
    found = {file for pattern in _PATTERNS for file in path.glob(pattern) if not file.name.startswith(".")}
    # While a file is being compressed, and after a crash amid that, both are there.
    names = sorted(file for file in found if file.suffix != ".zst" or file.with_suffix("") not in found)
    if not names:
        raise UnreadableCapture(f"{path}: no captures (*.pcapng, *.pcapng.zst) are in this directory")
    return names
