"""Recordings that are begun by the configuration or at run time, into files or for one listener."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import structlog
import trio

from penstock.metrics.families import (
    RECORDED_BYTES,
    RECORDED_CONVERSATIONS,
    RECORDER_QUEUE_BYTES,
    RECORDINGS,
    RECORDINGS_DROPPED,
    RECORDINGS_SUSPENDED,
)
from penstock.metrics.series import Sample
from penstock.recorder.files import FileRecording
from penstock.recorder.live import LiveRecording, LiveWriter
from penstock.recorder.recorder import Recorder, Recording
from penstock.recorder.selection import Selection
from penstock.recorder.settings import FileSettings
from penstock.recorder.status import RecordingState, RecordingStatus
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.redaction import RedactionRules

__all__ = ["MOST_RECORDINGS", "Recordings", "Running"]

log = structlog.get_logger()

MOST_RECORDINGS: Final = 16
"""At once, into files, and as many live: each has a thread and a queue."""
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """A recording as others see it. `kind`: `file`, `live`, or `page` for the management listener's own page."""

    recording: Recording
    kind: str
    status: RecordingStatus


class Recordings:
    """All of a process. `files`: where they go; None: nothing may be written. `rules`: what is blanked in all of them,
    whoever begins them; None: nothing."""

    def __init__(self, recorder: Recorder, files: FileSettings | None, rules: RedactionRules | None) -> None:
        self._recorder = recorder
        self._files = files
        self._rules = rules
        self._written: dict[Recording, FileRecording] = {}
        self._live: dict[Recording, LiveRecording] = {}
        self._starting = 0
        # Not that of others: with a disk that hangs, those that were given up wait in their threads all the same.
        self._starters = trio.CapacityLimiter(MOST_RECORDINGS)
        self._prefixes = itertools.count(1)
        self._draining = False

    def change(self, rules: RedactionRules | None, backs_of_routes: Mapping[str, Collection[str]]) -> None:
        """What is blanked in recordings that begin from now on, and where routes lead (see `Recorder`)."""
        self._rules = rules
        self._recorder.backs_of_routes = backs_of_routes

    @property
    def running(self) -> Sequence[Running]:
        """The oldest first."""
        found = [Running(one, "file", sink.status()) for one, sink in self._written.items()]
        found += [Running(one, sink.kind, sink.status()) for one, sink in self._live.items()]
        return sorted(found, key=lambda running: running.recording.id)

    def samples(self) -> Iterator[Sample]:
        """How all of them are doing. See `penstock.metrics.series.Source`."""
        statuses = [running.status for running in self.running]
        yield Sample(RECORDINGS, (), len(statuses))
        yield Sample(RECORDINGS_SUSPENDED, (), sum(one.state is RecordingState.SUSPENDED for one in statuses))
        yield Sample(RECORDER_QUEUE_BYTES, (), sum(one.queue_bytes for one in statuses))
        for family, count in _COUNTS:
            yield Sample(family, (), sum(map(count, statuses)))

    # ---- into files ----------------------------------------------------------------------------------------------

    async def start(self, selection: Selection, *, configured: bool = False) -> Running:
        """Record until it is stopped. What is `configured` has the usual names; others have a prefix of their own, so
        that rotation deletes nothing of each other.

        Raises CannotStart where the directory cannot be written to, and OperationFailed: INVALID where there is no
        directory, LIMIT_EXCEEDED where too many run.
        """
        if self._files is None:
            raise fail(FailureCode.INVALID, "the gateway's configuration has no [recorder] with a directory")
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
        with trio.CancelScope(shield=True):  # it is there, and is there for all of them
            await self._attach_open(recording)
        log.info("recording_started", recording=recording.id, directory=str(self._files.directory))
        return Running(recording, "file", sink.status())

    async def stop(self, number: int) -> Running | None:
        """End a recording in order, a live one too: its status then; None where there is none of this number."""
        found = next((one for one in self.running if one.recording.id == number), None)
        if found is None:
            return None
        recording = found.recording
        self._recorder.stop(recording)
        if recording in self._live:
            sink = self._live[recording]
            sink.end()
            return Running(recording, sink.kind, sink.status())
        return await self._close(recording)

    async def _close(self, recording: Recording) -> Running:
        sink = self._written.pop(recording)
        with trio.CancelScope(shield=True):
            if not await trio.to_thread.run_sync(sink.close, _CLOSE_SECONDS):
                log.warning("recording_not_finished", recording=recording.id, seconds=_CLOSE_SECONDS)
        log.info("recording_stopped", recording=recording.id)
        status = sink.status()
        _remember(status)
        return Running(recording, "file", status)

    # ---- for a listener ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(
        self, selection: Selection, writer: LiveWriter | None = None, kind: str = "live"
    ) -> AsyncIterator[LiveRecording]:
        """A live recording until the block ends; it ends earlier where it is stopped, or the gateway drains. `writer`
        and `kind`: see `LiveRecording`.

        Raises OperationFailed(LIMIT_EXCEEDED) where too many listen.
        """
        _admit(len(self._live))
        async with LiveRecording(self._rules, writer=writer, kind=kind) as sink:
            recording = self._recorder.start(selection, sink)
            self._live[recording] = sink
            log.info("listening_started", recording=recording.id)
            try:
                if self._draining:
                    sink.end()
                await self._attach_open(recording)
                yield sink
            finally:
                self._recorder.stop(recording)
                del self._live[recording]
                _remember(sink.status())
                log.info("listening_stopped", recording=recording.id)

    async def _attach_open(self, recording: Recording) -> None:
        for _ in self._recorder.attach_open(recording):
            await trio.lowlevel.checkpoint()

    # ---- the end -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """The gateway is about to stop: nobody need listen any longer."""
        self._draining = True
        for sink in self._live.values():
            sink.end()

    async def close(self) -> None:
        """End all that is written into files, in order, and all at once: with a disk that hangs it takes no longer than
        one of them."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for recording in list(self._written):
                    self._recorder.stop(recording)
                    nursery.start_soon(self._close, recording)


async def _started(sink: FileRecording, starters: trio.CapacityLimiter) -> None:
    """Start it. Where it is cancelled it does not wait for a disk that hangs: what begins all the same ends at once."""
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


_COUNTS: Final = (
    (RECORDED_BYTES, attrgetter("bytes")),
    (RECORDED_CONVERSATIONS, attrgetter("conversations")),
    (RECORDINGS_DROPPED, attrgetter("dropped")),
)


def _remember(status: RecordingStatus) -> None:
    """What a recording that is over has done stays in the sums."""
    for family, count in _COUNTS:
        family.child().inc(count(status))


def _admit(running: int) -> None:
    if running >= MOST_RECORDINGS:
        raise fail(FailureCode.LIMIT_EXCEEDED, f"{running} recordings are running already: stop one of them")
