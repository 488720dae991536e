"""The jobs of the pipeline: plain functions on DataFrames, each also a command `penstock pipeline NAME`.

| job | input | result |
|---|---|---|
| `ingest` | captures, or live streams | Parquet (Delta, Iceberg) by date, protocol, stream; exactly once |
| `quality` | records | per stream: gaps, duplicates, disorder, timestamps going back, heartbeats missed |
| `latency` | messages and records of captures | request to acknowledgement, append to delivery, per route |
| `usage` | connections, messages, records | bytes, records, errors, compression ratio per client, stream and protocol |
| `audit` | two tables of records | proof that two views of a stream are equal, or their differences |
| `backfill` | a table of records | the records in a stream, in order, each once |

The functions take and return DataFrames; only `cli` handles paths and commands. Tables are made with the DataFrame API
(windows, aggregates) and are never collected, so that a cluster handles what a laptop cannot.
"""
