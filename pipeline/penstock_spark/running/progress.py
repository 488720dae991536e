"""What Spark is doing, a plain line at a time, on standard error where that is a terminal.

A stage is told of when it has taken a second or more: every few seconds while it runs, and at its end. Rows are those
that it read, or those that it got from a stage before it, as Spark's own status store counts them (it learns of them
as tasks end). A micro-batch is told of by Spark's query listener.
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

__all__ = ["Stage", "StageLines", "rate", "watched"]

_POLL_SECONDS: Final = 0.5
_SHORT_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 5.0


class Stage(NamedTuple):
    """A stage of a job, as it is now. `what`: the job's description, or Spark's name for the stage."""

    number: int
    what: str
    tasks: int
    done: int
    rows: int


class _Store(Protocol):
    """What is asked of Spark."""

    def active(self) -> list[int]:
        """Numbers of the stages that run now."""

    def stage(self, number: int) -> Stage | None:
        """One of them, or one that has ended; None where it is forgotten."""


class _Watched(NamedTuple):
    began: float
    told: float


class StageLines:
    """Turns looks at the stages into lines. `now`: seconds, on any clock that never goes back."""

    def __init__(self, store: _Store, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now = now
        self._watched: dict[int, _Watched] = {}

    def look(self) -> Iterator[str]:
        """The lines that are due: of stages that have ended, then of those that go on."""
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
    """`1,234 rows, 617 rows/s`."""
    return f"{rows:,} rows, {rows / max(seconds, 1e-3):,.0f} rows/s"


@contextmanager
def watched(session: SparkSession, *, shown: bool | None = None) -> Iterator[None]:
    """Lines on standard error while what is inside runs. `shown`: None is whether that is a terminal."""
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
    """Asks the driver's JVM. The status tracker of Python knows tasks, its store in the JVM knows rows, too."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._store: Any = session.sparkContext._jsc.sc().statusStore()

    def active(self) -> list[int]:
        return list(self._tracker.getActiveStageIds())

    def stage(self, number: int) -> Stage | None:
        from py4j.protocol import Py4JError

        try:
            found = self._store.lastStageAttempt(number)
            said = found.description()
            what = said.get() if said.isDefined() else found.name()
            rows = max(found.inputRecords(), found.shuffleReadRecords())
            what = str(what).partition("\n")[0]
            return Stage(number, what, found.numTasks(), found.numCompleteTasks(), rows)
        except Py4JError:  # "no stage with id": it was long ago, and there have been many since
            return None


def _batch_listener() -> Any:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class BatchLines(StreamingQueryListener):
        """A line for each micro-batch that had rows."""

        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
            """Nothing to say."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            """Say it."""
            batch = event.progress
            if batch.numInputRows:
                told = rate(batch.numInputRows, batch.batchDuration / 1000)
                print(f"{batch.name or 'query'}, batch {batch.batchId}: {told}", file=sys.stderr, flush=True)

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            """Nothing to say: who waits for the query is told."""

    return BatchLines()
