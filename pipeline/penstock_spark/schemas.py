"""The tables: their columns, once for Spark and, made from that, for Arrow (docs/pipeline.md).

A schema is a list of `Column`s, so that the documentation, Spark's schema and Arrow's are one thing. This module
imports without pyspark; `spark_schema` and `arrow_schema` do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["HEADERS", "RECORDS", "SEEN_RECORDS", "Column", "arrow_schema", "spark_schema"]


class Column(NamedTuple):
    """One column. `type`: in Spark's DDL. `meaning`: for people, with the unit."""

    name: str
    type: str
    meaning: str


HEADERS: Final = "array<struct<name: binary, value: binary>>"
"""The type of records' headers: pairs of bytes, in their order."""

RECORDS: Final = (
    Column("stream", "string", "`basin/stream`; for S3P its name"),
    Column(
        "seq_num", "bigint", "sequence number in the stream, dense; for S3P and segments counted by the query from 0"
    ),
    Column("timestamp", "timestamp", "the record's, to the ms; null over the segment protocol, which tells none"),
    Column("headers", HEADERS, "pairs of bytes in their order; empty for most records"),
    Column("body", "binary", "the record"),
)
"""The source `penstock`. The sink takes the same columns, of which `stream` (unless an option names it) and `body` are
needed."""

SEEN_RECORDS: Final = (
    Column("file", "string", "the capture that it came from: the first file of its recording"),
    Column("run", "string", "tells the gateway's processes apart"),
    Column("conversation", "bigint", "the connection's number"),
    Column("side", "string", "`front`, `back` or `foreign`"),
    Column("name", "string", "the listener or back"),
    Column("protocol", "string", "what was spoken: `s2s`, `sse`, `http`, `s3p`, `segment`, ..."),
    Column("route", "string", "the gateway's route; null where nobody noted it"),
    Column("client", "string", "address of who opened the connection"),
    Column("exchange", "bigint", "what joins request and answer within the connection"),
    Column("action", "string", "`appended` (a client gave it) or `delivered` (a server gave it)"),
    Column("stream", "string", "as in the records of the source"),
    Column(
        "seq_num",
        "bigint",
        "as in the records of the source; null where the protocol has none, or no acknowledgement came",
    ),
    Column("record_id", "string", "S3P's `ms-seq`"),
    Column("offset", "bigint", "bytes, segments"),
    Column("timestamp", "timestamp", "the record's own"),
    Column("headers", HEADERS, "pairs of bytes in their order"),
    Column("body", "binary", "the record, out of an envelope if it travelled in one"),
    Column("acknowledged", "boolean", "false: no acknowledgement was recorded"),
    Column("failure", "string", "what the server said instead of acknowledging; null for none"),
    Column("sent", "timestamp", "when the message that brought it was complete, to the us"),
    Column("settled", "timestamp", "appended: when its acknowledgement or refusal was complete; else null"),
    Column("damage", "string", "what is wrong with the capture that it came from; null: nothing"),
)
"""`penstock-capture`, table `records`."""


def spark_schema(columns: tuple[Column, ...]) -> StructType:
    """The columns as Spark has them; all may be null."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(", ".join(f"`{column.name}` {column.type}" for column in columns))
    assert isinstance(schema, StructType)
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Arrow batches must look like for this schema of Spark, which may have fewer columns, in another order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
