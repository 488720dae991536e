"""Fields that no client knows, and each must ignore, in the forms that several protocols share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from penstock_codecs.grpc import frame

__all__ = ["IN_BODIES", "UNKNOWN_HEADER", "AddField", "in_events", "in_json", "in_protobuf"]

AddField = Callable[[bytes], bytes]
"""Returns a message, as it is sent, with a field that no client knows. A message without a place for it stays."""

UNKNOWN_HEADER: Final = ("penstock-unknown", "1")
_JSON: Final = b'{"penstock_unknown":{"list":[1,"two",null]}'
_PROTOBUF: Final = bytes.fromhex("c2bb0103") + b"new"
"""Field 3000 with three bytes (the encoding of protobuf: tag, length, value)."""
_LINES: Final = b": penstock\npenstock-unknown: 1\n"
_DATA: Final = re.compile(rb"^(data: ?)(\{.*)", re.MULTILINE)
_GRPC_PREFIX: Final = 5


def in_json(message: bytes) -> bytes:
    """Return an object of JSON with an unknown field, and anything else as it is."""
    if not message.startswith(b"{"):
        return message
    rest = message[1:].lstrip()
    return _JSON + (b"" if rest.startswith(b"}") else b",") + rest


def in_protobuf(message: bytes) -> bytes:
    """Return a message of protobuf with an unknown field."""
    return message + _PROTOBUF


def in_events(events: bytes, data: re.Pattern[bytes] = _DATA) -> bytes:
    """Return server-sent events with a comment, a line of an unknown field, and an unknown field in their data.

    `data` matches the protocol's own data; its groups are what precedes an object of JSON on its line, and that object
    up to the end of the line.
    """
    return _LINES + data.sub(lambda found: found[1] + in_json(found[2]), events)


def _in_grpc(message: bytes) -> bytes:
    return frame(in_protobuf(message[_GRPC_PREFIX:]))


IN_BODIES: Final[Mapping[str, AddField]] = {
    "application/json": in_json,
    "application/protobuf": in_protobuf,
    "application/x-protobuf": in_protobuf,
    "application/grpc": _in_grpc,
    "text/event-stream": in_events,
}
"""By media type, for answers over HTTP whose bodies hold nothing but the protocol's own messages."""
