"""Which files are one recording: those that one run of a gateway wrote, in the order of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import zstandard

from penstock_codecs.capture import CaptureReader
from penstock_codecs.limits import KIB
from penstock_spark.capture.files import Place, Unreadable, opened, plain_name

__all__ = ["NAME", "Recording", "Runs", "number_of", "recordings_of", "run_of"]

NAME: Final = re.compile(r"(?P<prefix>.+)-\d{8}T\d{6}\.\d{6}Z-(?P<number>\d{6,})\.pcapng(?:\.zst)?")
"""How a recorder names its files; numbers are counted by each process, and times grow."""
_LOOK_BYTES: Final = 256 * KIB
"""So much of a file is looked at for the run that wrote it: its first packet says that, and what stands before are
descriptions of interfaces."""


class Recording(NamedTuple):
    """Files in their order. `key`: what it is known by for good. `certain`: how many of the files there are up to the
    last one that says of which run it is; whose those behind it are only their names tell."""

    key: str
    files: tuple[Place, ...]
    certain: int = 0

    @property
    def size(self) -> int:
        """Bytes of all files, as they lie there."""
        return sum(place.size for place in self.files)

    @property
    def file(self) -> str:
        """What the column `file` says."""
        return plain_name(str(self.files[0]))


def number_of(place: Place) -> int | None:
    """Which of its process's files it is, counted from 1; None where no recorder named it."""
    found = NAME.fullmatch(place.name)
    return int(found["number"]) if found else None


def run_of(place: Place) -> str:
    """The run of the gateway that wrote a file; "" where nothing was recorded in it, or it is no gateway's."""
    reader = CaptureReader()
    try:
        with opened(place) as source:
            left = _LOOK_BYTES
            while left > 0 and (piece := source.read(min(left, 64 * KIB))):
                left -= len(piece)
                reader.receive(piece)
                for event in reader.events():
                    return event.conversation.run
    except (Unreadable, OSError, zstandard.ZstdError):
        pass  # whoever reads it says so
    return ""


class Runs:
    """The runs of files, each looked up once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, place: Place) -> str:
        """As `run_of`; a file in which nothing was recorded yet is looked at again."""
        path = plain_name(str(place))
        run = self._known.get(path) or run_of(place)
        if run:
            self._known[path] = run
        return run


def recordings_of(places: Iterable[Place], *, together: bool = False, runs: Runs | None = None) -> list[Recording]:
    """The files as recordings. A file of a recorder in which nothing was recorded belongs to the one before it.

    `together`: they are one, in the given order. `runs`: what is known from earlier calls.
    """
    looked_up = Runs() if runs is None else runs
    if together:
        files = tuple(places)
        return [Recording(plain_name(str(files[0])), files)] if files else []
    found: dict[str, list[Place]] = {}
    certain: dict[str, int] = {}
    latest: dict[str, str] = {}  # of each directory and prefix
    for place in _in_order(places):
        name = NAME.fullmatch(place.name)
        if name is None:
            found[plain_name(str(place))] = [place]
            continue
        series = f"{str(place).removesuffix(place.name)}{name['prefix']}"
        run = looked_up.of(place)
        key = f"{series} {run}" if run else latest.get(series, f"{series} {place.name}")
        found.setdefault(key, []).append(place)
        if run:
            certain[key] = len(found[key])
        latest[series] = key
    return [Recording(key, tuple(files), certain.get(key, 0)) for key, files in found.items()]


def _in_order(places: Iterable[Place]) -> Sequence[Place]:
    """Names of recorders sort by time; a file that was found twice is there once."""
    unique = {plain_name(str(place)): place for place in places}
    return [unique[path] for path in sorted(unique)]
