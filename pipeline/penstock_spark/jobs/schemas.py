"""The columns of the tables that the jobs return (docs/pipeline.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_spark.schemas import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DIFFERENCES", "GROWTH", "LATENCY", "QUALITY", "THROUGHPUT", "USAGE", "VERDICTS", "shaped"]

QUALITY: Final = (
    Column("stream", "string", "the stream's name, spelled as in the records"),
    Column("action", "string", "in captures `appended` or `delivered`; null for records read from a stream"),
    Column("side", "string", "in captures `front`, `back` or `foreign`; else null"),
    Column(
        "verdict",
        "string",
        "`good`; `doubtful` for disorder or silence; `bad` for duplicates, timestamps that go back, and gaps "
        "among delivered records (appends elsewhere explain gaps among appended ones)",
    ),
    Column("records", "bigint", "number of records"),
    Column(
        "readers",
        "bigint",
        "in captures, the number of exchanges that delivered records, each examined by itself; else 1",
    ),
    Column("first_seq_num", "bigint", "smallest sequence number; null if the protocol has none"),
    Column("last_seq_num", "bigint", "largest sequence number"),
    Column("gaps", "bigint", "number of gaps in the sequence numbers"),
    Column("missing", "bigint", "number of sequence numbers missing in all gaps"),
    Column(
        "gap_examples",
        "array<struct<after: bigint, before: bigint>>",
        "the first gaps, at most 10, each with the sequence numbers around it",
    ),
    Column("duplicates", "bigint", "number of records with the position of an earlier one"),
    Column("altered_duplicates", "bigint", "number of duplicates with another body or other headers"),
    Column(
        "disorder", "bigint", "in captures, the number of records recorded after one of a later position; else null"
    ),
    Column("times_back", "bigint", "number of records with a timestamp before that of their predecessor"),
    Column("most_back_ms", "bigint", "largest step back in time, in ms; null if none"),
    Column("interval_ms", "bigint", "expected interval between records or heartbeats, in ms; null if unknown"),
    Column(
        "silences",
        "bigint",
        "number of periods without a record (or message of the session) that are longer than allowed",
    ),
    Column("heartbeats_missed", "bigint", "number of intervals in these periods"),
    Column("longest_silence_ms", "bigint", "longest time between two records, in ms; null with fewer than two"),
)
"""Job `quality`: one row for each stream (captures: and action and side)."""

LATENCY: Final = (
    Column("kind", "string", "`answer`: from a request to its first answer; `delivery`: from append to delivery"),
    Column(
        "side",
        "string",
        "`front`: as seen by clients; `back`: as seen by the gateway; `foreign`: in captures of other programs",
    ),
    Column("route", "string", "the route; null if not grouped by it, or unknown"),
    Column("protocol", "string", "the protocol; null if not grouped by it"),
    Column("stream", "string", "the stream; null if not grouped by it, or for messages without one"),
    Column("start", "timestamp", "start of the time window; null without time windows"),
    Column("count", "bigint", "number of measurements"),
    Column("p50_us", "bigint", "median, in us; percentiles are at most 1/128 too large"),
    Column("p90_us", "bigint", "90th percentile, in us"),
    Column("p99_us", "bigint", "99th percentile, in us"),
    Column("p999_us", "bigint", "99.9th percentile, in us"),
    Column("max_us", "bigint", "exact maximum, in us"),
)
"""Job `latency`: one row for each group and time window."""

USAGE: Final = (
    Column("side", "string", "`front`, `back` or `foreign`"),
    Column("client", "string", "the client's identity if the gateway knew one, else its address"),
    Column("stream", "string", "the stream; null if not grouped by it, or for messages without one"),
    Column("protocol", "string", "the protocol; null if not grouped by it"),
    Column("connections", "bigint", "number of connections with such messages"),
    Column("messages", "bigint", "number of messages of both sides"),
    Column("bytes", "bigint", "bytes of these messages on the wire"),
    Column("appended", "bigint", "number of acknowledged records"),
    Column("delivered", "bigint", "number of deliveries of records"),
    Column("record_bytes", "bigint", "bytes of their bodies and headers"),
    Column("errors", "bigint", "number of failed requests and violated rules"),
    Column("error_codes", "map<string, bigint>", "number by error code; `PROTOCOL` for violated rules"),
    Column(
        "compression_ratio",
        "double",
        "for S2: metered bytes of records divided by the bytes of their messages on the wire; above 1, "
        "compression saves more than framing costs; null without such messages",
    ),
)
"""Job `usage`: one row for each client, stream and protocol, as far as grouped by them."""

THROUGHPUT: Final = (
    Column("start", "timestamp", "start of the time window"),
    Column("side", "string", "`front`, `back` or `foreign`"),
    Column("protocol", "string", "the protocol, as in `messages`"),
    Column("messages", "bigint", "number of messages of both sides"),
    Column("bytes", "bigint", "bytes of these messages on the wire"),
    Column("records", "bigint", "number of records in these messages"),
)
"""Traffic in each time window, for the report."""

GROWTH: Final = (
    Column("start", "timestamp", "start of the time window, by the records' timestamps"),
    Column("protocol", "string", "protocol over which the records were read; null if unknown"),
    Column("records", "bigint", "number of records"),
    Column("bytes", "bigint", "bytes of their bodies and headers"),
)
"""Growth of streams in each time window, for the report."""

VERDICTS: Final = (
    Column("stream", "string", "the stream's name on the left; on the right if only that side has it"),
    Column("right_stream", "string", "the stream's name on the right"),
    Column("verdict", "string", "`equal`, `different`, `only left` or `only right`"),
    Column("left_records", "bigint", "number of records on the left; 0 if it has no such stream"),
    Column("right_records", "bigint", "number of records on the right; 0 if it has no such stream"),
    Column("lost", "bigint", "number of records that only the left has"),
    Column("added", "bigint", "number of records that only the right has"),
    Column("doubled", "bigint", "number of records that the right has more often than the left"),
    Column("reordered", "bigint", "number of records at different positions on the two sides"),
    Column("altered", "bigint", "number of positions at which the two sides have different records"),
    Column(
        "left_digest", "string", "SHA-256 over all records of the left, in order; equal digests prove equal records"
    ),
    Column("right_digest", "string", "SHA-256 over all records of the right, in order"),
)
"""Job `audit`: one row for each stream. For streams that one side lacks, all records count as lost or added."""

_SIDES: Final = (
    Column("ordinal", "bigint", "ordinal of the record in its stream, from 0"),
    Column("seq_num", "bigint", "its sequence number; null if it has none"),
    Column("position", "string", "its position, as its protocol spells it"),
    Column("timestamp", "timestamp", "the record's timestamp"),
    Column("digest", "string", "SHA-256 of the compared fields"),
    Column("size", "bigint", "size of its body, in bytes"),
    Column("sample", "binary", "the first 64 bytes of its body"),
)
DIFFERENCES: Final = (
    Column("stream", "string", "the stream's name, as in the verdicts"),
    Column("kind", "string", "`lost`, `added`, `doubled`, `reordered` or `altered`"),
    Column(
        "fields",
        "array<string>",
        "the fields of an altered record that differ: `body`, `headers`, `timestamp`, `seq_num`",
    ),
    *(Column(f"left_{name}", kind, f"left: {meaning}") for name, kind, meaning in _SIDES),
    *(Column(f"right_{name}", kind, f"right: {meaning}") for name, kind, meaning in _SIDES),
)
"""Job `audit`: one row for each record that differs; columns of a side without the record are null."""


def shaped(table: DataFrame, columns: tuple[Column, ...]) -> DataFrame:
    """Return exactly these columns, in this order and of these types; columns that the table lacks are null."""
    from pyspark.sql import functions as fn

    present = set(table.columns)
    return table.select(
        *(
            (fn.col(column.name) if column.name in present else fn.lit(None)).cast(column.type).alias(column.name)
            for column in columns
        )
    )
