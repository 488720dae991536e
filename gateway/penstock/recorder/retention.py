"""Retention of closed files: flush them to the disk, compress them, and delete the oldest, in a thread of its own, so
that the recording never waits for it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from penstock.recorder.compression import Interrupted, squeeze
from penstock.recorder.naming import SQUEEZED, Naming, try_lock
from penstock.recorder.settings import FileCompression, FileSettings, Sync

__all__ = ["FileRetention"]

log = structlog.get_logger()

_NICE: Final = 10
"""Niceness of the thread: compression is not urgent."""


class FileRetention:
    """Flushes, compresses and deletes files. It looks through the directory after each closed file, and so finds files
    that killed processes left.

    `current`: returns the file being written, if there is one.
    """

    def __init__(self, settings: FileSettings, naming: Naming, current: Callable[[], Path | None]) -> None:
        self._settings = settings
        self._naming = naming
        self._current = current
        self._syncs = settings.fsync is not Sync.NEVER
        self._closed: deque[Path] = deque()  # by this process, and not yet looked at
        self._ours: set[Path] = set()  # closed by this process: complete, even where locks are unsupported
        self._state = threading.Condition()
        self._wanted = 1  # the first turn is for existing files
        self._done = 0
        self._ending = self._interrupted = False
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-captures", daemon=True)

    def start(self) -> None:
        """Start the thread, which begins with existing files."""
        self._thread.start()

    def closed(self, path: Path) -> None:
        """Note that this file is complete. Returns at once."""
        self._closed.append(path)
        with self._state:
            self._wanted += 1
            self._state.notify_all()

    def settle(self, timeout: float) -> bool:
        """Block until all files closed so far are processed. Returns False if that takes longer than `timeout`
        seconds."""
        with self._state:
            wanted = self._wanted
            self._state.wait_for(lambda: self._done >= wanted or self._ending, timeout)
            return self._done >= wanted

    def close(self, timeout: float) -> bool:
        """As `settle`; then end the thread. Unfinished work is left to the next start."""
        settled = self.settle(timeout) if self._thread.is_alive() else True
        with self._state:
            self._ending = True
            self._interrupted = not settled
            self._state.notify_all()
        return settled

    def _run(self) -> None:
        if sys.platform == "linux":  # only there does a thread have its own priority
            with contextlib.suppress(OSError):
                own = threading.get_native_id()
                os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _NICE)
        while True:
            with self._state:
                self._state.wait_for(lambda: self._ending or self._wanted > self._done)
                if self._ending:
                    return
                wanted = self._wanted
            try:
                self._turn()
            except Interrupted:
                return
            except Exception as error:  # a full disk, or an unforeseen error: tried again after the next file
                self._log_failure(error)
            else:
                self._last_error = None
            with self._state:
                self._done = wanted
                self._state.notify_all()

    def _log_failure(self, error: Exception) -> None:
        message = str(error)
        if message != self._last_error:
            self._last_error = message
            log.error("retention_failed", directory=str(self._settings.directory), error=message)

    def _turn(self) -> None:
        while self._closed:
            path = self._closed.popleft()
            self._ours.add(path)
            if self._syncs:
                self._sync(path)
        self._retain()
        if self._settings.compress is not FileCompression.ZSTD:
            return
        self._sweep()
        for path in self._naming.files():
            if path.suffix != ".zst" and path != self._current():
                with self._free(path) as descriptor:
                    if descriptor is None:
                        continue
                    if os.fstat(descriptor).st_size:
                        squeeze(path, descriptor, sync=self._syncs, stop=lambda: self._interrupted)
                    else:  # its process was killed before it wrote, or has just created it and not locked it yet
                        path.unlink(missing_ok=True)
                    self._ours.discard(path)
                self._retain()

    def _sync(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _free(self, path: Path) -> Iterator[int | None]:
        """Open and lock a file; None if it is gone or locked by another process."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            yield None
            return
        try:
            locked = try_lock(descriptor)
            yield descriptor if locked or (locked is None and path in self._ours) else None
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        """Delete the partial files of killed processes. A process that compresses holds the lock of the source file."""
        for partial in self._naming.partials():
            source = self._naming.source(partial)
            with self._free(source) as descriptor:
                if descriptor is not None or not source.exists():
                    partial.unlink(missing_ok=True)

    def _retain(self) -> None:
        """Delete the oldest files until number and size are within bounds, with room for the full size of the current
        file."""
        settings, current = self._settings, self._current()
        sizes: dict[Path, int] = {}
        for path in self._naming.files():
            with contextlib.suppress(FileNotFoundError):
                sizes[path] = path.stat().st_size
        if current is not None:
            sizes[current] = max(sizes.get(current, 0), settings.rotate_bytes or 0)
        files, size = len(sizes), sum(sizes.values())
        for path in list(sizes):
            few = settings.keep_files is None or files <= settings.keep_files
            if few and (settings.keep_bytes is None or size <= settings.keep_bytes):
                break
            if path != current and self._delete(path):
                files -= 1
                size -= sizes[path]
        self._ours &= sizes.keys()

    def _delete(self, path: Path) -> bool:
        if path.name.endswith(SQUEEZED):
            path.unlink(missing_ok=True)
            return True
        with self._free(path) as descriptor:
            if descriptor is None and path.exists():
                return False
            path.unlink(missing_ok=True)
            return True
