"""The common base of recordings: the queue, the thread behind it, redaction and the log of failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from penstock.capture.pcapng import CaptureEvent
from penstock.capture.redaction.rules import RedactionRules
from penstock.recorder.pacing import REST_SECONDS, Pacing
from penstock.recorder.queue import EventQueue
from penstock.recorder.status import RecordingState, RecordingStatus

if TYPE_CHECKING:
    from penstock.capture.redaction.redactor import Redactor

__all__ = ["Outlet", "RecordingSink"]

log = structlog.get_logger()
_DROPS_SECONDS: Final = 1.0
"""Drops are logged at most once per this many seconds."""


_COOLDOWN_SECONDS: Final = 30.0
"""Seconds without a drop after which a file is ended early, so that dropped conversations may be recorded again."""


def _redactor(rules: RedactionRules | None) -> Redactor | None:
    from penstock.capture.redaction.redactor import Redactor  # with the first recording, since it imports much

    return Redactor(rules) if rules else None


class Outlet(Protocol):
    """A destination of a recording's thread. A method that raises OSError leaves it in a state for `abandon`."""

    @property
    def file(self) -> Path | None:
        """The file that is being written."""

    @property
    def files(self) -> int:
        """Number of files that were begun."""

    @property
    def bytes(self) -> int:
        """Bytes written."""

    def begin(self, *, again: bool) -> None:
        """Begin a file, before anything is written. `again`: after `abandon`. Raises OSError."""

    def write(self, events: Iterator[CaptureEvent]) -> int:
        """Write all events and flush them out of the process; return their number. Raises OSError, and what the
        iterator raises."""

    def due(self) -> float | None:
        """Return the number of seconds until it wants `turn`; None: not before something is written."""

    def turn(self, *, asked: bool) -> None:
        """Do periodic work. `asked`: begin a new file. Raises OSError."""

    def abandon(self) -> None:
        """Give up the current file after an error; nothing more comes until `begin`."""

    def end(self) -> None:
        """End the output. Raises OSError."""


class RecordingSink:
    """A Sink that passes events through the redactor to an outlet, in a thread of its own."""

    def __init__(
        self,
        outlet: Outlet,
        queue: EventQueue,
        rules: RedactionRules | None,
        *,
        flush_seconds: float,
        retry_seconds: float,
        limited: bool = True,
        reports_drops: bool = True,
    ) -> None:
        """`queue`: empty, and not yet accepting anything. `limited`: see `Pacing`. `reports_drops`: log what was
        dropped."""
        self._outlet = outlet
        self._queue = queue
        self._rules = rules
        self._redactor = _redactor(rules)
        self._flush_seconds = flush_seconds
        self._retry_seconds = retry_seconds
        self._retry_at = 0.0
        self._pacing = Pacing(limited=limited)
        self._state = RecordingState.STOPPED
        self._events = 0
        self._last_error: str | None = None
        self._settling = threading.Condition()
        self._wanted = self._done = 0  # calls of `flush`
        self._asked = self._closing = self._ended = False
        self._logging = threading.Lock()
        self._reports_drops = reports_drops
        self._drops_logged = 0
        self._drops_at = -_DROPS_SECONDS
        self._drops_seen = 0
        self._cooldown_ends: float | None = None  # when dropped conversations are recorded again
        # A daemon, so that a disk that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="penstock-recording", daemon=True)

    # ---- for any thread ------------------------------------------------------------------------------------------

    def put(self, event: CaptureEvent) -> bool:
        """As `Sink.put`."""
        taken = self._queue.put(event)
        if self._queue.drops.conversations != self._drops_logged:
            self._log_drops()
        return taken

    @property
    def generation(self) -> int:
        """As `Sink.generation`."""
        return self._queue.generation

    def status(self) -> RecordingStatus:
        """Return its status; cheap, and callable from any thread."""
        outlet, queue = self._outlet, self._queue
        return RecordingStatus(
            state=self._state,
            file=outlet.file,
            files=outlet.files,
            bytes=outlet.bytes,
            events=self._events,
            conversations=queue.conversations,
            dropped=queue.drops.conversations,
            queue_bytes=queue.held,
            last_error=self._last_error,
        )

    def flush(self, timeout: float = 10.0) -> bool:
        """Block until all events put so far, and a requested new file, are written or given up. Returns False if that
        takes longer than `timeout` seconds. To be called in a thread that may block."""
        with self._settling:
            self._wanted += 1
            wanted = self._wanted
            self._queue.hurry()
            return self._settling.wait_for(lambda: self._done >= wanted or self._ended, timeout)

    def _start(self) -> None:
        """Begin the output and the thread. Raises OSError."""
        self._outlet.begin(again=False)
        self._admit()
        self._thread.start()

    def _ask(self) -> None:
        with self._settling:
            self._asked = True
        self._queue.hurry()

    def _stop(self) -> None:
        with self._settling:
            self._closing = True
        self._queue.hurry()

    def _log_drops(self, *, last: bool = False) -> None:
        """Log new drops, in an empty context: the line is not about the connection of the current task."""
        now = time.monotonic()
        if (now - self._drops_at < _DROPS_SECONDS and not last) or not self._logging.acquire(blocking=last):
            return
        try:
            self._drops_at = now
            drops = self._queue.drops
            conversations = drops.conversations - self._drops_logged
            self._drops_logged += conversations
            if conversations and self._reports_drops:
                fields = {
                    "conversations": conversations,
                    "in_all": drops.conversations,
                    "queue_bytes": self._queue.held,
                }
                Context().run(log.warning, "recording_drops_conversations", **fields)
        finally:
            self._logging.release()

    # ---- in the recording's thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._turn():
                pass
            self._end()
        except Exception as error:  # a defect of Penstock: the recording stops, and traffic continues
            self._last_error = _said(error)
            log.exception("recording_failed")
        finally:
            self._state = RecordingState.STOPPED
            self._queue.close()
            self._log_drops(last=True)
            with self._settling:
                self._ended = True
                self._settling.notify_all()

    def _turn(self) -> bool:
        """Do one round of work. Returns whether it was the last one."""
        self._queue.wait(self._idle_seconds(), self._flush_seconds)
        with self._settling:
            wanted, closing = self._wanted, self._closing
            asked, self._asked = self._asked, False
        if self._state is RecordingState.SUSPENDED and (asked or time.monotonic() >= self._retry_at):
            self._try_again()
        while batch := self._queue.take():
            self._rest()
            self._write(batch)
            if wanted == self._done and not closing:
                break  # look for other work
        self._keep(asked=self._cooled_down() or asked)
        if self._queue.drops.conversations != self._drops_logged:
            self._log_drops()
        if wanted > self._done:
            with self._settling:
                self._done = wanted
                self._settling.notify_all()
        return closing

    def _idle_seconds(self) -> float | None:
        if self._state is RecordingState.SUSPENDED:
            return max(0.0, self._retry_at - time.monotonic())
        due = [] if (seconds := self._outlet.due()) is None else [seconds]
        if self._queue.drops.conversations != self._drops_logged:
            due.append(_DROPS_SECONDS)
        if self._cooldown_ends is not None:
            due.append(max(0.0, self._cooldown_ends - time.monotonic()))
        return min(due, default=None)

    def _cooled_down(self) -> bool:
        """Return whether conversations were dropped from this file, and none for a while."""
        now, drops = time.monotonic(), self._queue.drops.conversations
        if drops != self._drops_seen:
            self._drops_seen, self._cooldown_ends = drops, now + _COOLDOWN_SECONDS
        if self._cooldown_ends is None or now < self._cooldown_ends:
            return False
        self._cooldown_ends = None
        return True

    def _rest(self) -> None:
        """Rest while traffic needs the processors, unless `flush` or `close` waits for this thread."""
        resting = self._pacing.rest()
        self._queue.hold_less(resting)
        while resting and self._wanted == self._done and not self._closing:
            time.sleep(REST_SECONDS)
            resting = self._pacing.rest()

    def _write(self, batch: Sequence[CaptureEvent]) -> None:
        try:
            events = iter(batch) if self._closing else self._pacing.paced(batch)
            self._events += self._outlet.write(events if self._redactor is None else self._redacted(events))
        except Exception as error:
            self._suspend(error)
        else:
            self._queue.written()

    def _redacted(self, events: Iterator[CaptureEvent]) -> Iterator[CaptureEvent]:
        assert self._redactor is not None
        for event in events:
            yield from self._redactor.redact(event)

    def _keep(self, *, asked: bool) -> None:
        if self._state is RecordingState.RECORDING:
            try:
                self._outlet.turn(asked=asked)
            except Exception as error:
                self._suspend(error)

    def _end(self) -> None:
        if self._state is RecordingState.SUSPENDED:
            return
        try:
            if self._redactor is not None:
                self._events += self._outlet.write(iter(self._redactor.flush()))
            self._outlet.end()
        except Exception as error:
            self._suspend(error)

    # ---- suspension: a full disk, and other failures -----------------------------------------------------------------

    def _admit(self) -> None:
        self._state = RecordingState.RECORDING
        self._drops_seen, self._cooldown_ends = self._queue.drops.conversations, None  # all may be recorded again
        self._queue.admit()

    def _suspend(self, error: Exception) -> None:
        file = self._outlet.file
        self._outlet.abandon()
        dropped = self._queue.suspend()
        self._drops_logged = self._queue.drops.conversations  # the log line below reports them
        self._redactor = _redactor(self._rules)
        self._state = RecordingState.SUSPENDED
        self._retry_at = time.monotonic() + self._retry_seconds
        self._last_error = _said(error)
        log.error(
            "recording_suspended",
            error=self._last_error,
            file=str(file),
            conversations=dropped,
            retry_seconds=self._retry_seconds,
            exc_info=not isinstance(error, OSError),  # a defect of Penstock
        )

    def _try_again(self) -> None:
        try:
            self._outlet.begin(again=True)
        except OSError as error:
            self._last_error = _said(error)
            self._retry_at = time.monotonic() + self._retry_seconds
        else:
            self._admit()
            log.warning("recording_resumed", file=str(self._outlet.file))


def _said(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
