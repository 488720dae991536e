"""S2's messages in Wireshark, of sessions and of single requests, and its event streams."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.capture.dialogue.messages import Message
from penstock.capture.plugin import HTTP
from penstock.capture.wireshark.fields import FieldKind, Shown, WiresharkProtocol, record_fields
from penstock.model.operations import Append, Appended
from penstock.model.records import RecordBatch, StreamPosition
from penstock_proto import s2_pb2

__all__ = ["s2_protocols"]

_TYPES: Final = {
    FieldDescriptor.TYPE_UINT64: FieldKind.UINT,
    FieldDescriptor.TYPE_STRING: FieldKind.STRING,
    FieldDescriptor.TYPE_BYTES: FieldKind.BYTES,
    FieldDescriptor.TYPE_MESSAGE: FieldKind.NONE,
}
_PATHS: Final = {"append_input": "AppendInput", "append_ack": "AppendAck", "read_batch": "ReadBatch"}
_S2S_KINDS: Final = {
    **dict.fromkeys(("message", "flags.compression", "error"), FieldKind.STRING),
    **dict.fromkeys(("heartbeat", "flags.terminal", "flags.reconnect_advised"), FieldKind.BOOL),
    **dict.fromkeys(("records", "status"), FieldKind.UINT),
    "flags": FieldKind.NONE,
}


def s2_protocols() -> dict[str, WiresharkProtocol]:
    """Return `s2s`, for messages in frames and for those that are whole bodies, and `sse`."""
    messages = s2_pb2.DESCRIPTOR.message_types_by_name
    kinds = {path: kind for path, name in _PATHS.items() for path, kind in _message_kinds(path, messages[name])}
    event_kinds = {path.removeprefix("read_batch."): kind for path, kind in kinds.items() if "read_batch." in path}
    return {
        "s2s": WiresharkProtocol(
            title="S2S",
            column="S2S",
            kinds={**kinds, **_S2S_KINDS},
            layers=frozenset({"s2s", HTTP}),
            describe=_describe,
        ),
        "sse": WiresharkProtocol(
            title="Server-Sent Events",
            column="SSE",
            kinds={**event_kinds, "event": FieldKind.STRING, "id": FieldKind.STRING},
            layers=frozenset({"sse"}),
            describe=_describe_event,
        ),
    }


def _message_kinds(path: str, message: Descriptor) -> Iterator[tuple[str, FieldKind]]:
    yield path, FieldKind.NONE
    for field in message.fields:
        inner = f"{path}.{field.name}"
        if field.message_type is None:
            yield inner, _TYPES[field.type]
        else:
            yield from _message_kinds(inner, field.message_type)


def _describe(message: Message) -> list[Shown] | None:
    event, fields = message.event, message.fields
    if message.kind == "Terminal":
        return [Shown("message", "Terminal"), *_flags(message), Shown("status", fields["status"]), *_error(message)]
    if isinstance(event, Append):
        path, inner = "append_input", _append(event)
    elif isinstance(event, Appended):
        ends = {"start": event.start, "end": event.end, "tail": event.tail}
        path, inner = "append_ack", [_position(name, position) for name, position in ends.items()]
    elif isinstance(event, RecordBatch):
        path, inner = "read_batch", [*_records(message), *_tail(event.tail)]
    elif message.kind in ("heartbeat", "ReadBatch"):
        path, inner = "read_batch", list(_tail(event))
    else:
        return None
    return [Shown("message", _PATHS[path]), *_flags(message), *_count(message), Shown(path, None, inner)]


def _flags(message: Message) -> list[Shown]:
    """Return the flags of a frame; a body that is one message has none."""
    if message.layer == HTTP:
        return []
    flags = [
        Shown("compression", message.fields.get("compression", "none")),
        Shown("reconnect_advised", "reconnect_advised" in message.fields),
        Shown("terminal", message.kind == "Terminal"),
    ]
    return [Shown("flags", None, flags)]


def _error(message: Message) -> list[Shown]:
    return [Shown("error", message.failure)] if message.failure else []


def _count(message: Message) -> list[Shown]:
    if message.kind == "AppendAck":
        return []
    heartbeat = [Shown("heartbeat", True)] if message.kind == "heartbeat" else []
    return [Shown("records", message.fields.get("records", 0)), *heartbeat]


def _append(append: Append) -> list[Shown]:
    headers, timestamps = append.headers, append.timestamps or repeat(None)
    records = (
        Shown("records", None, record_fields(body, headers.get(index, ()), timestamp=timestamp))
        for index, (body, timestamp) in enumerate(zip(append.bodies, timestamps, strict=False))
    )
    conditions = [Shown("match_seq_num", append.match_seq_num), Shown("fencing_token", append.fencing_token)]
    return [*records, *(condition for condition in conditions if condition.value is not None)]


def _records(message: Message) -> list[Shown]:
    return [
        Shown("records", None, record_fields(record.body, record.headers, record.seq_num, record.timestamp))
        for record in message.own_records
    ]


def _tail(tail: StreamPosition | None) -> list[Shown]:
    return [] if tail is None else [_position("tail", tail)]


def _position(name: str, position: StreamPosition) -> Shown:
    return Shown(name, None, [Shown("seq_num", position.seq_num), Shown("timestamp", position.timestamp)])


def _describe_event(message: Message) -> list[Shown]:
    tail = message.fields.get("tail")
    return [
        Shown("event", message.kind),
        *([Shown("id", message.fields["id"])] if "id" in message.fields else ()),
        *_records(message),
        *([] if tail is None else [_position("tail", StreamPosition(**tail))]),
    ]
