"""The sink `penstock`: append rows to streams, each exactly once, in the order of their task's rows.

| part | module |
|---|---|
| options, checked with all faults named at once | `options` |
| columns of a frame, checked; Arrow batches as rows of streams | `columns`, `unwritable` |
| the identity of a writer: sink, batch, partition | `identity` |
| rows of a stream gathered to appends; their digest | `cutting`, `digest` |
| search for rows that are stored | `marker` |
| the beginning of a batch; the last batch committed | `ledger`, `entries` |
| appends to one stream, until they are stored | `appending` |
| a task: its streams; the job: commit and abort | `task`, `writer` |
| rows of one key in order | `order` |

**How.** Every append is conditional: it states the sequence number that it must get. A task appends at a number only
when it has seen every record of the stream before it, back to the stream's end when this batch first touched it, and
knows which of them are its own. So whatever happened to earlier attempts (failed after sending, still running as
zombies, a whole batch replayed after the driver died), an append that was stored is found, and one that was not can be
stored only once: of two attempts, the later one gets another number than it asked for, reads the new records, drops the
rows that are stored, and continues after them. Of two competing attempts one always makes progress, so that none can
block all.

* The *marker* by which a task recognizes its records is a header, `penstock-sink`, the last one of the first record of
  each append (appends are atomic, so one suffices): sink, batch, partition, the row numbers in it, and a digest of all
  rows so far. Rows are numbered per task and stream. It does not matter where an attempt cuts its rows into appends:
  stored rows are known by their numbers. Rows that differ from those stored for the same batch are an error, not a
  silent mixture. A frame's own headers of that name, which rows read from a sink's stream have, are dropped.
* The *ledger* is a stream of the sink (`BASIN/penstock-sink.SINK`). Before a task's first append to a stream, the end
  of that stream is entered: the first such entry of a batch, partition and stream is valid, and all attempts begin
  their search there. When a batch is committed, the number of rows of each partition is entered, with their digest,
  and everything before is trimmed. A replay of the committed batch appends nothing, its rows are only compared; a late
  attempt of an earlier batch is refused.
* A one-off job's ledger is created by the driver, and deleted when the job is over. Its tasks refuse to run without it,
  so that an attempt that resumes after the job does no harm.
* A gateway that stores streams itself takes the rows, and its clients of all protocols read them: those of S3P and of
  segments with `headers = "drop"` in the listener's table `loss` (docs/loss.md), as markers are headers. A gateway
  before a server without conditional appends refuses the rows.

**Names.** `sink` names the sink: a streaming query's id by default; a batch job that may be repeated sets `sink` and
`batch` (an increasing number), and a second run of the same pair appends nothing. One sink is one query, or one job
after another: a second query of the same name is refused.

**Requirements.** Rows must be the same, in the same order, and in the same partitions, when a task or a batch is
repeated. Sources that can be read again, and row-by-row transformations of them, satisfy this; the order of rows after
a shuffle does not, unless they are sorted. `by_key(frame, "key", order="time")` puts the rows of one key into one task,
in order, and sorts them completely.
"""

from penstock_spark.sink.marker import MARKER
from penstock_spark.sink.order import by_key

__all__ = ["MARKER", "by_key"]
