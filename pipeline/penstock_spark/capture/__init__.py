"""The source `penstock-capture`: what a recorder wrote (pcapng, plain or zstd; files, directories, globs) as tables.

`option("table", ...)`: `connections`, `messages` or `records` (schemas in `penstock_spark.schemas`). One partition is
one recording (the files of one rotation in their order), or, with `groups = N`, one of N groups of its conversations:
each reads all the bytes, which is cheap, and decodes its own, which is not. A damaged file gives all that is whole,
and says what is wrong in the column `damage`. Streaming: the files that are complete are the offset, so each is read
once.
"""
