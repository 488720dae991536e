"""Descriptions of protocols for Wireshark, by plug-ins: names and kinds of fields, and the fields of each message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

import msgspec

from penstock.capture.dialogue.messages import Message
from penstock.model.records import Headers

__all__ = ["FieldKind", "Shown", "WiresharkProtocol", "record_fields"]


class FieldKind(Enum):
    """Kinds of fields, by their names in the Lua file."""

    BOOL = "bool"
    BYTES = "bytes"
    GUID = "guid"
    INT = "int"
    """Signed, up to 64 bits."""
    UINT = "uint"
    """Unsigned, up to 64 bits."""
    STRING = "string"
    NONE = "none"
    """A field without a value, which has others inside it."""


class Shown(NamedTuple):
    """A field of a message as Wireshark shows it, with those inside it. Empty bytes and None are no value."""

    name: str
    value: bool | int | bytes | str | UUID | None = None
    inner: Sequence[Shown] = ()


class WiresharkProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol as Wireshark shows it. `title`: in the tree; `column`: in the packet list. `kinds`: of its fields, by
    the path of names. `layers`: layers of messages that it may have. `describe` returns the fields of a message, or
    None for one of another protocol."""

    title: str
    column: str
    kinds: Mapping[str, FieldKind]
    layers: frozenset[str]
    describe: Callable[[Message], Sequence[Shown] | None]


def record_fields(
    body: bytes, headers: Headers = (), seq_num: int | None = None, timestamp: int | None = None
) -> list[Shown]:
    """Return the position, headers and body of a record."""
    return [
        *([] if seq_num is None else [Shown("seq_num", seq_num)]),
        *([] if timestamp is None else [Shown("timestamp", timestamp)]),
        *(Shown("headers", None, [Shown("name", name), Shown("value", value)]) for name, value in headers),
        Shown("body", body),
    ]
