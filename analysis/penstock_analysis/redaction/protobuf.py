"""Blank secrets in protobuf messages in place, by their descriptors.

Lengths stay, so that the message and its surroundings remain readable.
"""

from __future__ import annotations

from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock_analysis.redaction.leaves import Leaves
from penstock_analysis.redaction.text import Edit, stars
from penstock_proto import pravega_controller_pb2, s2_pb2

__all__ = ["APPEND_INPUT", "READ_BATCH", "Malformed", "call", "has_tokens", "message_edits", "token_edits"]

APPEND_INPUT: Final = cast(Descriptor, s2_pb2.AppendInput.DESCRIPTOR)
READ_BATCH: Final = cast(Descriptor, s2_pb2.ReadBatch.DESCRIPTOR)
"""Also for acknowledgements: theirs are fields of the same kinds, without text."""
_HEADER: Final = s2_pb2.Header.DESCRIPTOR.full_name
_TOKENS: Final = frozenset({"delegationToken", "delegation_token", "access_token", "accessToken"})
"""Fields that hold a token, in every message."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_SERVICES: Final = pravega_controller_pb2.DESCRIPTOR.services_by_name


class Malformed(ValueError):
    """The bytes are not a protobuf message."""


def call(path: bytes, *, request: bool) -> Descriptor | None:
    """Return the message of a gRPC call by its path, or None if the call is unknown."""
    for service in _SERVICES.values():
        method = service.methods_by_name.get(path.rpartition(b"/")[2].decode("latin-1"))
        if method is not None:
            return method.input_type if request else method.output_type
    return None


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


def message_edits(data: bytes, descriptor: Descriptor, leaves: Leaves) -> list[Edit]:
    """Return the edits of a message. Raises Malformed."""
    edits: list[Edit] = []
    if (leaves.tokens and _with_tokens(descriptor)) or leaves.may_be_in(data):
        _walk(data, 0, len(data), descriptor, leaves, edits)
    return edits


def token_edits(data: bytes, leaves: Leaves) -> list[Edit]:
    """Return the edits of S2's response to a request for an access token: field 1 is the token. Raises Malformed."""
    edits: list[Edit] = []
    for number, start, end in _fields(data, 0, len(data)):
        if number == 1 and leaves.tokens:
            edits.append(Edit(start, stars(end - start)))
    return edits


def _walk(data: bytes, at: int, end: int, descriptor: Descriptor, leaves: Leaves, edits: list[Edit]) -> None:
    """Append the edits of a message; descends only as deep as the descriptors do, and none of them contains itself."""
    if descriptor.full_name == _HEADER:
        _header(data, at, end, leaves, edits)
        return
    for number, start, stop in _fields(data, at, end):
        field = descriptor.fields_by_number.get(number)
        if field is not None and field.message_type is not None:
            _walk(data, start, stop, field.message_type, leaves, edits)
        elif field is not None and field.name in _TOKENS and leaves.tokens:
            edits.append(Edit(start, stars(stop - start)))
        else:
            text = field is not None and field.type == FieldDescriptor.TYPE_STRING
            edits += leaves.leaf(data[start:stop], start, text=text)


def _header(data: bytes, at: int, end: int, leaves: Leaves, edits: list[Edit]) -> None:
    """Append the edits of a record's header, whose value is secret if its name is."""
    fields = list(_fields(data, at, end))
    secret = any(number == 1 and leaves.is_secret(data[start:stop]) for number, start, stop in fields)
    for number, start, stop in fields:
        if number == 2 and secret:
            edits.append(Edit(start, stars(stop - start)))
        else:
            edits += leaves.leaf(data[start:stop], start)


def _fields(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """Yield number, start and end of the length-delimited fields of a message. Raises Malformed."""
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
            raise Malformed
    if at != end:
        raise Malformed
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
    raise Malformed
