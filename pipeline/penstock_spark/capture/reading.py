"""A recording's files as one run of events, file by file."""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from penstock_codecs.capture import CaptureEvent, CaptureReader
from penstock_spark.capture.files import PIECE_BYTES, Gone, Place, Source, Unreadable, opened
from penstock_spark.capture.recordings import number_of

__all__ = ["Reading"]


class Reading:
    """Reads a recording's files, once and in their order. A conversation that goes on in the next file stays the same
    object; what is damaged gives all that is whole."""

    def __init__(self, *, skip_unreadable: bool = False) -> None:
        """`skip_unreadable`: what cannot be opened, or is no capture, is damage; else Unreadable is raised."""
        self._skip = skip_unreadable
        self._reader = CaptureReader()
        self._failed: str | None = None
        self.damage: list[str] = []
        """What is wrong, as far as was read; each with its file."""
        self.unreadable: list[tuple[Place, str]] = []
        """Files that were left out, and why."""

    def file(self, place: Place) -> Iterator[Iterator[CaptureEvent]]:
        """What the next file says, in runs of events, each to be exhausted before the next run."""
        reader, self._failed = self._reader, None
        began = False
        try:
            with opened(place) as source:
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
        """What was held back, after the last file."""
        self._reader.receive(b"")
        yield from self._reader.events()

    def _failure(self) -> str | None:
        """Why a file could not be read to its end."""
        return self._failed

    def _piece(self, place: Place, source: Source) -> bytes:
        try:
            return source.read(PIECE_BYTES)
        except zstandard.ZstdError as error:
            self._failed = f"{place}: its compression is damaged: {error}"
        except OSError as error:
            self._failed = f"{place}: {error.strerror or error}"
        return b""

    def _refuse(self, place: Place, began: bool) -> None:
        """Raises Unreadable for what is no capture. A recorder's file may have nothing in it yet."""
        if self._failed is not None:
            raise Unreadable(self._failed)
        if began or number_of(place) is None:
            raise Unreadable(f"{place}: {self._reader.damage or 'this is no capture'}")
