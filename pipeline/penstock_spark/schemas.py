"""The columns of tables, defined once for Spark and Arrow (docs/pipeline.md).

A schema is a list of `Column`s, from which the documentation, Spark's schema and Arrow's are made. This module imports
without pyspark; `spark_schema` and `arrow_schema` need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "ALL_TABLES",
    "CAPTURE_TABLES",
    "CONNECTIONS",
    "HEADERS",
    "MESSAGES",
    "NOTES",
    "RECORDS",
    "SEEN_RECORDS",
    "SOURCE_RECORDS",
    "Column",
    "arrow_schema",
    "capture_schema",
    "spark_schema",
]

HEADERS: Final = "array<struct<name: binary, value: binary>>"
"""The type of records' headers: pairs of bytes, in their order."""
NOTES: Final = "map<string, array<string>>"
"""The type of the gateway's notes on a connection: values by key."""
ALL_TABLES: Final = "all"
"""Decode a recording once for all of `CAPTURE_TABLES`: a struct column for each, of which each row has exactly one."""


class Column(NamedTuple):
    """One column. `type`: in Spark's DDL. `meaning`: for people, with the unit."""

    name: str
    type: str
    meaning: str


RECORDS: Final = (
    Column("stream", "string", "the stream's name: `basin/stream`"),
    Column("seq_num", "bigint", "the record's sequence number, without gaps"),
    Column("timestamp", "timestamp", "the record's timestamp, in ms"),
    Column("headers", HEADERS, "name and value of each header, in order; usually empty"),
    Column("body", "binary", "the record's body"),
)
"""Records of streams. The sink takes these columns, of which `stream` (unless an option names it) and `body` are
required."""
SOURCE_RECORDS: Final = (
    *RECORDS,
    Column(
        "event_time",
        "timestamp",
        "the time of the record's event, in ms: its header `penstock-event-time` if it has one, else its timestamp; it "
        "may fall, as with Kafka's producers. Watermarks need it: timestamps of a stream never fall. The sink does not "
        "write it, but writes the header",
    ),
)
"""The source `penstock`."""

_CONVERSATION: Final = (
    Column("file", "string", "first file of the recording"),
    Column("run", "string", "identifier of the gateway's process; null in captures of other programs"),
    Column("conversation", "bigint", "number of the connection; unique together with `file` and `run`"),
    Column(
        "side",
        "string",
        "`front` (from a client), `back` (to a server behind the gateway) or `foreign` (captured by another program)",
    ),
    Column(
        "name", "string", "name of the listener or back, such as `listeners.s2`; null in captures of other programs"
    ),
    Column(
        "protocol",
        "string",
        "configured protocol: the kind of its listener or back, such as `s2`, or `management`; in captures of other "
        "programs the layer, and null for connections",
    ),
    Column("client", "string", "address and port of the client"),
    Column("client_host", "string", "address of the client, without the port"),
    Column("identity", "string", "identity that the gateway assigned to the client; null if it noted none, or several"),
    Column(
        "route",
        "string",
        "route of a front connection; null if the gateway noted none, or several of which the right one is unknown",
    ),
)
_DAMAGE: Final = Column("damage", "string", "the recording's damage, and its location; null if intact")

CONNECTIONS: Final = (
    *_CONVERSATION,
    Column("server", "string", "address and port of the server"),
    Column("tls", "boolean", "whether the connection was encrypted; the recording is not"),
    Column("notes", NOTES, "the gateway's notes: values by `route`, `stream` and `identity`"),
    Column("start", "timestamp", "time of its first event in the recording"),
    Column("end", "timestamp", "time of its last event in the recording"),
    Column(
        "ended",
        "string",
        "how it ended: `client closed`, `server reset` and so on, or `lost: REASON`; `open` if it had not ended",
    ),
    Column("reset", "boolean", "whether either side reset it"),
    Column("whole", "boolean", "whether the recording has it completely, from its beginning and without missing bytes"),
    Column("client_bytes", "bigint", "recorded bytes sent by the client"),
    Column("server_bytes", "bigint", "recorded bytes sent by the server"),
    Column("client_chunks", "bigint", "chunks in which the client's bytes were read or written"),
    Column("server_chunks", "bigint", "chunks in which the server's bytes were read or written"),
    Column("lost_bytes", "bigint", "bytes known to be missing"),
    Column("messages", "bigint", "number of messages of both sides"),
    Column("problems", "bigint", "number of problems: violated rules, and bytes that are missing or cannot be decoded"),
    Column("failures", "bigint", "number of failed requests; a violated rule counts as a problem instead"),
    Column("appended", "bigint", "number of records appended and acknowledged"),
    Column("delivered", "bigint", "number of records delivered by the server"),
    _DAMAGE,
)
"""`penstock-capture`, table `connections`: one row for each, when it has ended."""

MESSAGES: Final = (
    *_CONVERSATION,
    Column("sender", "string", "sender of the message: `client` or `server`"),
    Column(
        "layer",
        "string",
        "`http`, or that of a protocol, such as `s2s`; `tcp` for bytes that cannot be decoded; null for a problem",
    ),
    Column(
        "kind", "string", "the message's name in its protocol, such as `APPEND`, `AppendInput` or `200`; or `problem`"
    ),
    Column(
        "exchange",
        "bigint",
        "number shared by a request and its answers within the connection; null if the protocol has none",
    ),
    Column("stream", "string", "the stream that it concerns, spelled as in `records`; null if none, or unknown"),
    Column("start", "timestamp", "time of its first byte, in us; of a problem, the time of detection"),
    Column("end", "timestamp", "time of its last byte, in us"),
    Column(
        "offset",
        "bigint",
        "position of its first byte among the bytes of its sender; of a problem, that of the first wrong byte",
    ),
    Column("length", "bigint", "bytes on the wire, including frames; null for a problem"),
    Column(
        "answers_us",
        "double",
        "for the first answer to a request: us from the request's last byte to the answer's last byte; else null",
    ),
    Column("records", "int", "number of records that it delivers, acknowledges or refuses"),
    Column("metered", "bigint", "metered bytes (S2) of its records, before compression; else null"),
    Column("compression", "string", "compression of an S2S frame: `gzip` or `zstd`; null if none"),
    Column("state", "string", "state of the conversation or exchange after it, in the protocol's terms"),
    Column("failure", "string", "text of an error, `code: message`; null for other messages"),
    Column(
        "failed",
        "boolean",
        "whether it is the first message to report its failure (over HTTP, both head and body report it); "
        "count these to count failures",
    ),
    Column("fields", "string", "its fields as JSON; of bodies only the sizes"),
    Column("rule", "string", "of a problem: the violated rule; else null"),
    Column("clause", "string", "of a problem: document and section of the rule"),
    Column("fatal", "boolean", "of a problem: whether the rest of this side, or exchange, cannot be decoded"),
    Column("context", "binary", "of a problem: up to 256 bytes around it"),
    Column("context_offset", "bigint", "of a problem: position of `context` among the bytes of its sender"),
    _DAMAGE,
)
"""`penstock-capture`, table `messages`: messages, and violations of protocols (kind `problem`)."""

SEEN_RECORDS: Final = (
    *_CONVERSATION,
    Column("layer", "string", "protocol layer that carried it, such as `s2s`, `http` or `s3p`"),
    Column("exchange", "bigint", "number shared by request and answer within the connection"),
    Column("action", "string", "`appended` (by a client) or `delivered` (by a server)"),
    Column(
        "stream",
        "string",
        "the stream's name: `basin/stream`; for S3P, Kafka and Durable Streams the client's name for it; for segments "
        "the segment's full name",
    ),
    Column(
        "seq_num",
        "bigint",
        "the record's sequence number; null if the protocol has none, or without an acknowledgement",
    ),
    Column("record_id", "string", "the record's identifier `ms-seq`; null if the protocol has none"),
    Column("offset", "bigint", "the record's byte offset in a segment"),
    Column("timestamp", "timestamp", "the record's timestamp"),
    Column("headers", HEADERS, "name and value of each header, in order"),
    Column("body", "binary", "the record's body; with option `envelopes`, unpacked from its envelope if it has one"),
    Column("acknowledged", "boolean", "whether an acknowledgement was recorded"),
    Column("failure", "string", "the server's error instead of an acknowledgement; null if none"),
    Column("sent", "timestamp", "time at which its message was complete, in us"),
    Column(
        "settled",
        "timestamp",
        "of an appended record: time at which its acknowledgement or refusal was complete, in us; else null",
    ),
    _DAMAGE,
)
"""`penstock-capture`, table `records`. An appended one is included when it is settled, or its connection has ended."""

CAPTURE_TABLES: Final = {"connections": CONNECTIONS, "messages": MESSAGES, "records": SEEN_RECORDS}
"""The tables of `penstock-capture`, by name."""


def spark_schema(columns: tuple[Column, ...]) -> StructType:
    """Return the columns as Spark's schema; all are nullable. Needs no session, as `StructType.fromDDL` does."""
    from pyspark.sql import types

    pair = types.StructType().add("name", types.BinaryType()).add("value", types.BinaryType())
    by_name: dict[str, types.DataType] = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "double": types.DoubleType(),
        "date": types.DateType(),
        "timestamp": types.TimestampType(),
        HEADERS: types.ArrayType(pair),
        NOTES: types.MapType(types.StringType(), types.ArrayType(types.StringType())),
    }
    return types.StructType([types.StructField(column.name, by_name[column.type]) for column in columns])


def capture_schema(table: str) -> StructType:
    """Return the schema of a table of `penstock-capture`, or that of `ALL_TABLES`."""
    from pyspark.sql.types import StructField, StructType

    if table == ALL_TABLES:
        return StructType([StructField(name, spark_schema(columns)) for name, columns in CAPTURE_TABLES.items()])
    return spark_schema(CAPTURE_TABLES[table])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema for a schema of Spark, which may be a selection of columns in any order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
