"""The embedded store: durable streams in one SQLite file (docs/adr/0002-embedded-store.md).

Decisions are made in memory, synchronously, on trio's thread; a committer makes groups of them durable with one
transaction in one thread hop, and only then are they visible to clients. One module per duty:

* `settings`, `lock`, `schema`, `u64`: the file and its contents;
* `heads`, `registry`: streams and basins in memory, the decided and the durable state of each;
* `sequencer`: numbers, timestamps and conditions of an append, as a pure function;
* `admission`, `appends`: the order and the bounds in which appends are sequenced;
* `committer`, `checkpointer`: group commit; moving the write-ahead log into the file;
* `batches`, `tail_cache`, `reader`, `positions`, `reads`: reading record batches;
* `catalog`: basins, streams and their configuration;
* `sweeper`, `sweeps`: retention, trimmed and deleted records, empty streams;
* `store`: all of these together.
"""
