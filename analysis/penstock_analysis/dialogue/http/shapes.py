"""Convert messages to fields for people and JSON, with bodies only as sizes."""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtobufMessage

from penstock_codecs.compression import Compression
from penstock_codecs.model import RecordBatch, StreamPosition
from penstock_codecs.operations import Append, Appended

__all__ = [
    "append_fields",
    "appended_fields",
    "batch_fields",
    "frame_fields",
    "json_fields",
    "position",
    "protobuf_fields",
    "status_of",
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


def protobuf_fields(message: ProtobufMessage) -> dict[str, Any]:
    """Return the fields of a message that are set, by the names of its descriptor; bytes as sizes, enums by name.

    A response's `status` is included even if it is the enum's first value, which is not sent.
    """
    fields = {field.name: _value(field, value) for field, value in message.ListFields()}
    status = status_of(message)
    return fields if status is None else fields | {"status": status}


def status_of(message: ProtobufMessage) -> str | None:
    """Return the name of a response's `status`, or None if it has none."""
    field = message.DESCRIPTOR.fields_by_name.get("status")
    if field is None or field.enum_type is None:
        return None
    return str(_one(cast(FieldDescriptor, field), getattr(message, field.name)))


def _value(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return {str(key): _one(of, one) for key, one in value.items()}
    if field.is_repeated:
        return [_one(field, one) for one in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return protobuf_fields(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return {"bytes": len(value)} if isinstance(value, bytes) else value
