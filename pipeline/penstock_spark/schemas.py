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
    "Column",
    "arrow_schema",
    "capture_schema",
    "spark_schema",
]


class Column(NamedTuple):
    """One column. `type`: in Spark's DDL. `meaning`: for people, with the unit."""

    name: str
    type: str
    meaning: str


HEADERS: Final = "array<struct<name: binary, value: binary>>"
"""The type of records' headers: pairs of bytes, in their order."""
NOTES: Final = "map<string, array<string>>"
"""The type of the gateway's notes on a connection: values by key."""

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
required."""

_CONVERSATION: Final = (
    Column("file", "string", "the first file of the recording that it stands in"),
    Column("run", "string", "tells the gateway's processes apart; null in captures of other programs"),
    Column("conversation", "bigint", "the connection's number: with `file` and `run` it is one connection"),
    Column("side", "string", "`front` (a client's), `back` (with a server behind the gateway) or `foreign`"),
    Column("name", "string", "the listener or back, as `listeners.s2`; null in captures of other programs"),
    Column(
        "protocol",
        "string",
        "what is spoken by configuration: `s2`, `s3p`, `segment`, `controller`, `management`; where nobody noted it "
        "the layer, and null for connections",
    ),
    Column("client", "string", "address and port of who opened the connection"),
    Column("client_host", "string", "the address alone"),
    Column("identity", "string", "who the gateway took the client for; null where nobody noted it, or several"),
    Column(
        "route",
        "string",
        "the gateway's route, of front connections; null where nobody noted it, or several and it is not known which",
    ),
)
_DAMAGE: Final = Column("damage", "string", "what is wrong with the recording, and where; null: nothing")

CONNECTIONS: Final = (
    *_CONVERSATION,
    Column("server", "string", "address and port of who accepted it"),
    Column("tls", "boolean", "it was encrypted; the recording is not"),
    Column("notes", NOTES, "what the gateway noted: values by `route`, `stream`, `identity`"),
    Column("start", "timestamp", "its first event in the recording"),
    Column("end", "timestamp", "its last event in the recording"),
    Column("ended", "string", "`client closed`, `server reset`, `lost: why`; `open`: it still was"),
    Column("reset", "boolean", "somebody broke it off"),
    Column("whole", "boolean", "nothing of it is missing in the recording, neither its beginning nor bytes amid it"),
    Column("client_bytes", "bigint", "recorded of what the client sent"),
    Column("server_bytes", "bigint", "recorded of what the server sent"),
    Column("client_chunks", "bigint", "pieces in which the client's bytes were read or written"),
    Column("server_chunks", "bigint", "pieces in which the server's bytes were read or written"),
    Column("lost_bytes", "bigint", "known to be missing"),
    Column("messages", "bigint", "messages of both sides"),
    Column("problems", "bigint", "broken rules, bytes that are missing or not understood"),
    Column("failures", "bigint", "requests that failed, each once; a broken rule counts as a problem instead"),
    Column("appended", "bigint", "records that the client gave and the server acknowledged"),
    Column("delivered", "bigint", "records that the server gave"),
    _DAMAGE,
)
"""`penstock-capture`, table `connections`: one row for each, when it has ended."""

MESSAGES: Final = (
    *_CONVERSATION,
    Column("sender", "string", "`client` or `server`"),
    Column("layer", "string", "`http`, `s2s`, `sse`, `grpc`, `s3p`, `segment`; `tcp`: not understood; null: a problem"),
    Column("kind", "string", "its name in the protocol's terms, as `APPEND`, `AppendInput`, `200`; or `problem`"),
    Column("exchange", "bigint", "what joins a request and its answers within the connection; null where nothing does"),
    Column("stream", "string", "what it is about, spelled as in `records`; null: none, or nobody knows"),
    Column("start", "timestamp", "when its first byte went by, to the us; of a problem, when it showed"),
    Column("end", "timestamp", "when its last byte went by, to the us"),
    Column("offset", "bigint", "where it stands in what its sender sent; of a problem, the first wrong byte"),
    Column("length", "bigint", "bytes on the wire, with the frames around them; null: a problem"),
    Column(
        "answers_us", "double", "us from the request's last byte to this one's, for the first answer to it; else null"
    ),
    Column("records", "int", "how many records it makes known: delivers, acknowledges or refuses"),
    Column("metered", "bigint", "metered bytes (S2) of the records that it carries, before compression; else null"),
    Column("compression", "string", "of an S2S frame: `gzip` or `zstd`; null: none"),
    Column("state", "string", "what conversation or exchange are in after it, in the protocol's terms"),
    Column("failure", "string", "what an error says, `code: message`; null: it is none"),
    Column(
        "failed", "boolean", "the first message that tells of its failure: over HTTP heads and bodies do; count these"
    ),
    Column("fields", "string", "its fields as JSON; bodies only as sizes"),
    Column("rule", "string", "of a problem: what was expected; null: it is none"),
    Column("clause", "string", "of a problem: document and section that say so"),
    Column("fatal", "boolean", "of a problem: nothing more of this side, or exchange, can be read"),
    Column("context", "binary", "of a problem: at most 256 bytes around it"),
    Column("context_offset", "bigint", "of a problem: where these begin in what the sender sent"),
    _DAMAGE,
)
"""`penstock-capture`, table `messages`: messages, and violations of protocols (kind `problem`)."""

SEEN_RECORDS: Final = (
    *_CONVERSATION,
    Column("layer", "string", "how it travelled: `s2s`, `sse`, `http`, `s3p`, `segment`"),
    Column("exchange", "bigint", "what joins request and answer within the connection"),
    Column("action", "string", "`appended` (a client gave it) or `delivered` (a server gave it)"),
    Column("stream", "string", "`basin/stream`; for S3P its name; for segments the segment's full name"),
    Column("seq_num", "bigint", "null where the protocol has none, or no acknowledgement came"),
    Column("record_id", "string", "S3P's `ms-seq`"),
    Column("offset", "bigint", "bytes, segments"),
    Column("timestamp", "timestamp", "the record's own"),
    Column("headers", HEADERS, "pairs of bytes in their order"),
    Column("body", "binary", "the record; with option `envelopes`, out of the envelope that it may have travelled in"),
    Column("acknowledged", "boolean", "false: no acknowledgement was recorded"),
    Column("failure", "string", "what the server said instead of acknowledging; null for none"),
    Column("sent", "timestamp", "when the message that brought it was complete, to the us"),
    Column("settled", "timestamp", "appended: when its acknowledgement or refusal was complete; else null"),
    _DAMAGE,
)
"""`penstock-capture`, table `records`. An appended one is included when it is settled, or its connection has ended."""

CAPTURE_TABLES: Final = {"connections": CONNECTIONS, "messages": MESSAGES, "records": SEEN_RECORDS}
"""The tables of `penstock-capture`, by name."""
ALL_TABLES: Final = "all"
"""Decode a recording once for all of `CAPTURE_TABLES`: a struct column for each, of which each row has exactly one."""


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
