"""The source `penstock-capture`: a recorder's files (pcapng, plain or zstd; files, directories, globs) as tables.

`option("table", ...)`: `connections`, `messages` or `records` (schemas in `penstock_spark.schemas`). One partition is
one recording (the files of one run of a gateway in their order), or, with `groups = N` and for large ones, one of N
groups of its conversations: each reads all the bytes, which is cheap, and decodes its own, which is not. Of a damaged
file the intact part is read, and the column `damage` describes the damage. Streaming: the offset is the set of complete
files, so each is reported once.

| part | module |
|---|---|
| options | `options` |
| files by path, directory and glob, on any file system of Arrow's | `files` |
| grouping of files into recordings; complete files | `recordings`, `completeness` |
| events of a recording; a first pass for notes and damage | `reading`, `decoding` (`Survey`), `notes` |
| conversations in groups, decoded | `grouping`, `decoding` |
| rows of the tables as Arrow batches | `decoding` (`ConnectionRows`), `messages`, `records`, `facts`, `values` |
| batch and streaming readers | `batch`, `streaming` |
"""
