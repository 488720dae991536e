"""The sink `penstock`: rows appended to streams, each exactly once, in the order of its task's rows.

Every append is conditional: it says the sequence number that it must get. A task appends at a number only when it has
seen every record of the stream before it, back to where the stream ended when this batch first touched it, and none
of them is one of its own. So whatever happened to earlier attempts (failed after sending, still running as zombies, a
whole batch replayed after the driver died), an append that was stored is found, and one that was not can be stored
only once.

* The *marker* by which a task knows its own is a header, `penstock-sink`, on the first record of each append (appends
are atomic, so one suffices): sink, batch, partition, the row numbers in it, and a digest of all rows so far. Rows that
  differ from those that were stored for the same batch are an error, not a silent mixture.
* *Where the stream ended when the batch first touched it* stands in the sink's *ledger*, a stream beside the others
  (`penstock-sink.<sink>`), trimmed when a later batch is committed; a one-off job's is deleted when the job is
  committed.
* Over the segment protocol, neither is needed: its appends carry a writer's id and event number, and the store drops
what comes twice. S3P can do neither and is refused; a gateway takes the same rows over S2S and carries them to S3P.

`sink` names the sink: a streaming query's id by default; a batch job that may be repeated gives `sink` and `batch`
(a number that grows), and a second run of the same pair appends nothing.
Order per key: rows of one key must be in one partition, in order: `penstock_spark.sink.by_key(frame, "key",
order="time")`.
"""
