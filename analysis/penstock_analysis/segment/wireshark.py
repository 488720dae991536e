"""The tables of the segment dissector of Wireshark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock_analysis.wireshark import lua_block, lua_file
from penstock_codecs.limits import SEGMENT_MAX_ITEMS, SEGMENT_MAX_LENGTH, SEGMENT_MAX_NAME
from penstock_codecs.segment.draft import PartialKind
from penstock_codecs.segment.layout import TYPE_TABLE, Dialect, Field, SegmentMessage, fields_of
from penstock_codecs.segment.lists import ItemsWire, ListWire
from penstock_codecs.segment.wire import FieldType

__all__ = ["field_kinds", "lua_tables"]

_WIRES: Final = {"zero bytes": "zeros", "Event": "event", "2 bits": "flags"}
"""Names in Lua of wire types whose own names are no identifiers there."""
_LONG_LINE: Final = 100
_NUMBERS: Final = ("u8", "i32", "zeros", "i64")
"""Kinds of numbers, narrow to wide: if two share a name, the later one can hold both."""
_INNER: Final = {
    "key": (("key", "bytes32"), ("version", "i64")),
    "flags": (("at_tail", "bool"), ("at_end", "bool")),
}
"""The parts of kinds that are not a single value."""
_LABELS: Final[dict[str, dict[int, str]]] = {
    "part": {part.value: part.name.title() for part in PartialKind},
    "scale_type": {0: "none", 1: "KB/s", 2: "events/s"},
}


def lua_tables() -> str:
    """Return the file."""
    limits = {"length": SEGMENT_MAX_LENGTH, "name": SEGMENT_MAX_NAME, "items": SEGMENT_MAX_ITEMS}
    lines = [f"longest = {{ {', '.join(f'{key} = {value}' for key, value in limits.items())} }},"]
    lines += lua_block("kinds", (f'["{path}"] = "{kind}",' for path, kind in sorted(field_kinds().items())))
    lines += lua_block("labels", (_label(*label) for label in _LABELS.items()))
    for dialect, messages in TYPE_TABLE.items():
        shown = (line for _, cls in sorted(messages.items()) for line in _message(cls))
        lines += lua_block(dialect.value, shown)
    return lua_file("Messages of the segment protocol by type.", lines)


def _label(name: str, labels: dict[int, str]) -> str:
    shown = (f'[{value}] = "{text}"' for value, text in labels.items())
    return f"{name} = {{ {', '.join(shown)} }},"


def _message(cls: type[SegmentMessage]) -> Iterator[str]:
    yield f'[{cls.type_id}] = {{ name = "{cls.__name__}", from = "{cls.direction.value}", fields = {{'
    for field in cls.fields:
        yield from _lines(f"{_entry(field.name, field.wire, field.tail)},")
    if cls.older is not None:
        yield f"}}, before = {cls.older.before}, older = {{"
        for field in fields_of(cls, cls.older.before - 1):
            yield from _lines(f"{_entry(field.name, field.wire, field.tail)},")
    yield "} },"


def _lines(entry: str) -> Iterator[str]:
    """Yield an entry as one line, or with the parts of its items on separate lines."""
    if len(entry) <= _LONG_LINE:
        yield f"    {entry}"
        return
    head, _, rest = entry.partition("parts = { ")
    yield f"    {head}parts = {{"
    parts = rest.split("}, {")
    yield from (f"        {'{' * (place > 0)}{part}}}," for place, part in enumerate(parts[:-1]))
    yield f"        {{{parts[-1]}"


def _entry(name: str, wire: FieldType[Any], tail: bool = False) -> str:
    """Return `{ name, kind }`, with the contents of lists and items."""
    more = ", tail = true" if tail else ""
    if isinstance(wire, ListWire):
        return f'{{ "{name}", "list", item = {_entry("", wire.item)}{more} }}'
    if isinstance(wire, ItemsWire):
        parts = ", ".join(_entry(*part) for part in wire.parts.items())
        return f'{{ "{name}", "items", parts = {{ {parts} }}{more} }}'
    return f'{{ "{name}", "{_WIRES.get(wire.name, wire.name)}"{more} }}'


def field_kinds() -> dict[str, str]:
    """Return the kind of each field of the segment protocol by the path of its value in a message, leaving out
    lists."""
    kinds: dict[str, str] = {}
    for dialect in Dialect:
        for cls in TYPE_TABLE[dialect].values():
            for field in cls.fields:
                for path, kind in _paths(field):
                    kinds[path] = _wider(kinds.get(path, kind), kind)
    return kinds


def _paths(field: Field) -> Iterator[tuple[str, str]]:
    yield from _paths_of(field.name, field.wire)


def _paths_of(path: str, wire: FieldType[Any]) -> Iterator[tuple[str, str]]:
    if isinstance(wire, ListWire):
        yield from _paths_of(path, wire.item)
        return
    if isinstance(wire, ItemsWire):
        for name, part in wire.parts.items():
            yield from _paths_of(f"{path}.{name}", part)
        return
    kind = _WIRES.get(wire.name, wire.name)
    if kind in _INNER:
        yield from ((f"{path}.{name}", inner) for name, inner in _INNER[kind])
    else:
        yield path, kind


def _wider(first: str, second: str) -> str:
    """Return the one kind for a name that several messages use."""
    if first in _NUMBERS and second in _NUMBERS:
        return max(first, second, key=_NUMBERS.index)
    texts = {"name", "str"}
    blobs = {"bytes32", "rest", "event", "value"}
    assert first == second or {first, second} <= texts or {first, second} <= blobs, f"{first} and {second} share a name"
    return first
