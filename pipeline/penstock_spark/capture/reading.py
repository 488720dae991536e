"""Read a recording's files as one sequence of events, file by file."""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from penstock.capture.pcapng import CaptureEvent, CaptureReader
from penstock_spark.capture.files import PIECE_BYTES, ByteSource, FileInfo, Gone, Unreadable, opened_file
from penstock_spark.capture.recordings import file_number_of

__all__ = ["Reading"]


class Reading:
    """Reads a recording's files, once and in their order. A conversation that continues in the next file stays the same
    object. The intact part of a damaged file is read."""

    def __init__(self, *, skip_unreadable: bool = False) -> None:
        """`skip_unreadable`: report a file that cannot be opened, or is not a capture, as damage; otherwise raise
        Unreadable."""
        self._skip = skip_unreadable
        self._reader = CaptureReader()
        self._failed: str | None = None
        self.damage: list[str] = []
        """Descriptions of damage found so far, each with its file."""
        self.unreadable: list[tuple[FileInfo, str]] = []
        """Files that were skipped, and why."""

    def file(self, place: FileInfo) -> Iterator[Iterator[CaptureEvent]]:
        """Yield the events of the next file in runs; exhaust each run before the next."""
        reader, self._failed = self._reader, None
        began = False
        try:
            with opened_file(place) as source:
                while piece := self._piece(place, source):
                    began = True
                    reader.receive(piece)
                    yield reader.events()
                    if reader.damage is not None:
                        break
            if not reader.recognized:
                self._refuse(place, began)
        except Gone as error:
            self.damage.append(str(error))
            return
        except Unreadable as error:
            if not self._skip:
                raise
            self.unreadable.append((place, str(error)))
            self.damage.append(str(error))
            reader.next_file()
            return
        damage = reader.next_file()
        if damage is not None:
            damage = f"{place}: {damage}" if began else None
        if damage := self._failure() or damage:
            self.damage.append(damage)

    def end(self) -> Iterator[CaptureEvent]:
        """Yield the events that were held back until after the last file."""
        self._reader.receive(b"")
        yield from self._reader.events()

    def _failure(self) -> str | None:
        """Return why a file could not be read to its end; None if it could."""
        return self._failed

    def _piece(self, place: FileInfo, source: ByteSource) -> bytes:
        try:
            return source.read(PIECE_BYTES)
        except zstandard.ZstdError as error:
            self._failed = f"{place}: its compression is damaged: {error}"
        except OSError as error:
            self._failed = f"{place}: {error.strerror or error}"
        return b""

    def _refuse(self, place: FileInfo, began: bool) -> None:
        """Raise Unreadable for a file that is not a capture. A recorder's file without any data yet is accepted."""
        if self._failed is not None:
            raise Unreadable(self._failed)
        if began or file_number_of(place) is None:
            raise Unreadable(f"{place}: {self._reader.damage or 'this is not a capture'}")
