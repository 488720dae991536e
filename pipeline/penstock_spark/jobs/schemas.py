"""The columns of the tables that the jobs return (docs/pipeline.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_spark.schemas import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DIFFERENCES", "GROWTH", "LATENCY", "QUALITY", "THROUGHPUT", "USAGE", "VERDICTS", "shaped"]

QUALITY: Final = (
    Column("stream", "string", "spelled as in the records"),
    Column("action", "string", "captures: `appended` or `delivered`; null for the records of a stream"),
    Column("side", "string", "captures: `front`, `back` or `foreign`; else null"),
    Column(
        "verdict",
        "string",
        "`good`; `doubtful`: disorder, silence; `bad`: doubled records, times going back, and gaps, if they are not of "
        "appends: what is missing between those was appended elsewhere",
    ),
    Column("records", "bigint", "all of them"),
    Column("readers", "bigint", "captures, `delivered`: exchanges that delivered; each is judged by itself; else 1"),
    Column("first_seq_num", "bigint", "the least; null where the protocol has none"),
    Column("last_seq_num", "bigint", "the greatest"),
    Column("gaps", "bigint", "places where sequence numbers are missing between two records that are there"),
    Column("missing", "bigint", "sequence numbers missing in all gaps"),
    Column(
        "gap_examples",
        "array<struct<after: bigint, before: bigint>>",
        "the first gaps, at most 10: the sequence numbers around each",
    ),
    Column("duplicates", "bigint", "records whose position another one before has"),
    Column("altered_duplicates", "bigint", "of these, with another body or other headers"),
    Column("disorder", "bigint", "captures: records that went by after one of a later position; else null"),
    Column("times_back", "bigint", "records stamped before the one at the position before"),
    Column("most_back_ms", "bigint", "the farthest of these; null: none"),
    Column("interval_ms", "bigint", "the interval at which records, or heartbeats, are expected; null: not known"),
    Column("silences", "bigint", "periods longer than allowed without any record (or message of the session)"),
    Column("heartbeats_missed", "bigint", "how many intervals passed in these"),
    Column("longest_silence_ms", "bigint", "the longest time between two records; null where there are no two"),
)
"""Job `quality`: one row for each stream (captures: and action and side)."""

LATENCY: Final = (
    Column("kind", "string", "`answer`: request to its first answer; `delivery`: appended to delivered"),
    Column("side", "string", "`front`: seen by clients; `back`: seen by the gateway; `foreign`: another's capture"),
    Column("route", "string", "null: not asked for, or not known"),
    Column("protocol", "string", "null: not asked for"),
    Column("stream", "string", "null: not asked for, or about none"),
    Column("start", "timestamp", "of the time window; null: over all the time"),
    Column("count", "bigint", "how many were measured"),
    Column("p50_us", "bigint", "half took at most this; percentiles are at most 1/128 too large"),
    Column("p90_us", "bigint", "of ten nine took at most this"),
    Column("p99_us", "bigint", "of 100, 99"),
    Column("p999_us", "bigint", "of 1,000, 999"),
    Column("max_us", "bigint", "the slowest, exactly"),
)
"""Job `latency`: one row for each group and time window."""

USAGE: Final = (
    Column("side", "string", "`front`, `back` or `foreign`"),
    Column("client", "string", "who opened the connection: its identity where the gateway knew one, else its address"),
    Column("stream", "string", "null: not asked for, or messages about none"),
    Column("protocol", "string", "null: not asked for"),
    Column("connections", "bigint", "connections that said something of this"),
    Column("messages", "bigint", "of both sides"),
    Column("bytes", "bigint", "of these messages, on the wire"),
    Column("appended", "bigint", "records acknowledged"),
    Column("delivered", "bigint", "records delivered, as often as they were"),
    Column("record_bytes", "bigint", "bodies and headers of these records"),
    Column("errors", "bigint", "requests that failed, each once, and broken rules"),
    Column("error_codes", "map<string, bigint>", "how many of each code; `PROTOCOL` for broken rules"),
    Column(
        "compression_ratio",
        "double",
        "S2: metered bytes of records divided by the bytes on the wire of the messages that carried them: above 1 "
        "compression saved more than framing cost; null: no such messages",
    ),
)
"""Job `usage`: one row for each client, stream and protocol, as far as grouped by them."""

THROUGHPUT: Final = (
    Column("start", "timestamp", "of the time window"),
    Column("side", "string", "`front`, `back` or `foreign`"),
    Column("protocol", "string", "as in the messages"),
    Column("messages", "bigint", "of both sides"),
    Column("bytes", "bigint", "of these messages, on the wire"),
    Column("records", "bigint", "that these messages made known"),
)
"""Traffic in each time window, for the report."""

GROWTH: Final = (
    Column("start", "timestamp", "of the time window, by the records' timestamps"),
    Column("protocol", "string", "over which the records were read; null: not known"),
    Column("records", "bigint", "all of them"),
    Column("bytes", "bigint", "bodies and headers of these"),
)
"""Growth of streams in each time window, for the report."""

VERDICTS: Final = (
    Column("stream", "string", "its name on the left; on the right where only that has it"),
    Column("right_stream", "string", "its name on the right"),
    Column("verdict", "string", "`equal`, `different`, `only left` or `only right`"),
    Column("left_records", "bigint", "0 where the left has no such stream"),
    Column("right_records", "bigint", "0 where the right has no such stream"),
    Column("lost", "bigint", "the left has the record, the right has not"),
    Column("added", "bigint", "the right has it, the left has not"),
    Column("doubled", "bigint", "the right has it more often than the left"),
    Column("reordered", "bigint", "both have it, in another place"),
    Column("altered", "bigint", "another record stands in its place"),
    Column("left_digest", "string", "SHA-256 over all records in their order: equal digests are the proof"),
    Column("right_digest", "string", "the same of the right"),
)
"""Job `audit`: one row for each stream. For streams that one side lacks, all records count as lost or added."""

_SIDES: Final = (
    Column("ordinal", "bigint", "its place in the stream, from 0"),
    Column("seq_num", "bigint", "its sequence number; null where there is none"),
    Column("position", "string", "its position as its protocol says it"),
    Column("timestamp", "timestamp", "the record's own"),
    Column("digest", "string", "SHA-256 of what is compared"),
    Column("size", "bigint", "bytes of its body"),
    Column("sample", "binary", "the first 64 bytes of its body"),
)
DIFFERENCES: Final = (
    Column("stream", "string", "as in the verdicts"),
    Column("kind", "string", "`lost`, `added`, `doubled`, `reordered` or `altered`"),
    Column("fields", "array<string>", "of an altered record, what differs: `body`, `headers`, `timestamp`, `seq_num`"),
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
