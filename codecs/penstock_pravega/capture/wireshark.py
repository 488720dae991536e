"""The segment protocol in Wireshark: fields as the layouts of its messages name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from penstock.capture.dialogue.messages import Message
from penstock.capture.wireshark.fields import FieldKind, Shown, WiresharkProtocol
from penstock_pravega.codec.blocks import BlockData
from penstock_pravega.codec.layout import TYPE_TABLE, Dialect
from penstock_pravega.codec.lists import ItemsWire, ListWire
from penstock_pravega.codec.wire import FieldType

__all__ = ["field_kinds", "segment_protocol"]

_KINDS: Final = {
    "u8": FieldKind.INT,
    "i32": FieldKind.INT,
    "i64": FieldKind.INT,
    "zero bytes": FieldKind.INT,
    "bool": FieldKind.BOOL,
    "name": FieldKind.STRING,
    "str": FieldKind.STRING,
    "uuid": FieldKind.GUID,
    "bytes32": FieldKind.BYTES,
    "rest": FieldKind.BYTES,
    "Event": FieldKind.BYTES,
    "value": FieldKind.BYTES,
}
"""Kinds of fields by the names of their wire types."""
_INNER: Final = {
    "key": {"key": FieldKind.BYTES, "version": FieldKind.INT},
    "2 bits": {"at_tail": FieldKind.BOOL, "at_end": FieldKind.BOOL},
}
"""The parts of wire types that are not a single value."""


def segment_protocol() -> WiresharkProtocol:
    """Return the protocol, which Wireshark knows as `pravega`."""
    own = {"command": FieldKind.STRING, "event.data": FieldKind.BYTES}
    return WiresharkProtocol(
        title="Pravega segment protocol",
        column="Pravega",
        kinds={**field_kinds(), **own},
        layers=frozenset({"segment"}),
        describe=_describe,
    )


def _describe(message: Message) -> list[Shown]:
    event = message.event
    if isinstance(event, BlockData):
        fields = [Shown("connection_id", event.connection_id), Shown("connection_offset", event.offset)]
    else:
        fields = list(_shown(event))
    bodies = () if message.fields.get("raw") else [record.body for record in message.own_records]
    events = (Shown("event", None, [Shown("data", body)]) for body in bodies)
    return [Shown("command", message.kind), *fields, *events]


def _shown(struct: Struct) -> Iterator[Shown]:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        for item in value if isinstance(value, tuple) else (value,):
            yield _shown_value(name, item)


def _shown_value(name: str, value: Any) -> Shown:
    if isinstance(value, Struct):
        return Shown(name, None, list(_shown(value)))
    assert isinstance(value, int | bytes | str | UUID), "a value of a wire type"
    return Shown(name, value)


# ---- kinds -----------------------------------------------------------------------------------------------------------


def field_kinds() -> dict[str, FieldKind]:
    """Return the kind of each field by the path of its value in a message."""
    kinds: dict[str, FieldKind] = {}
    for dialect in Dialect:
        for cls in TYPE_TABLE[dialect].values():
            for field in cls.fields:
                for path, kind in _paths(field.name, field.wire):
                    known = kinds.setdefault(path, kind)
                    if known is FieldKind.NONE:  # a list of items in one message, of values in another
                        kinds[path] = kind
                    assert FieldKind.NONE in (kind, known) or kind is known, f"{path} has two kinds"
    return kinds


def _paths(path: str, wire: FieldType[Any]) -> Iterator[tuple[str, FieldKind]]:
    if isinstance(wire, ListWire):
        yield from _paths(path, wire.item)
    elif isinstance(wire, ItemsWire):
        yield path, FieldKind.NONE
        for name, part in wire.parts.items():
            yield from _paths(f"{path}.{name}", part)
    elif wire.name in _INNER:
        yield path, FieldKind.NONE
        yield from ((f"{path}.{name}", kind) for name, kind in _INNER[wire.name].items())
    else:
        yield path, _KINDS[wire.name]
