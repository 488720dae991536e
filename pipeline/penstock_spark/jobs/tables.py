"""The tables that `ingest` writes: their contents and layout.

| table | from | columns |
|---|---|---|
| `streams` | live streams | `schemas.RECORDS` |
| `records`, `messages`, `connections` | captures | `schemas.CAPTURE_TABLES` |

Each has three or four more columns, which are its directories:

* `date` (UTC): of the record's timestamp (`streams`), or of its recording; null if there is no timestamp.
* `protocol`: the protocol of the connection.
* `stream_dir` (`streams`, `records`): the stream's name as a valid name of a directory, see `stream_dir`. The name
  itself is in column `stream`, inside the files: as a directory, `007` would be read as a number, names that differ in
  case only would be one on some file systems, and long ones would be invalid.
* `batch`: the micro-batch that wrote the rows. A repeated one replaces what it wrote before.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as fn

from penstock_spark import schemas
from penstock_spark.schemas import Column

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

__all__ = ["BATCH", "TABLES", "OutputTable", "laid_out", "stream_dir"]

BATCH: Final = "batch"
_LONGEST: Final = 120
"""Maximum number of characters of a stream's directory name; file systems allow 255 bytes, including `stream_dir=`."""

_DATE: Final = Column("date", "date", "day (UTC) of the record's timestamp, or of when it was recorded")
_PROTOCOL: Final = Column("protocol", "string", "what was spoken")
_STREAM_DIR: Final = Column("stream_dir", "string", "the stream's name as a directory can have it")
_BATCH: Final = Column(BATCH, "bigint", "the micro-batch that brought the row")
_BY_STREAM: Final = (_DATE, _PROTOCOL, _STREAM_DIR)
_BY_DAY: Final = (_DATE, _PROTOCOL)


class OutputTable(NamedTuple):
    """One table. `dated`: the column that its date is of. `directories`: its partitions, before `batch`. `order`: the
    order of rows in a file."""

    name: str
    columns: tuple[Column, ...]
    dated: str
    directories: tuple[Column, ...]
    order: tuple[str, ...]

    @property
    def partitions(self) -> tuple[Column, ...]:
        """All partition columns, the outermost first."""
        return (*self.directories, _BATCH)

    @property
    def stored(self) -> tuple[Column, ...]:
        """All columns in the order in which the table is read: partition columns last."""
        directories = {column.name for column in self.partitions}
        return (*(column for column in self.columns if column.name not in directories), *self.partitions)


TABLES: Final = {
    table.name: table
    for table in (
        OutputTable("streams", schemas.RECORDS, "timestamp", _BY_STREAM, ("stream", "seq_num")),
        OutputTable(
            "records", schemas.SEEN_RECORDS, "sent", _BY_STREAM, ("stream", "file", "run", "conversation", "sent")
        ),
        OutputTable("messages", schemas.MESSAGES, "start", _BY_DAY, ("file", "run", "conversation", "start")),
        OutputTable("connections", schemas.CONNECTIONS, "start", _BY_DAY, ("file", "run", "conversation")),
    )
}
"""The tables by name."""


def laid_out(frame: DataFrame, table: OutputTable, *, protocol: str = "") -> DataFrame:
    """Return rows with all columns of the table except `batch`. `protocol`: for rows without one."""
    made = {"date": fn.to_date(table.dated)}
    if _STREAM_DIR in table.directories:
        made["stream_dir"] = stream_dir(fn.col("stream"))
    if protocol:
        made["protocol"] = fn.lit(protocol)
    return frame.withColumns(made).select(*(column.name for column in table.stored if column.name != BATCH))


def stream_dir(stream: Expression) -> Expression:
    """Return a stream's name as a unique name that is valid on any file system.

    Lower-case letters of ASCII, digits, `-`, `_`, `.` and `*` stay, a space becomes `+`, every other byte of its UTF-8
    `~XX`. A name with capitals, or one that would be too long, ends in `~~` and 16 hexadecimal digits of its SHA-256.
    """
    plain = fn.translate(fn.url_encode(stream), "%" + ascii_uppercase, "~" + ascii_lowercase)
    digest = fn.substring(fn.sha2(stream, 256), 1, 16)
    shortened = fn.concat(fn.substring(plain, 1, _LONGEST - 18), fn.lit("~~"), digest)
    # `lower` for names that need it only: at its first use, Spark computes the cases of all characters (1.5 s).
    small = fn.when(stream.rlike(r"[^\x00-\x7f]"), fn.lower(stream) == stream).otherwise(~stream.rlike("[A-Z]"))
    return fn.when(small & (fn.length(plain) <= _LONGEST), plain).otherwise(shortened)
