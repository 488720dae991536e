"""Kafka's primitive types: integers, variable-length integers, and strings and bytes with a length before them.

Numbers are big-endian. "Compact" forms, which newer versions of messages use, spell a length as an unsigned variable
integer plus one, so that 0 means null (KIP-482). A reader stays within the bytes that it was given, and allocates
nothing for a length that is merely announced.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

__all__ = ["KafkaFault", "KafkaReader", "uvarint", "varint"]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_MOST_TAGS: Final = 128
"""Most tagged fields of one part of a message; no message of Kafka has 20."""
_SHORT: Final = tuple(bytes((value,)) for value in range(0x80))


class KafkaFault(Exception):
    """Bytes break the protocol at offset `at` of the message or batch that is decoded."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"byte {at}: {message}")
        self.at = at


class KafkaReader:
    """A cursor over the bytes of one message. `items`: how many elements all its arrays may have together."""

    __slots__ = ("at", "data", "end", "items")

    def __init__(self, data: bytes, at: int = 0, *, items: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.items = items

    def take(self, size: int, what: str) -> bytes:
        """Return the next `size` bytes. Raises KafkaFault if there are fewer."""
        start = self.at
        if size > self.end - start:
            raise KafkaFault(f"{what} of {size} bytes, of which only {self.end - start} are there", start)
        self.at = start + size
        return self.data[start : self.at]

    def _fixed(self, layout: struct.Struct, what: str) -> int:
        start = self.at
        if start + layout.size > self.end:
            raise KafkaFault(f"the message ends within {what}", start)
        self.at = start + layout.size
        value: int = layout.unpack_from(self.data, start)[0]
        return value

    def int8(self) -> int:
        """Return a signed byte."""
        return int.from_bytes(self.take(1, "int8"), signed=True)

    def int16(self) -> int:
        """Return a signed number of 2 bytes."""
        return self._fixed(_INT16, "int16")

    def int32(self) -> int:
        """Return a signed number of 4 bytes."""
        return self._fixed(_INT32, "int32")

    def int64(self) -> int:
        """Return a signed number of 8 bytes."""
        return self._fixed(_INT64, "int64")

    def boolean(self) -> bool:
        """Return whether the next byte is not 0."""
        return self.take(1, "bool") != b"\0"

    def uvarint(self, bits: int = 32) -> int:
        """Return an unsigned variable integer: 7 bits a byte, the low ones first. Raises KafkaFault above `bits`."""
        start, value, shift = self.at, 0, 0
        while True:
            if self.at >= self.end:
                raise KafkaFault("the message ends within a variable integer", start)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits + 3:
                raise KafkaFault(f"a variable integer has more than {bits} bits", start)
        if value >> bits:
            raise KafkaFault(f"a variable integer has more than {bits} bits", start)
        return value

    def varint(self, bits: int = 32) -> int:
        """Return a signed variable integer, zigzag-encoded."""
        at = self.at
        if at < self.end and (value := self.data[at]) < 0x80:  # nearly all are so short
            self.at = at + 1
        else:
            value = self.uvarint(bits)
        return value >> 1 ^ -(value & 1)

    def block(self, *, compact: bool, small: bool, what: str) -> bytes | None:
        """Return bytes with their length before them, or None for null. `small`: the length has 2 bytes, not 4, unless
        it is compact."""
        start = self.at
        size = self.uvarint() - 1 if compact else self.int16() if small else self.int32()
        if size == -1:
            return None
        if size < 0:
            raise KafkaFault(f"{what} has length {size}", start)
        return self.take(size, what)

    def count(self, *, compact: bool) -> int | None:
        """Return the number of elements of an array, or None for null.

        Raises KafkaFault for more than there are bytes left, or than `items` allow.
        """
        start = self.at
        count = self.uvarint() - 1 if compact else self.int32()
        if count == -1:
            return None
        if not 0 <= count <= self.end - self.at:
            raise KafkaFault(f"an array of {count} elements in {self.end - self.at} bytes", start)
        if count > self.items:
            raise KafkaFault(f"an array of {count} elements, where {self.items} more are allowed", start)
        self.items -= count
        return count

    def skip_tags(self) -> None:
        """Skip tagged fields, which are unknown."""
        for _ in range(self.tag_count()):
            self.uvarint()
            self.take(self.uvarint(), "tagged field")

    def tag_count(self) -> int:
        """Return the number of tagged fields that follow. Raises KafkaFault for more than there are bytes left, or than
        `_MOST_TAGS`."""
        start = self.at
        count = self.uvarint()
        if count > self.end - self.at:
            raise KafkaFault(f"{count} tagged fields in {self.end - self.at} bytes", start)
        if count > _MOST_TAGS:
            raise KafkaFault(f"{count} tagged fields, where {_MOST_TAGS} are allowed", start)
        return count


def uvarint(value: int) -> bytes:
    """Return an unsigned variable integer."""
    if value < 0x80:
        return _SHORT[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    """Return a signed variable integer, zigzag-encoded; `value` of at most 64 bits."""
    return uvarint(value << 1 ^ value >> 63)
