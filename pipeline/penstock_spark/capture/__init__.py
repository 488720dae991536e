"""The source `penstock-capture`: what a recorder wrote (pcapng, plain or zstd; files, directories, globs) as tables.

`option("table", ...)`: `connections`, `messages` or `records` (schemas in `penstock_spark.schemas`). One partition is
one recording (the files of one run of a gateway in their order), or, with `groups = N` and for large ones, one of N
groups of its conversations: each reads all the bytes, which is cheap, and decodes its own, which is not. A damaged file
gives all that is whole, and says what is wrong in the column `damage`. Streaming: the files that are complete are the
offset, so each is told once.

| part | module |
|---|---|
| options | `options` |
| files by path, directory and glob, on any file system of Arrow's | `files` |
| which files are one recording; which of them are complete | `recordings`, `completeness` |
| events of a recording; a first look for what was noted and is damaged | `reading`, `survey`, `notes` |
| conversations in groups, decoded | `grouping`, `decoding` |
| rows of the tables as Arrow batches | `connections`, `messages`, `records`, `facts`, `values` |
| batch and streaming readers | `batch`, `streaming` |
"""
