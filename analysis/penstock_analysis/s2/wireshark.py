"""The tables of the S2 dissector of Wireshark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock_analysis.wireshark import lua_block, lua_file
from penstock_codecs.limits import S2S_MAX_FRAME_LENGTH
from penstock_proto import s2_pb2

__all__ = ["lua_tables"]

_TYPES: Final = {
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_MESSAGE: "message",
}


def lua_tables() -> str:
    """Return the file."""
    lines = [f"longest = {S2S_MAX_FRAME_LENGTH},"]
    for descriptor in s2_pb2.DESCRIPTOR.message_types_by_name.values():
        lines += lua_block(descriptor.name, _protobuf_fields(descriptor))
    return lua_file("Messages of S2 by field number.", lines)


def _protobuf_fields(descriptor: Descriptor) -> Iterator[str]:
    for field in descriptor.fields:
        inner = f', message = "{field.message_type.name}"' if field.message_type is not None else ""
        yield f'[{field.number}] = {{ name = "{field.name}", kind = "{_TYPES[field.type]}"{inner} }},'
