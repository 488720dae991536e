"""Job `backfill`: write a table of records to streams, in order of their sequence numbers, each exactly once.

Rows are written in batches: a range of sequence numbers of each stream, of limited size. `ProgressLog` records each
batch before it begins, and again when it is done. After a kill the next run begins with the interrupted batch, and the
sink knows which of its rows are stored. A later run continues after the last batch, with rows added to the table since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as fn

from penstock_spark.jobs.directories import HadoopDirectory
from penstock_spark.jobs.views import records_of
from penstock_spark.running.failures import JobFailed
from penstock_spark.sink import by_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MOST_RECORDS", "BackfillBatch", "ProgressLog", "backfill"]

MOST_RECORDS: Final = 1_000_000
"""Maximum number of records per stream in one batch, which is read again after a kill."""


class BackfillBatch(msgspec.Struct, frozen=True):
    """A batch. `ranges`: for each stream the first sequence number, and the one after the last. `partitions` is
    recorded because a repeated batch must be divided alike."""

    number: int
    ranges: dict[str, tuple[int, int]]
    partitions: int


class ProgressLog:
    """A record of progress: the file `NNNNNNNN.json` for each batch begun, `NNNNNNNN.done` for each batch written, with
    its number of rows per stream."""

    def __init__(self, place: HadoopDirectory) -> None:
        self._place = place
        self.batches = [self._batch(name) for name in place.names() if name.endswith(".json")]
        self.done = {int(name[:8]): self._rows(name) for name in place.names() if name.endswith(".done")}

    @property
    def under_way(self) -> BackfillBatch | None:
        """The last batch begun, if it was not finished; otherwise None."""
        return self.batches[-1] if self.batches and self.batches[-1].number not in self.done else None

    @property
    def reached(self) -> dict[str, int]:
        """For each stream the sequence number after the last one written."""
        ends: dict[str, int] = {}
        for batch in self.batches:
            if batch.number in self.done:
                ends |= {stream: end for stream, (_, end) in batch.ranges.items()}
        return ends

    def written(self, stream: str) -> int:
        """Return the number of rows of a stream that were written."""
        return sum(rows.get(stream, 0) for rows in self.done.values())

    def begin(self, batch: BackfillBatch) -> None:
        """Record the beginning of a batch. Raises FileExistsError if another process has recorded the same one."""
        self._place.write(f"{batch.number:08}.json", msgspec.json.encode(batch).decode())
        self.batches.append(batch)

    def finish(self, batch: BackfillBatch, rows: dict[str, int]) -> None:
        """Record that a batch is written."""
        self._place.write(f"{batch.number:08}.done", msgspec.json.encode(rows).decode())
        self.done[batch.number] = rows

    def _batch(self, name: str) -> BackfillBatch:
        return msgspec.json.decode(self._place.read(name), type=BackfillBatch)

    def _rows(self, name: str) -> dict[str, int]:
        return msgspec.json.decode(self._place.read(name), type=dict[str, int])


def backfill(
    records: DataFrame,
    log: ProgressLog,
    options: Mapping[str, str],
    *,
    names: Mapping[str, str] | None = None,
    most: int = MOST_RECORDS,
) -> Iterator[tuple[BackfillBatch, dict[str, int]]]:
    """Write the rows of a table of records to streams, batch by batch; yield each finished batch with its rows per
    stream.

    `options`: of the sink, with `endpoint` and `sink`; `log`: of this sink alone. `names`: new names of streams that
    are to be renamed. Sequence numbers without a record are not preserved: the written streams are dense.

    Raises JobFailed if rows have no sequence number or share one, if rows were added before ones already written, or if
    two streams would get one name.
    """
    rows = records_of(records)
    names = names or {}
    if log.under_way is not None:
        yield _write(rows, log, log.under_way, options, names)
    extents = _extents(rows, log)
    targets = [names.get(stream, stream) for stream in extents]
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        raise JobFailed(f"several streams have the target {twice[0]}, which would lose their order")
    cores = records.sparkSession.sparkContext.defaultParallelism
    while True:
        reached = log.reached
        ranges = {
            stream: (start, min(start + most, end))
            for stream, (first, end) in extents.items()
            if (start := reached.get(stream, first)) < end
        }
        if not ranges:
            return
        number = log.batches[-1].number + 1 if log.batches else 0
        batch = BackfillBatch(number, ranges, max(1, min(len(ranges), cores)))
        log.begin(batch)
        yield _write(rows, log, batch, options, names)


def _write(
    rows: DataFrame, log: ProgressLog, batch: BackfillBatch, options: Mapping[str, str], names: Mapping[str, str]
) -> tuple[BackfillBatch, dict[str, int]]:
    session = rows.sparkSession
    ranges = [(stream, start, end, names.get(stream, stream)) for stream, (start, end) in batch.ranges.items()]
    wanted = session.createDataFrame(ranges, "stream string, start bigint, end bigint, target string")
    # The overall bounds are repeated as numbers, which a table of Parquet or Delta takes as a pushed filter.
    lowest, behind = min(start for _, start, _, _ in ranges), max(end for _, _, end, _ in ranges)
    near = rows.where((fn.col("seq_num") >= lowest) & (fn.col("seq_num") < behind))
    chosen = near.join(fn.broadcast(wanted), "stream")
    chosen = chosen.where((fn.col("seq_num") >= fn.col("start")) & (fn.col("seq_num") < fn.col("end")))
    sent = chosen.select(fn.col("target").alias("stream"), "seq_num", "timestamp", "headers", "body")
    sent = by_key(sent, "stream", order="seq_num", partitions=batch.partitions)
    ledger = {"ledger": min(row_range[3] for row_range in ranges).partition("/")[0]} if "ledger" not in options else {}
    writer = sent.write.format("penstock").mode("append").options(**options, **ledger)
    writer.options(batch=str(batch.number), ignore="seq_num").save()
    counts = {row["stream"]: row["count"] for row in chosen.groupBy("stream").count().collect()}
    log.finish(batch, counts)
    return batch, counts


def _extents(rows: DataFrame, log: ProgressLog) -> dict[str, tuple[int, int]]:
    """Return each stream's first sequence number, and the one after its last. Raises JobFailed if the rows cannot be
    written."""
    reached = log.reached
    known = rows.sparkSession.createDataFrame([*reached.items()], "stream string, reached bigint")
    number = fn.col("seq_num")
    before = number < fn.coalesce(fn.col("reached"), fn.lit(-1))
    counted = rows.join(fn.broadcast(known), "stream", "left").groupBy("stream")
    ends = counted.agg(
        fn.min(number).alias("first"),
        fn.max(number).alias("last"),
        fn.count_if(number.isNull()).alias("without"),
        fn.count_if(before).alias("before"),
        (fn.count(number) - fn.count_distinct(number)).alias("twice"),
    )
    extents = {}
    for row in ends.collect():
        stream = row["stream"]
        late = row["before"] - log.written(stream)
        faults = {
            "records have no sequence number, so their order is unknown": row["without"],
            "records have the sequence number of another one; see `quality` and `audit`": row["twice"],
            "records were added to the table before the position already written": late,
        }
        for fault, count in faults.items():
            if count:
                raise JobFailed(f"stream {stream}: {count:,} {fault}")
        extents[stream] = (row["first"], row["last"] + 1)
    return dict(sorted(extents.items()))
