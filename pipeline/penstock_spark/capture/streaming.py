"""Reading captures while they are written: `spark.readStream.format("penstock-capture")`.

Only files that grow no more are read (`completeness`). An offset is, for each recording, its last file that was read,
and the file with which it was taken to have ended, if it was. Conversations go on from file to file, so that a batch
reads the recording's earlier files too, and decodes of them what goes on in the new ones; it tells what the new files
make known, and nothing that was known before: so nothing that crosses a rotation is lost or doubled. What is never
answered is told when its conversation ends, or the recording does.

What the gateway noted is known as far as files were read: a request may have no `route` that has one in a batch query.
What a recorder has deleted meanwhile, because it keeps only so many files, is as if it had not been recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from penstock_spark.capture.batch import CapturePartition, parts_of
from penstock_spark.capture.completeness import complete, over
from penstock_spark.capture.decoding import Part, decode
from penstock_spark.capture.files import NothingThere, Place, find, plain_name
from penstock_spark.capture.options import CaptureOptions
from penstock_spark.capture.recordings import Recording, Runs, recordings_of
from penstock_spark.options import WrongOptions

__all__ = ["CaptureStreamReader", "Progress"]

VERSION: Final = 1
"""Of offsets, in checkpoints."""


class Progress(NamedTuple):
    """How far a recording was read. Files by their plain path. `first`: what the column `file` says; `over`: what is
    read from behind it on is as if another recording began there."""

    first: str
    last: str
    over: str = ""


class CaptureStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads recordings file by file."""

    def __init__(self, options: CaptureOptions, schema: pa.Schema, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock`: ns since 1970."""
        if options.together:
            raise WrongOptions("penstock-capture", ["together: a streaming query reads recordings one by one"])
        self._options = options
        self._schema = schema
        self._clock = clock
        self._runs = Runs()
        self._target: dict[str, Progress] | None = None

    # ---- offsets -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Before all files."""
        return _offset({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """As the options say."""
        most = self._options.max_files_per_batch
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """What comes from now on is left to the next run of the query."""
        self._target = None
        self._target = self._available({})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's
        """How far the next batch reads."""
        known = _progress(start)
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return _offset(self._available(known, most))

    def _available(self, known: dict[str, Progress], most: int | None = None) -> dict[str, Progress]:
        """How far recordings can be read by now, at most so many files further than is known."""
        found = dict(known)
        left = most
        for recording in self._recordings():
            before = known.get(recording.key)
            files = recording.files
            whole = files[: complete(recording, self._clock(), self._options.settle_seconds)]
            if self._target is not None:
                target = self._target.get(recording.key)
                whole = tuple(place for place in whole if target is not None and _plain(place) <= target.last)
            new = [place for place in whole if before is None or _plain(place) > before.last]
            new = new if left is None else new[:left]
            left = None if left is None else left - len(new)
            if not new and before is None:
                continue
            last = _plain(new[-1]) if new else (before.last if before else "")
            first = before.first if before else _plain(files[0])
            ended = self._ended(recording.key, files[-1], last)
            found[recording.key] = Progress(first, last, last if ended else (before.over if before else ""))
        return found

    def _ended(self, key: str, last: Place, read: str) -> bool:
        """Whether a recording is over with the last file that is read."""
        if _plain(last) != read:
            return False
        if self._target is not None:
            target = self._target.get(key)
            return target is not None and target.over == read
        return over(last, self._clock(), self._options.settle_seconds)

    def _recordings(self) -> list[Recording]:
        """Those that are there now; none where no capture is there yet. Raises Unreadable."""
        try:
            return recordings_of(find(self._options.paths), runs=self._runs)
        except NothingThere:
            return []

    # ---- batches -------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What is new in each recording, in groups of its conversations."""
        before, after = _progress(start), _progress(end)
        there = {recording.key: recording for recording in self._recordings()}
        parts: list[Part] = []
        for key, goal in after.items():
            known = before.get(key)
            if known != goal and key in there:
                parts += self._parts(there[key], known, goal)
        return [CapturePartition(part) for part in parts]

    def _parts(self, recording: Recording, known: Progress | None, goal: Progress) -> list[Part]:
        behind = known.over if known is not None else ""
        files = tuple(place for place in recording.files if behind < _plain(place) <= goal.last)
        ends = bool(goal.over) and goal.over != behind
        if not files:
            return []
        since = 0 if known is None else sum(_plain(place) <= known.last for place in files)
        whole = Part(
            recording._replace(files=files),
            self._options.table,
            goal.first,
            since=since,
            ends=ends,
            keeps=True,
            begins=behind,
        )
        return parts_of(whole, self._options, recording._replace(files=files[since:]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one."""
        assert isinstance(partition, CapturePartition), "as planned"
        return decode(partition.part, self._schema)


def _plain(place: Place) -> str:
    return plain_name(str(place))


def _offset(progress: dict[str, Progress]) -> dict[str, Any]:
    return {"version": VERSION, "recordings": {key: list(one) for key, one in sorted(progress.items())}}


def _progress(offset: dict[str, Any]) -> dict[str, Progress]:
    if offset.get("version") != VERSION:
        raise ValueError(f"the checkpoint's offset has version {offset.get('version')}; this reads version {VERSION}")
    return {key: Progress(*one) for key, one in offset["recordings"].items()}
