"""The sink `penstock`: rows appended to streams, each exactly once, in the order of its task's rows.

| part | module |
|---|---|
| options, checked with all faults named at once | `options` |
| columns of a frame, checked; Arrow batches as rows of streams | `columns` |
| who writes: sink, batch, partition | `identity` |
| rows of a stream put together as appends; their digest | `cutting`, `digest` |
| what was stored is found again | `marker` |
| where a batch began; which batch was committed | `ledger`, `entries` |
| appends to one stream, until they are stored | `appending`, with `conditional` (S2) and `numbered` (segments) |
| a task: its streams; the job: commit and abort | `task`, `commit`, `writer` |
| rows of one key in order | `order` |

**How.** Every append is conditional: it says the sequence number that it must get. A task appends at a number only
when it has seen every record of the stream before it, back to where the stream ended when this batch first touched it,
and knows which of them are its own. So whatever happened to earlier attempts (failed after sending, still running as
zombies, a whole batch replayed after the driver died), an append that was stored is found, and one that was not can be
stored only once: whoever comes second gets another number than it asked for, looks at what is new, drops the rows that
are stored, and goes on behind. Of two that compete one has always got on, so that none can hold up all.

* The *marker* by which a task knows its own is a header, `penstock-sink`, the last one of the first record of each
  append (appends are atomic, so one suffices): sink, batch, partition, the row numbers in it, and a digest of all rows
  so far. Rows are numbered per task and stream. It does not matter where an attempt cuts its rows into appends: what is
  stored is known by row numbers. Rows that differ from those that were stored for the same batch are an error, not a
  silent mixture. A frame's own headers of that name, which rows have that were read from a stream that a sink wrote,
  are dropped.
* The *ledger* is a stream of the sink (`BASIN/penstock-sink.SINK`). There stands, before a task's first append to a
  stream, where that stream ended: the first such entry of a batch, partition and stream counts, all attempts begin to
  look there. When a batch is committed, there stands how many rows each partition had, with their digest, and all
  before is trimmed. A replay of the committed batch appends nothing, its rows are only compared; an attempt of an
  earlier batch that wakes up late is refused.
* A one-off job's ledger is made by the driver, and deleted when the job is over. Its tasks refuse to run without it, so
  that an attempt that wakes up after the job does no harm.
* Over the segment protocol neither marker nor ledger is needed. Its appends carry a writer's identity (here made from
  sink, partition and stream) and growing event numbers (here the batch in the upper, the row in the lower 32 bits);
  the store takes each number once, and tells the last one. Rows are not compared there, only counted.
* S3P can do neither and is refused. A gateway that stores streams itself takes the rows over S2S, and its S3P clients
  read them: with `headers = "drop"` under `[listeners.s3p.loss]` (docs/loss.md), as markers are headers. The same holds
  for segment clients that read what was written over S2S.

**Who.** `sink` names the sink: a streaming query's id by default; a batch job that may be repeated gives `sink` and
`batch` (a number that grows), and a second run of the same pair appends nothing. One sink is one query, or one job
after the other: a second query of the same name is refused.

**Needs.** Rows must be the same, in the same order, and in the same partitions, when a task or a batch is done again.
Sources that can be read again, and what is made of their rows one by one, are so; the order of rows behind a shuffle
is not, unless they are sorted. `by_key(frame, "key", order="time")` gives rows of one key to one task, in order, and
does sort them wholly.
"""

from penstock_spark.sink.marker import MARKER
from penstock_spark.sink.order import by_key

__all__ = ["MARKER", "by_key"]
