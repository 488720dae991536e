"""Describe segment messages: fields by their layouts, streams, texts of error replies."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from penstock.model.failures import printable
from penstock_pravega.capture.clauses import SEGMENT_ERRORS
from penstock_pravega.codec.blocks import BlockData
from penstock_pravega.codec.layout import SegmentMessage
from penstock_pravega.codec.lists import TableKey
from penstock_pravega.codec.wire import Flags

__all__ = ["error_text_of", "kind_of", "message_fields", "request_id_of", "segment_of"]

MOST_ITEMS: Final = 16
"""Most items of a list that are shown."""
_SECRET: Final = "delegation_token"
_NO_ID: Final = -1
_DETAILS: Final[dict[str, Callable[[Any], str]]] = {
    "WrongHost": lambda reply: f"{reply.segment} is at {reply.correct_host}",
    "InvalidEventNumber": lambda reply: f"event number {reply.event_number} of writer {reply.writer_id}",
    "SegmentIsTruncated": lambda reply: f"{reply.segment} begins at {reply.start_offset}",
    "OperationUnsupported": lambda reply: reply.operation,
    "AuthTokenCheckFailed": lambda reply: {0: "failed", 1: "expired"}.get(reply.error_code, "not specified"),
    "ErrorMessage": lambda reply: f"{reply.segment}: {reply.message}" if reply.segment else reply.message,
    "ConditionalCheckFailed": lambda reply: f"event number {reply.event_number} of writer {reply.writer_id}",
}


def kind_of(message: SegmentMessage | BlockData) -> str:
    """Return the message's name; events in a draft block are one `Event`."""
    return "Event" if isinstance(message, BlockData) else type(message).__name__


def segment_of(message: SegmentMessage | BlockData) -> str:
    """Return the segment that a message names, or ""."""
    for name in ("segment", "target", "parent"):
        value = getattr(message, name, "")
        if isinstance(value, str) and value:
            return value
    return ""


def request_id_of(message: SegmentMessage | BlockData) -> int | None:
    """Return the request id, or None if there is none."""
    request_id = getattr(message, "request_id", _NO_ID)
    return None if request_id == _NO_ID or not isinstance(request_id, int) else request_id


def message_fields(message: SegmentMessage | BlockData) -> dict[str, Any]:
    """Return a message's fields by their names in the layout: bytes and tokens as sizes, long lists by their beginning
    and length.

    Fields that an older peer left out are left out.
    """
    if isinstance(message, BlockData):
        return {"connection_id": str(message.connection_id), "connection_offset": message.offset}
    shown: dict[str, Any] = {}
    for field in message.fields:
        value = getattr(message, field.name)
        if field.tail and value == field.default:
            continue
        if type(value) is int:  # as most are
            shown[field.name] = value
        else:
            shown |= _shown(field.name, value)
    error = SEGMENT_ERRORS.get(kind_of(message))
    if error is not None:
        shown |= {"meaning": error.text, "clause": error.clause}
    return shown


def _shown(name: str, value: object) -> dict[str, Any]:
    """Convert a field for people and JSON."""
    match value:
        case str() if name == _SECRET:
            return {f"{name}_size": len(value.encode())}
        case bytes():
            return {"size" if name == "data" else f"{name}_size": len(value)}
        case Flags():
            return {"at_tail": value.at_tail, "at_end": value.at_end}
        case TableKey():
            return {name: printable(value.key), "version": value.version}
        case UUID():
            return {name: str(value)}
        case Enum():
            return {name: value.name}
        case tuple():
            items = [_item(each) for each in value[:MOST_ITEMS]]
            return {name: items} | ({f"{name}_count": len(value)} if len(value) > MOST_ITEMS else {})
        case _:
            return {name: value}


def _item(value: object) -> object:
    """Convert an item of a list."""
    if isinstance(value, TableKey):
        return _shown("key", value)
    if isinstance(value, Struct):
        parts = (_shown(name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: shown for part in parts for name, shown in part.items()}
    return str(value) if isinstance(value, UUID) else value


def error_text_of(message: SegmentMessage | BlockData) -> str:
    """Return the text of an error reply, `NAME: details`, or "" for other messages."""
    kind = kind_of(message)
    if kind not in SEGMENT_ERRORS:
        return ""
    return f"{kind}: {_DETAILS.get(kind, segment_of)(message)}"
