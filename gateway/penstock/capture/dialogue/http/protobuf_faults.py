"""Locate the first wrong byte of a protobuf message: the library reports only that there is one.

The rules checked are those of protobuf's encoding document ("Encoding", Message Structure): tags, lengths, and text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["ProtobufFault", "first_fault"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_MOST_DEEP: Final = 100
"""The library's own limit."""


class ProtobufFault(NamedTuple):
    """Offset of a fault in the message, and the form expected there."""

    at: int
    rule: str


def first_fault(data: bytes | memoryview, kind: Descriptor) -> ProtobufFault | None:
    """Return the first fault of a message, or None if there is none that this can find."""
    return _message(memoryview(data), 0, len(data), kind, 0)


def _message(data: memoryview, at: int, end: int, kind: Descriptor, depth: int) -> ProtobufFault | None:
    while at < end:
        start = at
        read = _varint(data, at, end)
        if read is None:
            return ProtobufFault(start, f"a field of {kind.name} begins with a tag")
        tag, at = read
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29 or wire not in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
            return ProtobufFault(start, f"a field of {kind.name} has a number and a wire type")
        read = _varint(data, at, end) if wire in (_VARINT, _LENGTH) else (0, at)
        if read is None:
            return ProtobufFault(at, f"a number of {_name(kind, number)} ends within the message")
        value, behind = read
        step = {_VARINT: 0, _LENGTH: value}.get(wire, _FIXED.get(wire, 0))
        if behind + step > end:
            return ProtobufFault(at, f"{_name(kind, number)} takes {step} bytes, {end - behind} are left")
        if wire == _LENGTH and (fault := _content(data, behind, behind + step, kind, number, depth)) is not None:
            return fault
        at = behind + step
    return None


def _content(data: memoryview, at: int, end: int, kind: Descriptor, number: int, depth: int) -> ProtobufFault | None:
    field = kind.fields_by_number.get(number)
    if field is None:
        return None
    if field.message_type is not None:
        if depth >= _MOST_DEEP:
            return ProtobufFault(at, f"messages nest at most {_MOST_DEEP} deep")
        return _message(data, at, end, field.message_type, depth + 1)
    if field.type == FieldDescriptor.TYPE_STRING:
        try:
            bytes(data[at:end]).decode()
        except UnicodeDecodeError as error:
            return ProtobufFault(at + error.start, f"{_name(kind, number)} is text of UTF-8")
    return None


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int] | None:
    value = shift = 0
    for place in range(at, min(end, at + 10)):
        value |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return value, place + 1
    return None


def _name(kind: Descriptor, number: int) -> str:
    field = kind.fields_by_number.get(number)
    return f"{kind.name}.{field.name}" if field is not None else f"field {number} of {kind.name}"
