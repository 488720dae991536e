"""Job `backfill`: a table of records into streams, in the order of their sequence numbers, each once.

The rows go in batches: of each stream those of a range of sequence numbers, so many at most. What a batch is, is
written down before it begins (`Log`), and that it is done, when it is. A run that was killed is begun again with the
batch that was under way, and the sink knows which of its rows are stored. A later run goes on behind the last one, with
what has come to the table since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as fn

from penstock_spark.jobs.places import Place
from penstock_spark.jobs.views import records_of
from penstock_spark.running.failures import JobFailed
from penstock_spark.sink import by_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MOST_RECORDS", "Batch", "Log", "backfill"]

MOST_RECORDS: Final = 1_000_000
"""Of each stream in one batch: what is read again where a run was killed."""


class Batch(msgspec.Struct, frozen=True):
    """`ranges`: of each stream the first sequence number, and the one behind the last. `partitions` is written down
    because a batch that is done again must be divided alike."""

    number: int
    ranges: dict[str, tuple[int, int]]
    partitions: int


class Log:
    """What was done: the file `NNNNNNNN.json` for each batch that was begun, `NNNNNNNN.done` for each that was written,
    with how many rows it had of each stream."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.batches = [self._batch(name) for name in place.names() if name.endswith(".json")]
        self.done = {int(name[:8]): self._rows(name) for name in place.names() if name.endswith(".done")}

    @property
    def under_way(self) -> Batch | None:
        """The batch that was begun last, where it was not written."""
        return self.batches[-1] if self.batches and self.batches[-1].number not in self.done else None

    @property
    def reached(self) -> dict[str, int]:
        """Of each stream the sequence number behind the last one that was written."""
        ends: dict[str, int] = {}
        for batch in self.batches:
            if batch.number in self.done:
                ends |= {stream: end for stream, (_, end) in batch.ranges.items()}
        return ends

    def written(self, stream: str) -> int:
        """How many rows of the stream were written."""
        return sum(rows.get(stream, 0) for rows in self.done.values())

    def begin(self, batch: Batch) -> None:
        """Raises FileExistsError where somebody else does the same."""
        self._place.write(f"{batch.number:08}.json", msgspec.json.encode(batch).decode())
        self.batches.append(batch)

    def finish(self, batch: Batch, rows: dict[str, int]) -> None:
        """It is written."""
        self._place.write(f"{batch.number:08}.done", msgspec.json.encode(rows).decode())
        self.done[batch.number] = rows

    def _batch(self, name: str) -> Batch:
        return msgspec.json.decode(self._place.read(name), type=Batch)

    def _rows(self, name: str) -> dict[str, int]:
        return msgspec.json.decode(self._place.read(name), type=dict[str, int])


def backfill(
    records: DataFrame,
    log: Log,
    options: Mapping[str, str],
    *,
    names: Mapping[str, str] | None = None,
    most: int = MOST_RECORDS,
) -> Iterator[tuple[Batch, dict[str, int]]]:
    """Write the rows of a table of records to streams, batch by batch; gives each batch that is done, and its rows.

    `options`: of the sink, with `endpoint` and `sink`; `log`: of this sink alone. `names`: where streams go that are
    not to keep their names. Sequence numbers without a record are not kept: the streams are dense.
    Raises JobFailed where rows have no sequence number or one twice, where rows have come behind what was written, or
    two streams would become one.
    """
    rows = records_of(records)
    names = names or {}
    if log.under_way is not None:
        yield _write(rows, log, log.under_way, options, names)
    extents = _extents(rows, log)
    targets = [names.get(stream, stream) for stream in extents]
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        raise JobFailed(f"several streams would go to {twice[0]}, where their order would be lost")
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
        batch = Batch(number, ranges, max(1, min(len(ranges), cores)))
        log.begin(batch)
        yield _write(rows, log, batch, options, names)


def _write(
    rows: DataFrame, log: Log, batch: Batch, options: Mapping[str, str], names: Mapping[str, str]
) -> tuple[Batch, dict[str, int]]:
    session = rows.sparkSession
    ranges = [(stream, start, end, names.get(stream, stream)) for stream, (start, end) in batch.ranges.items()]
    wanted = session.createDataFrame(ranges, "stream string, start bigint, end bigint, target string")
    # The bounds of all ranges are said as numbers, too: these can be pushed to where the rows are.
    lowest, behind = min(start for _, start, _, _ in ranges), max(end for _, _, end, _ in ranges)
    near = rows.where((fn.col("seq_num") >= lowest) & (fn.col("seq_num") < behind))
    chosen = near.join(fn.broadcast(wanted), "stream")
    chosen = chosen.where((fn.col("seq_num") >= fn.col("start")) & (fn.col("seq_num") < fn.col("end")))
    sent = chosen.select(fn.col("target").alias("stream"), "seq_num", "timestamp", "headers", "body")
    sent = by_key(sent, "stream", order="seq_num", partitions=batch.partitions)
    ledger = {"ledger": min(one[3] for one in ranges).partition("/")[0]} if "ledger" not in options else {}
    writer = sent.write.format("penstock").mode("append").options(**options, **ledger)
    writer.options(batch=str(batch.number), ignore="seq_num").save()
    counts = {row["stream"]: row["count"] for row in chosen.groupBy("stream").count().collect()}
    log.finish(batch, counts)
    return batch, counts


def _extents(rows: DataFrame, log: Log) -> dict[str, tuple[int, int]]:
    """Of each stream its first sequence number, and the one behind its last. Looks whether all can be written."""
    reached = log.reached
    known = rows.sparkSession.createDataFrame([*reached.items()], "stream string, reached bigint")
    number = fn.col("seq_num")
    before = number < fn.coalesce(fn.col("reached"), fn.lit(-1))
    counted = rows.join(fn.broadcast(known), "stream", "left").groupBy("stream")
    found = counted.agg(
        fn.min(number).alias("first"),
        fn.max(number).alias("last"),
        fn.count_if(number.isNull()).alias("without"),
        fn.count_if(before).alias("before"),
        (fn.count(number) - fn.count_distinct(number)).alias("twice"),
    )
    extents = {}
    for row in found.collect():
        stream = row["stream"]
        late = row["before"] - log.written(stream)
        faults = {
            "records have no sequence number, so that nothing says their order": row["without"],
            "records have a sequence number that another has; `quality` and `audit` tell more": row["twice"],
            "records have come to the table behind those that were written": late,
        }
        for fault, count in faults.items():
            if count:
                raise JobFailed(f"stream {stream}: {count:,} {fault}")
        extents[stream] = (row["first"], row["last"] + 1)
    return dict(sorted(extents.items()))
