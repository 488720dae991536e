"""The fields of a protobuf message, in the order of its bytes, named by its descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.wire.listing import Line, Undecodable, size

__all__ = ["fields"]

_VARINT: Final = 0
_LENGTH: Final = 2
_LONGEST_SHOWN: Final = 64
_WIRE_TYPES: Final = {
    FieldDescriptor.TYPE_UINT64: _VARINT,
    FieldDescriptor.TYPE_BYTES: _LENGTH,
    FieldDescriptor.TYPE_STRING: _LENGTH,
    FieldDescriptor.TYPE_MESSAGE: _LENGTH,
}
"""Wire types of the field types that are listed."""


def fields(data: bytes, at: int, end: int, kind: Descriptor, depth: int, base: int) -> Iterator[Line]:
    """Yield the lines of a message in `data[at:end]`; `base` is added to the offsets that are shown.

    Raises Undecodable for a field that the descriptor does not have, and for one that is cut off.
    """
    while at < end:
        start = at
        tag, at = _varint(data, at, end, base)
        field = kind.fields_by_number.get(tag >> 3)
        if field is None or _WIRE_TYPES[field.type] != tag & 7:
            raise Undecodable(f"field {tag >> 3} of wire type {tag & 7} is not one of {kind.name}", base + start)
        number, at = _varint(data, at, end, base)
        if field.type == FieldDescriptor.TYPE_UINT64:
            yield Line(base + start, depth, f"{field.name} = {number}")
            continue
        if at + number > end:
            raise Undecodable(f"{field.name} has {size(number)}, {end - at} are left", base + start)
        if field.message_type is not None:
            yield Line(base + start, depth, f"{field.name}: {field.message_type.name} ({size(number)})")
            yield from fields(data, at, at + number, field.message_type, depth + 1, base)
        else:
            yield Line(base + start, depth, f"{field.name} = {_shown(data[at : at + number])}")
        at += number


def _varint(data: bytes, at: int, end: int, base: int) -> tuple[int, int]:
    number = shift = 0
    for place in range(at, min(end, at + 10)):
        number |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return number, place + 1
    raise Undecodable("a varint that does not end", base + at)


def _shown(data: bytes) -> str:
    if len(data) <= _LONGEST_SHOWN:
        return f"{data!r}"
    return f"{data[:_LONGEST_SHOWN]!r}... ({size(len(data))})"
