"""The captures in the directory of the recorder, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import trio

from penstock.app.management.command import CommandFailed
from penstock.app.management.controls import Controls
from penstock.app.management.traffic import Traffic
from penstock.recorder.captures.opening import UnreadableCapture, capture_files

__all__ = ["CaptureEntry", "RecorderDirectory"]

_COMPRESSED: Final = ".zst"


class CaptureEntry(NamedTuple):
    """A capture: its size in bytes, the time of its last change in ms since the epoch, and the number of the running
    recording that writes it."""

    name: str
    bytes: int
    modified: int
    recording: int | None


class RecorderDirectory:
    """The directory of the configuration in force. Only captures directly in it can be named."""

    def __init__(self, traffic: Traffic, controls: Controls) -> None:
        self._traffic = traffic
        self._controls = controls

    @property
    def path(self) -> Path:
        """The directory. Raises CommandFailed if none is configured."""
        recorder = self._controls.config().recorder
        if recorder is None:
            raise CommandFailed("this gateway has no [recorder] directory, so it has no recordings")
        return Path(recorder.directory).absolute()

    async def captures(self) -> list[CaptureEntry]:
        """Return the captures, the newest first. Raises CommandFailed if no directory is configured."""
        running = self._traffic.running()
        writing = {
            Path(recording["file"]).name: recording["id"] for recording in running if recording["file"] is not None
        }
        return await trio.to_thread.run_sync(self._captures, writing)

    async def paths(self, *names: str) -> list[Path]:
        """Return the files of these names; one that was compressed since it was listed is found, too. Raises
        CommandFailed, with the same words whatever else a name leads to."""
        files = await trio.to_thread.run_sync(self._files)
        chosen = [files.get(name) or files.get(f"{name}{_COMPRESSED}") for name in names]
        for name, path in zip(names, chosen, strict=True):
            if path is None:
                raise CommandFailed(f"{name!r:.120} is not a recording of this gateway; list them first")
        return [path for path in chosen if path is not None]

    def _captures(self, writing: dict[str, int]) -> list[CaptureEntry]:
        entries = []
        for name, path in self._files().items():
            try:
                about = path.stat()
            except FileNotFoundError:  # deleted meanwhile, as too old
                continue
            entries.append(CaptureEntry(name, about.st_size, about.st_mtime_ns // 1_000_000, writing.get(name)))
        return sorted(entries, key=lambda entry: (entry.modified, entry.name), reverse=True)

    def _files(self) -> dict[str, Path]:
        """Return the captures by name. Links that lead out of the directory are left out."""
        try:
            captures = capture_files(self.path)
        except UnreadableCapture:
            return {}
        home = self.path.resolve()
        return {file.name: file for file in captures if file.is_file() and file.resolve().parent == home}
