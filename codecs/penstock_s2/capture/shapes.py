"""Convert messages to fields for people and JSON, with bodies only as sizes."""

from __future__ import annotations

from typing import Any

from penstock.model.operations import Append, Appended
from penstock.model.records import RecordBatch, StreamPosition
from penstock.wire.compression import Compression

__all__ = [
    "append_fields",
    "appended_fields",
    "batch_fields",
    "frame_fields",
    "json_fields",
    "position",
]


def position(value: StreamPosition | None) -> dict[str, int] | None:
    """Return the fields of a position."""
    return None if value is None else value._asdict()


def append_fields(append: Append) -> dict[str, Any]:
    """Return the fields of an AppendInput: numbers of records and metered bytes, and its conditions, if any."""
    fields: dict[str, Any] = {"records": len(append.bodies), "metered": append.metered}
    if append.match_seq_num is not None:
        fields["match_seq_num"] = append.match_seq_num
    if append.fencing_token is not None:
        fields["fencing_token"] = append.fencing_token
    return fields


def appended_fields(appended: Appended) -> dict[str, Any]:
    """Return the fields of an AppendAck."""
    return {"start": position(appended.start), "end": position(appended.end), "tail": position(appended.tail)}


def batch_fields(batch: RecordBatch) -> dict[str, Any]:
    """Return the fields of a ReadBatch with records."""
    fields: dict[str, Any] = {
        "records": batch.count,
        "metered": batch.metered,
        "first_seq_num": batch.first_seq_num,
        "last_seq_num": batch.next_seq_num - 1,
    }
    if batch.tail is not None:
        fields["tail"] = position(batch.tail)
    return fields


def frame_fields(size: int, compression: Compression, reconnect_advised: bool) -> dict[str, Any]:
    """Return the fields of an S2S frame besides its message."""
    fields: dict[str, Any] = {"frame_bytes": size}
    if compression is not Compression.NONE:
        fields["compression"] = compression.name.lower()
    if reconnect_advised:
        fields["reconnect_advised"] = True
    return fields


def json_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a decoded JSON body: an object's own fields, anything else as `value`."""
    return value if isinstance(value, dict) else {"value": value}
