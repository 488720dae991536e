"""Blank secrets in protobuf messages in place, by their descriptors.

Lengths stay, so that the message and its surroundings remain readable.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.text import Edit, stars

__all__ = ["NotProtobuf", "has_tokens", "length_delimited", "message_edits"]

_TOKENS: Final = frozenset({"delegationToken", "delegation_token", "access_token", "accessToken"})
"""Fields that hold a token, in every message."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


class NotProtobuf(ValueError):
    """The bytes are not a protobuf message."""


@cache
def _with_tokens(descriptor: Descriptor) -> bool:
    return has_tokens(descriptor)


def has_tokens(descriptor: Descriptor) -> bool:
    """Return whether a message or one nested in it has a token."""
    return any(
        field.name in _TOKENS
        if field.message_type is None
        else field.message_type is not descriptor and has_tokens(field.message_type)
        for field in descriptor.fields
    )


def message_edits(
    data: bytes, descriptor: Descriptor, leaves: Leaves, record_header: Descriptor | None = None
) -> list[Edit]:
    """Return the edits of a message. Raises NotProtobuf. `record_header`: the message that is one header of a record,
    its name in field 1 and its value in field 2."""
    edits: list[Edit] = []
    if (leaves.tokens and _with_tokens(descriptor)) or leaves.may_be_in(data):
        _walk(data, 0, len(data), descriptor, leaves, edits, record_header)
    return edits


def _walk(
    data: bytes,
    at: int,
    end: int,
    descriptor: Descriptor,
    leaves: Leaves,
    edits: list[Edit],
    record_header: Descriptor | None,
) -> None:
    """Append the edits of a message; descends only as deep as the descriptors do, and none of them contains itself."""
    if descriptor is record_header:
        _header(data, at, end, leaves, edits)
        return
    for number, start, stop in length_delimited(data, at, end):
        field = descriptor.fields_by_number.get(number)
        if field is not None and field.message_type is not None:
            _walk(data, start, stop, field.message_type, leaves, edits, record_header)
        elif field is not None and field.name in _TOKENS and leaves.tokens:
            edits.append(Edit(start, stars(stop - start)))
        else:
            text = field is not None and field.type == FieldDescriptor.TYPE_STRING
            edits += leaves.leaf(data[start:stop], start, text=text)


def _header(data: bytes, at: int, end: int, leaves: Leaves, edits: list[Edit]) -> None:
    """Append the edits of a record's header, whose value is secret if its name is."""
    fields = list(length_delimited(data, at, end))
    secret = any(number == 1 and leaves.is_secret(data[start:stop]) for number, start, stop in fields)
    for number, start, stop in fields:
        if number == 2 and secret:
            edits.append(Edit(start, stars(stop - start)))
        else:
            edits += leaves.leaf(data[start:stop], start)


def length_delimited(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """Yield number, start and end of the length-delimited fields of a message. Raises NotProtobuf."""
    out = []
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _LENGTH:
            size, at = _varint(data, at, end)
            out.append((tag >> 3, at, at + size))
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise NotProtobuf
    if at != end:
        raise NotProtobuf
    return out


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise NotProtobuf
