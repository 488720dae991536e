"""Streaming reader of captures: `spark.readStream.format("penstock-capture")`.

Only complete files are read (`completeness`). An offset has, for each recording, the last file that was read, and the
file with which the recording was considered ended, if it was. Conversations continue from file to file, so a batch also
reads the recording's earlier files, and decodes the conversations in them that continue in the new ones; it returns
only rows that the new files complete: so a rotation neither loses nor doubles rows. Requests without a response are
returned when their conversation or the recording ends.

Notes of the gateway are known as far as files were read: a request may lack a `route` that it has in a batch query.
Files that a recorder has deleted meanwhile, because of its retention, are treated as never recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from penstock_spark.capture.batch import CapturePartition, divided_part, rows_of
from penstock_spark.capture.completeness import complete, over
from penstock_spark.capture.files import FileInfo, NothingThere, find_captures, plain_name
from penstock_spark.capture.grouping import RecordingPart
from penstock_spark.capture.options import CaptureOptions
from penstock_spark.capture.recordings import RecordingFiles, Runs, recordings_of
from penstock_spark.options import WrongOptions

__all__ = ["CaptureStreamReader", "Progress"]

VERSION: Final = 1
"""Version of offsets in checkpoints."""


class Progress(NamedTuple):
    """The position in a recording. Files by their plain path. `first`: the value of column `file`. `over`: the file
    with which the recording was considered ended; later files are read as another recording."""

    first: str
    last: str
    over: str = ""


class CaptureStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads recordings file by file."""

    def __init__(self, options: CaptureOptions, schema: pa.Schema, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock`: ns since 1970."""
        if options.together:
            raise WrongOptions("penstock-capture", ["together: applies to batch queries only"])
        self._options = options
        self._schema = schema
        self._clock = clock
        self._runs = Runs()
        self._target: dict[str, Progress] | None = None

    # ---- offsets -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Return the offset before all files."""
        return _offset({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Return the limit that the options set."""
        most = self._options.max_files_per_batch
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Fix the end: files that come from now on are left to the next run of the query."""
        self._target = None
        self._target = self._available({})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Return the end of the next batch."""
        known = _progress(start)
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return _offset(self._available(known, most))

    def _available(self, known: dict[str, Progress], most: int | None = None) -> dict[str, Progress]:
        """Return the positions that can be read to by now, at most `most` files after `known`."""
        progress = dict(known)
        left = most
        for recording in self._recordings():
            before = known.get(recording.key)
            files = recording.files
            whole = files[: complete(recording, self._clock(), self._options.settle_seconds)]
            if self._target is not None:
                target = self._target.get(recording.key)
                whole = tuple(
                    file_info for file_info in whole if target is not None and _plain(file_info) <= target.last
                )
            new = [file_info for file_info in whole if before is None or _plain(file_info) > before.last]
            new = new if left is None else new[:left]
            left = None if left is None else left - len(new)
            if not new and before is None:
                continue
            last = _plain(new[-1]) if new else (before.last if before else "")
            first = before.first if before else _plain(files[0])
            ended = self._ended(recording.key, files[-1], last)
            progress[recording.key] = Progress(first, last, last if ended else (before.over if before else ""))
        return progress

    def _ended(self, key: str, last: FileInfo, read: str) -> bool:
        """Return whether a recording has ended with the file `read`."""
        if _plain(last) != read:
            return False
        if self._target is not None:
            target = self._target.get(key)
            return target is not None and target.over == read
        return over(last, self._clock(), self._options.settle_seconds)

    def _recordings(self) -> list[RecordingFiles]:
        """Return the recordings that exist; none if there is no capture yet. Raises Unreadable."""
        try:
            return recordings_of(find_captures(self._options.paths), runs=self._runs)
        except NothingThere:
            return []

    # ---- batches -------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the new part of each recording, in groups of its conversations."""
        before, after = _progress(start), _progress(end)
        there = {recording.key: recording for recording in self._recordings()}
        parts: list[RecordingPart] = []
        for key, goal in after.items():
            known = before.get(key)
            if known != goal and key in there:
                parts += self._parts(there[key], known, goal)
        return [CapturePartition(part) for part in parts]

    def _parts(self, recording: RecordingFiles, known: Progress | None, goal: Progress) -> list[RecordingPart]:
        behind = known.over if known is not None else ""
        files = tuple(file_info for file_info in recording.files if behind < _plain(file_info) <= goal.last)
        ends = bool(goal.over) and goal.over != behind
        if not files:
            return []
        since = 0 if known is None else sum(_plain(file_info) <= known.last for file_info in files)
        whole = RecordingPart(
            recording._replace(files=files),
            self._options.table,
            goal.first,
            since=since,
            ends=ends,
            keeps=True,
            begins=behind,
        )
        return divided_part(whole, self._options, recording._replace(files=files[since:]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return rows_of(partition, self._schema)


def _plain(file_info: FileInfo) -> str:
    return plain_name(str(file_info))


def _offset(progress: dict[str, Progress]) -> dict[str, Any]:
    return {"version": VERSION, "recordings": {key: list(progress_of) for key, progress_of in sorted(progress.items())}}


def _progress(offset: dict[str, Any]) -> dict[str, Progress]:
    if offset.get("version") != VERSION:
        raise ValueError(f"the checkpoint's offset has version {offset.get('version')}; this reads version {VERSION}")
    return {key: Progress(*progress_of) for key, progress_of in offset["recordings"].items()}
