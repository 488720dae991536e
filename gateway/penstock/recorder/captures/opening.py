"""Capture files as one sequence of events: plain or compressed files, directories of them, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

import zstandard

from penstock.capture.pcapng import CaptureEvent, CaptureReader, Conversation, Side
from penstock.model.limits import MIB

__all__ = ["STANDARD_INPUT", "CaptureEvents", "UnreadableCapture", "capture_files", "recorded_side"]

STANDARD_INPUT: Final = Path("-")
PIECE_BYTES: Final = 1 * MIB
"""Bytes read at a time."""
MAX_ZSTD_WINDOW: Final = 128 * MIB
"""Largest window of a compressed file, in bytes, as for `zstd --long`; it is held in memory."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PATTERNS: Final = ("*.pcapng", "*.pcapng.zst", "*.pcap", "*.pcap.zst")


class UnreadableCapture(Exception):
    """The capture does not exist or is not a capture; the text says which file and why."""


class CaptureEvents:
    """A one-shot iterator of the events in files, in their order. Several files are read as one recording: a
    conversation that continues in the next file stays the same object.

    Raises UnreadableCapture if a named file cannot be opened or is not a capture. Of a damaged file the intact part is
    read, with an entry in `warnings`. A file of a directory that is not a capture, or that its recorder deleted
    meanwhile, is skipped, with an entry, too.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        on_read: Callable[[int], object] = lambda _size: None,
        side: Side | None = None,
        *,
        prefers_front: bool = False,
    ) -> None:
        """`paths`: files, directories of captures (read in the order of their names), or `-`. `on_read` is called with
        the number of bytes read, before decompression. `side`: only conversations on this side of the gateway, and
        those that no gateway recorded; None: both. `prefers_front`: both sides until the first FRONT conversation, then
        FRONT only."""
        self.files = [file for path in paths for file in capture_files(path)]
        self._found = set(self.files).difference(paths)
        self.on_read = on_read
        self.warnings: list[str] = []
        """Descriptions of damage found so far, each with its file."""
        self.side = side
        """The side that is read; None: both."""
        self.left_out = False
        """True if conversations of the other side were skipped."""
        self._prefers_front = prefers_front
        self._reader = CaptureReader()
        self._failed = False

    @property
    def live(self) -> bool:
        """True if standard input or another pipe is among the files, so that output is not to be buffered."""
        return any(file == STANDARD_INPUT or file.is_fifo() or file.is_char_device() for file in self.files)

    @property
    def size(self) -> int | None:
        """Total size of the files in bytes, before decompression; None if a pipe is among them."""
        if self.live:
            return None
        return sum(file.stat().st_size for file in self.files if file.is_file())

    @property
    def ignored(self) -> dict[str, int]:
        """Numbers of ignored packets by reason."""
        return self._reader.ignored

    def __iter__(self) -> Iterator[CaptureEvent]:
        return (event for event in self._events() if self._wants(event.conversation))

    def _wants(self, conversation: Conversation) -> bool:
        if self._prefers_front and conversation.side is Side.FRONT:
            self.side = Side.FRONT
        wanted = self.side is None or conversation.side in (self.side, Side.FOREIGN)
        self.left_out = self.left_out or not wanted
        return wanted

    def _events(self) -> Iterator[CaptureEvent]:
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
        """Read one file up to its end or its first damage."""
        reader, self._failed = self._reader, False
        while piece := self._piece(file, source):
            reader.receive(piece)
            yield from reader.events()
            if reader.damage is not None:
                break
        if reader.recognized:
            return
        if not piece and len(self.files) > 1:  # a file that has no data yet, or never got any
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
        """Open a file as plain bytes."""
        if file == STANDARD_INPUT:
            source = sys.stdin.buffer  # unbuffered if possible: the process may end while a thread waits for input
            yield _plain(_Counted(getattr(source, "raw", source), self.on_read))
            return
        squeezed = file.with_name(f"{file.name}.zst")
        if file in self._found and not file.exists() and squeezed.exists():  # compressed since the directory was listed
            file = squeezed
        try:
            opened = file.open("rb")
        except OSError as error:
            raise UnreadableCapture(f"{file}: {error.strerror}") from error
        with opened:
            yield _plain(_Counted(opened, self.on_read))


def recorded_side(paths: Sequence[Path]) -> Side | None:
    """Return the side of the gateway to show by default: FRONT, or BACK if only that was recorded; None for a pipe,
    which can be read only once. Captures of both sides hold the same traffic twice. Raises UnreadableCapture."""
    captures = CaptureEvents(paths)
    if captures.live:
        return None
    side = Side.FRONT
    for event in captures:
        side = event.conversation.side
        if side is not Side.BACK:
            return Side.FRONT
    return side


class _Source(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; empty at the end."""


class _Counted:
    """A file with a peek at its first bytes. Returns available bytes without waiting for more."""

    def __init__(self, file: BinaryIO, on_read: Callable[[int], object]) -> None:
        self._read = getattr(file, "read1", file.read)
        self._on_read = on_read
        self._ahead = b""

    def begins_with(self, magic: bytes) -> bool:
        """Return whether the file begins with these bytes."""
        while len(self._ahead) < len(magic) and (piece := self._read(PIECE_BYTES)):
            self._ahead += piece
        return self._ahead.startswith(magic)

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end."""
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
    """Reader of a compressed file that returns what was decompressed so far, so that damage loses nothing before it."""

    def __init__(self, reader: zstandard.ZstdDecompressionReader) -> None:
        self.read = reader.read1


def capture_files(path: Path) -> list[Path]:
    """Return the capture files that a path stands for. Raises UnreadableCapture."""
    if path == STANDARD_INPUT or not path.is_dir():
        return [path]
    try:
        next(path.iterdir(), None)  # raises OSError for an unreadable directory, which glob reports as empty
    except OSError as error:
        raise UnreadableCapture(f"{path}: {error.strerror}") from error
    files = {file for pattern in _PATTERNS for file in path.glob(pattern) if not file.name.startswith(".")}
    # Both forms exist while a file is being compressed, and after a crash during that.
    names = sorted(file for file in files if file.suffix != ".zst" or file.with_suffix("") not in files)
    if not names:
        raise UnreadableCapture(f"{path}: this directory has no captures (*.pcapng, *.pcapng.zst)")
    return names
