"""Show Spark's progress line by line, on standard error if that is a terminal.

A stage is shown when it has taken a second or more: every few seconds while it runs, and at its end. Rows are those
that it read, or got from an earlier stage, as counted by Spark's status store (which is updated as tasks end).
Micro-batches are reported by Spark's query listener.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Stage", "StageLines", "progress_lines", "rate"]

_POLL_SECONDS: Final = 0.5
_SHORT_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 5.0
_NO_STEP: Final = "other work"


class Stage(NamedTuple):
    """The current state of a stage of a job. `what`: the job's description, the step that it is part of."""

    number: int
    what: str
    tasks: int
    done: int
    rows: int


class _Store(Protocol):
    """The part of Spark's status that is used."""

    def active(self) -> list[int]:
        """Return the numbers of the running stages."""

    def stage(self, number: int) -> Stage | None:
        """Return a stage, running or ended; None if Spark has forgotten it."""


class _Watched(NamedTuple):
    began: float
    told: float


class StageLines:
    """Converts the states of stages to lines. `now`: seconds, on any clock that never goes back."""

    def __init__(self, store: _Store, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now = now
        self._watched: dict[int, _Watched] = {}

    def look(self) -> Iterator[str]:
        """Yield the lines that are due: of stages that have ended, then of running ones."""
        now = self._now()
        active = self._store.active()
        for number in sorted(self._watched.keys() - set(active)):
            began = self._watched.pop(number).began
            if now - began >= _SHORT_SECONDS:
                yield from self._line(number, now - began, ended=True)
        for number in sorted(active):
            seen = self._watched.setdefault(number, _Watched(now, now))
            if now - seen.told >= _EVERY_SECONDS:
                self._watched[number] = _Watched(seen.began, now)
                yield from self._line(number, now - seen.began, ended=False)

    def _line(self, number: int, seconds: float, *, ended: bool) -> Iterator[str]:
        stage = self._store.stage(number)
        if stage is None:
            return
        tasks = f"{stage.tasks} tasks" if ended else f"{stage.done} of {stage.tasks} tasks"
        rows = f", {rate(stage.rows, seconds)}" if stage.rows else ""
        yield f"{stage.what}, stage {number}: {tasks} in {seconds:.1f} s{rows}"


def rate(rows: int, seconds: float) -> str:
    """Return rows and their rate: `1,234 rows, 617 rows/s`."""
    return f"{rows:,} rows, {rows / max(seconds, 1e-3):,.0f} rows/s"


@contextmanager
def progress_lines(session: SparkSession, *, shown: bool | None = None) -> Iterator[None]:
    """Print lines on standard error while the block runs. `shown`: None: only if that is a terminal."""
    if shown is None:
        shown = sys.stderr.isatty()
    if not shown:
        yield
        return
    ended = threading.Event()
    lines = StageLines(_SparkStore(session))
    listener = _batch_listener()
    watcher = threading.Thread(target=_watch, args=(lines, ended), name="penstock-progress", daemon=True)
    session.streams.addListener(listener)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        session.streams.removeListener(listener)


def _watch(lines: StageLines, ended: threading.Event) -> None:
    while not ended.wait(_POLL_SECONDS):
        for line in lines.look():
            print(line, file=sys.stderr, flush=True)


class _SparkStore:
    """Reads the status from the driver's JVM. Python's status tracker has tasks, its store in the JVM has rows, too."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._store: Any = session.sparkContext._jsc.sc().statusStore()

    def active(self) -> list[int]:
        return list(self._tracker.getActiveStageIds())

    def stage(self, number: int) -> Stage | None:
        from py4j.protocol import Py4JError

        try:
            attempt = self._store.lastStageAttempt(number)
            said = attempt.description()
            what = said.get() if said.isDefined() else _NO_STEP  # Spark's own name is a line of source
            rows = max(attempt.inputRecords(), attempt.shuffleReadRecords())
            what = str(what).partition("\n")[0]
            return Stage(number, what, attempt.numTasks(), attempt.numCompleteTasks(), rows)
        except Py4JError:  # "no stage with id": it ended long ago, and many others since
            return None


def _batch_listener() -> Any:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class BatchLines(StreamingQueryListener):
        """Prints a line for each micro-batch that had rows."""

        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
            """Do nothing."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            """Print the micro-batch."""
            batch = event.progress
            if batch.numInputRows:
                told = rate(batch.numInputRows, batch.batchDuration / 1000)
                print(f"{batch.name or 'query'}, batch {batch.batchId}: {told}", file=sys.stderr, flush=True)

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            """Do nothing: the caller that waits for the query gets the result."""

    return BatchLines()
