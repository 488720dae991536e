"""The embedded store: durable streams in one SQLite file (docs/adr/0002-embedded-store.md).

Decisions are made in memory, synchronously, on trio's thread. The committer makes a group of them durable in one
transaction on another thread; clients see records only after it. The head of a stream, its end and state, is kept
twice: the decided head counts records that wait for a commit, the durable head does not. One module per duty:

* `settings`, `lock`, `schema`, `u64`: the file and its contents;
* `heads`, `registry`: streams and basins in memory, the decided and the durable state of each;
* `sequencer`: numbers, timestamps and conditions of an append, as a pure function;
* `appends`, `append_sessions`, `admission`: the order and the bounds in which appends are sequenced;
* `append_changes`, `changes`, `merges`, `attributes`, `trims`: what a decision changes in memory and in the file;
* `committer`, `commit_thread`, `checkpointer`, `wal`: group commit; moving the write-ahead log into the file;
* `batches`, `tail_cache`, `reader`, `batch_windows`, `positions`, `seeking`, `reads`, `byte_reads`: reading records and
  bytes;
* `catalog`, `listings`: basins, streams and their configuration;
* `tables`, `table_rows`: tables of keys and values;
* `sweeper`, `sweeps`: retention, trimmed and deleted records, empty streams;
* `scrub`: each payload on the disk compared with its checksum;
* `store`: all of these together.
"""
