"""Recordings begun by the configuration or at run time, into files or for one listener."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Final

import msgspec
import structlog
import trio
from msgspec.structs import replace

from penstock.capture.redaction.rules import RedactionRules
from penstock.model.failures import FailureCode, fail
from penstock.observe.metrics.families import (
    RECORDED_BYTES,
    RECORDED_CONVERSATIONS,
    RECORDER_QUEUE_BYTES,
    RECORDINGS,
    RECORDINGS_DROPPED,
    RECORDINGS_SUSPENDED,
)
from penstock.observe.metrics.series import Sample
from penstock.recorder.files import FileRecording
from penstock.recorder.live import LiveRecording, LiveWriter
from penstock.recorder.recorder import Recorder, Recording
from penstock.recorder.selection import Selection
from penstock.recorder.settings import FileSettings
from penstock.recorder.status import RecordingState, RecordingStatus

__all__ = ["MOST_RECORDINGS", "PAGE", "Recordings", "RunningRecording"]

log = structlog.get_logger()

MOST_RECORDINGS: Final = 16
"""Maximum number of concurrent recordings into files, and also of live ones: each has a thread and a queue."""
PAGE: Final = "page"
"""The kind of the management page's own view of traffic; it is not listed as a recording."""
_CLOSE_SECONDS: Final = 5.0
_NO_DIRECTORY: Final = (
    "the gateway's configuration has no [recorder] with a directory: add one, or start the gateway with --record "
    "DIRECTORY; `penstock tail` needs neither"
)
_COUNTS: Final = (
    (RECORDED_BYTES, attrgetter("bytes")),
    (RECORDED_CONVERSATIONS, attrgetter("conversations")),
    (RECORDINGS_DROPPED, attrgetter("dropped")),
)


class RunningRecording(msgspec.Struct, frozen=True):
    """A running recording as it is listed. `kind`: `file` or `live`."""

    recording: Recording
    kind: str
    status: RecordingStatus


class Recordings:
    """All recordings of a process. `files`: settings of files; None: no files may be written. `rules`: redactions made
    in all recordings; None: none."""

    def __init__(self, recorder: Recorder, files: FileSettings | None, rules: RedactionRules | None) -> None:
        self._recorder = recorder
        self._files = files
        self._rules = rules
        self._written: dict[Recording, FileRecording] = {}
        self._live: dict[Recording, LiveRecording] = {}
        self._starting = 0
        # A limiter of its own: with a disk that hangs, cancelled starts still wait in their threads.
        self._starters = trio.CapacityLimiter(MOST_RECORDINGS)
        self._prefixes = itertools.count(1)
        self._draining = False

    def change(self, rules: RedactionRules | None, backs_of_routes: Mapping[str, Collection[str]]) -> None:
        """Change the redactions of recordings that begin from now on, and the backs of routes (see `Recorder`)."""
        self._rules = rules
        self._recorder.backs_of_routes = backs_of_routes

    @property
    def running(self) -> Sequence[RunningRecording]:
        """Running recordings, the oldest first, without viewers of the management page."""
        running_recordings = [
            RunningRecording(recording, "file", sink.status()) for recording, sink in self._written.items()
        ]
        running_recordings += [
            RunningRecording(recording, sink.kind, sink.status())
            for recording, sink in self._live.items()
            if sink.kind != PAGE
        ]
        return sorted(running_recordings, key=lambda running: running.recording.id)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of all recordings. See `penstock.observe.metrics.series.Source`."""
        statuses = [running.status for running in self.running]
        yield Sample(RECORDINGS, (), len(statuses))
        yield Sample(RECORDINGS_SUSPENDED, (), sum(status.state is RecordingState.SUSPENDED for status in statuses))
        yield Sample(RECORDER_QUEUE_BYTES, (), sum(status.queue_bytes for status in statuses))
        for family, count in _COUNTS:
            yield Sample(family, (), sum(map(count, statuses)))

    # ---- into files ----------------------------------------------------------------------------------------------

    async def start(self, selection: Selection, *, configured: bool = False) -> RunningRecording:
        """Record into files until it is stopped. A `configured` recording uses the configured prefix; others get a
        prefix of their own, so that their retention does not delete each other's files.

        Raises CannotStart if the directory is not writable, and OperationFailed: INVALID without a directory,
        LIMIT_EXCEEDED if too many run.
        """
        if self._files is None:
            raise fail(FailureCode.INVALID, _NO_DIRECTORY)
        _admit(len(self._written) + self._starting)
        prefix = self._files.prefix if configured else f"{self._files.prefix}-{next(self._prefixes)}"
        sink = FileRecording(replace(self._files, prefix=prefix), self._rules)
        self._starting += 1
        try:
            await _started(sink, self._starters)
        finally:
            self._starting -= 1
        recording = self._recorder.start(selection, sink)
        self._written[recording] = sink
        with trio.CancelScope(shield=True):  # it is listed and running already
            await self._attach_open(recording)
        log.info("recording_started", recording=recording.id, directory=str(self._files.directory))
        return RunningRecording(recording, "file", sink.status())

    async def stop(self, number: int) -> RunningRecording | None:
        """End a recording, live or not, and return its last status; None if there is no recording of this number."""
        running = next((candidate for candidate in self.running if candidate.recording.id == number), None)
        if running is None:
            return None
        recording = running.recording
        self._recorder.stop(recording)
        if recording in self._live:
            sink = self._live[recording]
            sink.end()
            return RunningRecording(recording, sink.kind, sink.status())
        return await self._close(recording)

    async def _close(self, recording: Recording) -> RunningRecording:
        sink = self._written.pop(recording)
        with trio.CancelScope(shield=True):
            if not await trio.to_thread.run_sync(sink.close, _CLOSE_SECONDS):
                log.warning("recording_not_finished", recording=recording.id, seconds=_CLOSE_SECONDS)
        log.info("recording_stopped", recording=recording.id)
        status = sink.status()
        _remember(status)
        return RunningRecording(recording, "file", status)

    # ---- live ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(
        self, selection: Selection, writer: LiveWriter | None = None, kind: str = "live"
    ) -> AsyncIterator[LiveRecording]:
        """Record live until the block ends; the recording ends earlier if it is stopped or the gateway drains. `writer`
        and `kind`: see `LiveRecording`; one of kind `PAGE` is not listed, counted or numbered.

        Raises OperationFailed(LIMIT_EXCEEDED) if too many listen.
        """
        _admit(len(self._live))
        async with LiveRecording(self._rules, writer=writer, kind=kind) as sink:
            listed = kind != PAGE
            recording = self._recorder.start(selection, sink, numbered=listed)
            self._live[recording] = sink
            if listed:
                log.info("listening_started", recording=recording.id)
            try:
                if self._draining:
                    sink.end()
                await self._attach_open(recording)
                yield sink
            finally:
                self._recorder.stop(recording)
                del self._live[recording]
                if listed:
                    _remember(sink.status())
                    log.info("listening_stopped", recording=recording.id)

    async def _attach_open(self, recording: Recording) -> None:
        for _ in self._recorder.attach_open(recording):
            await trio.lowlevel.checkpoint()

    # ---- shutdown ------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """End live recordings, since the gateway is about to stop."""
        self._draining = True
        for sink in self._live.values():
            sink.end()

    def drop_empty(self) -> None:
        """Leave no file behind, when it is closed, in which nothing was recorded."""
        for sink in self._written.values():
            sink.drop_if_empty()

    async def close(self) -> None:
        """End all recordings into files at the same time: with a disk that hangs it takes no longer than one of
        them."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for recording in list(self._written):
                    self._recorder.stop(recording)
                    nursery.start_soon(self._close, recording)


async def _started(sink: FileRecording, starters: trio.CapacityLimiter) -> None:
    """Start a recording. A cancelled start does not wait for a disk that hangs: a recording that begins after all ends
    at once."""
    lock = threading.Lock()
    begun = given_up = False

    def start() -> None:
        nonlocal begun
        sink.start()
        with lock:
            begun = True
            unwanted = given_up
        if unwanted:
            sink.close(_CLOSE_SECONDS)

    try:
        await trio.to_thread.run_sync(start, abandon_on_cancel=True, limiter=starters)
    except trio.Cancelled:
        with lock:
            given_up, late = True, begun
        if late:
            sink.close(0)
        raise


def _remember(status: RecordingStatus) -> None:
    """Add the counts of a recording that has ended to the totals."""
    for family, count in _COUNTS:
        family.child().inc(count(status))


def _admit(running: int) -> None:
    if running >= MOST_RECORDINGS:
        raise fail(FailureCode.LIMIT_EXCEEDED, f"{running} recordings are running already: stop one of them")
