"""A recording in pcapng files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from penstock import DISTRIBUTION
from penstock.capture.pcapng import CaptureEvent
from penstock.capture.pcapng.writing import CaptureWriter
from penstock.capture.redaction.rules import RedactionRules
from penstock.core.errors import CannotStart
from penstock.model.limits import MIB
from penstock.recorder.naming import Naming
from penstock.recorder.output import CaptureFile
from penstock.recorder.queue import EventQueue
from penstock.recorder.recording import RecordingSink
from penstock.recorder.retention import FileRetention
from penstock.recorder.settings import FileSettings, Priority, Sync

__all__ = ["APPLICATION", "FileRecording"]

log = structlog.get_logger()

APPLICATION: Final = f"Penstock {version(DISTRIBUTION)}"
"""The application named in the header of a file."""
_ROOM_BYTES: Final = 4 * MIB
"""Bytes that must be free before a suspended recording resumes, so that it does not flap."""
_LOOK_SECONDS: Final = 1.0
"""Seconds between checks whether the file was deleted: each is a system call, after which the thread waits for Python's
lock."""


class FileRecording(RecordingSink):
    """A Sink that writes pcapng files; to be started and closed once. `rules`: redactions made before writing; None:
    none.

    If the disk is full or fails, the file ends with its last whole block, all that is queued is dropped, and a new file
    is tried every `retry_seconds`.
    """

    def __init__(
        self, settings: FileSettings, rules: RedactionRules | None = None, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        """`clock`: ns since the Unix epoch, for the names of files."""
        self._directory = settings.directory
        naming = Naming(settings.directory, settings.prefix, clock)
        queue = EventQueue(settings.queue_bytes)
        self._keeper = FileRetention(settings, naming, lambda: outlet.file)
        self._files = outlet = _Files(settings, naming, rotated=queue.admit, closed=self._keeper.closed)
        super().__init__(
            outlet,
            queue,
            rules,
            flush_seconds=settings.flush_seconds,
            retry_seconds=settings.retry_seconds,
            limited=settings.priority is Priority.TRAFFIC,
        )

    def start(self) -> None:
        """Begin the first file. Raises CannotStart if the directory is not writable."""
        try:
            self._start()
        except OSError as error:
            raise CannotStart(f"cannot record to {self._directory}: {error.strerror or error}") from error
        self._keeper.start()

    def rotate(self) -> None:
        """Close the file, if anything was recorded in it, and begin another one; if suspended, try to resume now.
        Returns before that is done; `flush` waits for it."""
        self._ask()

    def settle(self, timeout: float = 10.0) -> bool:
        """As `flush`, and wait until closed files are compressed and the oldest are deleted."""
        return self.flush(timeout) and self._keeper.settle(timeout)

    def drop_if_empty(self) -> None:
        """Delete the file when it is closed, if nothing was recorded in it."""
        self._files.keeps_empty = False

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued and close the file. To be called once, in a thread that may block (`trio.to_thread`).
        Returns False if this took longer than `timeout` seconds: files are readable up to their last whole block, and
        are compressed when a recording next starts there."""
        if not self._thread.ident:
            return True
        until = time.monotonic() + timeout
        self._stop()
        self._thread.join(timeout)
        settled = self._keeper.close(max(0.0, until - time.monotonic()))
        return settled and not self._thread.is_alive()


class _Files:
    """The outlet: one file after another. Calls `rotated` after the next file has begun, and `closed` for each file
    that is complete."""

    def __init__(
        self, settings: FileSettings, naming: Naming, rotated: Callable[[], None], closed: Callable[[Path], None]
    ) -> None:
        self._settings = settings
        self._naming = naming
        self._rotated = rotated
        self._closed = closed
        self._file: CaptureFile | None = None
        self._writer: CaptureWriter | None = None
        self._earlier_bytes = 0
        self._events = 0  # in this file
        self._begun = self._synced = self._look_at = 0.0
        self._synced_bytes = 0
        self.files = 0
        self.keeps_empty = True
        """True if a file is kept in which nothing was recorded."""

    @property
    def file(self) -> Path | None:
        file = self._file  # read once: the thread may clear it
        return file.path if file else None

    @property
    def bytes(self) -> int:
        file = self._file
        return self._earlier_bytes + (file.written if file else 0)

    def begin(self, *, again: bool) -> None:
        path, held = self._naming.create()
        file = CaptureFile(path, held)
        writer = CaptureWriter(APPLICATION, self._writer)
        try:
            if again:
                file.reserve(_ROOM_BYTES)
            file.add(writer.begin())
            file.flush()
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        self._file, self._writer = file, writer
        self.files += 1
        self._events = 0
        self._begun = self._synced = time.monotonic()
        self._synced_bytes = 0

    def write(self, events: Iterator[CaptureEvent]) -> int:
        most = self._settings.rotate_bytes
        count = 0
        file, writer = self._looked_after()
        for event in events:
            file.add(writer.encode(event))
            count += 1
            self._events += 1
            if most is not None and file.size >= most:
                self._rotate(file)
                file, writer = self._now()
        file.flush()
        return count

    def _looked_after(self) -> tuple[CaptureFile, CaptureWriter]:
        """Return the current file, or a new one if the current one was deleted."""
        file, writer = self._now()
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            if file.is_gone:
                log.warning("recording_file_missing", file=str(file.path))
                self._rotate(file)
                return self._now()
        return file, writer

    def due(self) -> float | None:
        times = [moment for moment in (self._rotation(), self._sync()) if moment is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def turn(self, *, asked: bool) -> None:
        file, _ = self._now()
        now = time.monotonic()
        rotation, sync = self._rotation(), self._sync()
        if (asked and self._events) or (rotation is not None and now >= rotation):
            self._rotate(file)
        elif sync is not None and now >= sync:
            self._synced, self._synced_bytes = now, file.written
            file.sync()

    def abandon(self) -> None:
        self._drop_file()
        self._writer = None

    def end(self) -> None:
        file, _ = self._now()
        file.flush()
        self._drop_file()
        if self._events or self.keeps_empty:
            self._closed(file.path)
        else:
            file.path.unlink(missing_ok=True)

    def _now(self) -> tuple[CaptureFile, CaptureWriter]:
        assert self._file is not None and self._writer is not None, "no file is open"
        return self._file, self._writer

    def _rotation(self) -> float | None:
        seconds = self._settings.rotate_seconds
        return self._begun + seconds if seconds is not None and self._events else None

    def _sync(self) -> float | None:
        if self._settings.fsync is not Sync.INTERVAL or self._now()[0].written == self._synced_bytes:
            return None
        return self._synced + self._settings.fsync_seconds

    def _rotate(self, file: CaptureFile) -> None:
        file.flush()
        self._drop_file()
        self.begin(again=False)
        self._rotated()
        self._closed(file.path)

    def _drop_file(self) -> None:
        if self._file is not None:
            self._earlier_bytes += self._file.written
            self._file.close()
            self._file = None
