"""Grouping of files into recordings: the files that one run of a gateway wrote, in the order of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import zstandard

from penstock.capture.pcapng import CaptureReader
from penstock.model.limits import KIB
from penstock_spark.capture.files import FileInfo, Unreadable, opened_file, plain_name

__all__ = ["NAME", "RecordingFiles", "Runs", "file_number_of", "recordings_of", "run_of"]

NAME: Final = re.compile(r"(?P<prefix>.+)-\d{8}T\d{6}\.\d{6}Z-(?P<number>\d{6,})\.pcapng(?:\.zst)?")
"""Names of a recorder's files; numbers are counted by each process, and times increase."""
_LOOK_BYTES: Final = 256 * KIB
"""Bytes of a file that are searched for the run that wrote it: its first packet has that, after descriptions of
interfaces."""


class RecordingFiles(NamedTuple):
    """A recording's files in their order. `key`: its permanent identifier. `certain`: number of files up to the last
    one that states its run; later ones are assigned by their names only."""

    key: str
    files: tuple[FileInfo, ...]
    certain: int = 0

    @property
    def size(self) -> int:
        """Size of all files in bytes, before decompression."""
        return sum(file_info.size for file_info in self.files)

    @property
    def file(self) -> str:
        """Value of the column `file`."""
        return plain_name(str(self.files[0]))


def file_number_of(file_info: FileInfo) -> int | None:
    """Return the file's number in its process, counted from 1; None if no recorder named it."""
    match = NAME.fullmatch(file_info.name)
    return int(match["number"]) if match else None


def run_of(file_info: FileInfo) -> str:
    """Return the run of the gateway that wrote a file; "" if it has no events, or is of another program."""
    reader = CaptureReader()
    try:
        with opened_file(file_info) as source:
            left = _LOOK_BYTES
            while left > 0 and (piece := source.read(min(left, 64 * KIB))):
                left -= len(piece)
                reader.receive(piece)
                for event in reader.events():
                    return event.conversation.run
    except (Unreadable, OSError, zstandard.ZstdError):
        pass  # reported when the file is read
    return ""


class Runs:
    """A cache of the runs of files."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, file_info: FileInfo) -> str:
        """Return the run as `run_of`; a file without events is looked at again."""
        path = plain_name(str(file_info))
        run = self._known.get(path) or run_of(file_info)
        if run:
            self._known[path] = run
        return run


def recordings_of(
    places: Iterable[FileInfo], *, together: bool = False, runs: Runs | None = None
) -> list[RecordingFiles]:
    """Group files into recordings. A recorder's file without events belongs to the one before it.

    `together`: all files are one recording, in the given order. `runs`: a cache from earlier calls.
    """
    looked_up = Runs() if runs is None else runs
    if together:
        files = tuple(places)
        return [RecordingFiles(plain_name(str(files[0])), files)] if files else []
    files_by_recording: dict[str, list[FileInfo]] = {}
    certain: dict[str, int] = {}
    latest: dict[str, str] = {}  # by directory and prefix
    for file_info in _in_order(places):
        name = NAME.fullmatch(file_info.name)
        if name is None:
            files_by_recording[plain_name(str(file_info))] = [file_info]
            continue
        series = f"{str(file_info).removesuffix(file_info.name)}{name['prefix']}"
        run = looked_up.of(file_info)
        key = f"{series} {run}" if run else latest.get(series, f"{series} {file_info.name}")
        files_by_recording.setdefault(key, []).append(file_info)
        if run:
            certain[key] = len(files_by_recording[key])
        latest[series] = key
    return [RecordingFiles(key, tuple(files), certain.get(key, 0)) for key, files in files_by_recording.items()]


def _in_order(places: Iterable[FileInfo]) -> Sequence[FileInfo]:
    """Return the files in order of their names, which sort by time, without duplicates."""
    unique = {plain_name(str(file_info)): file_info for file_info in places}
    return [unique[path] for path in sorted(unique)]
