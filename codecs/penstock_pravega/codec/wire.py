"""The wire types of the segment protocol's fields (segment fact sheet, section 0).

A message annotates each field with one of the aliases below (`I64`, `Name`, `Rest`, ...): mypy sees the Python type,
`layout` finds the `FieldType` that reads and writes it. All integers are big-endian.

Java's modified UTF-8 (segment fact sheet, section 0; the draft names it, reading 14).

NUL is c0 80, and a character above U+FFFF is its two surrogates with three bytes each. Plain UTF-8, which the Rust and
Python clients send, is accepted as well.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import Annotated, Final, Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from penstock_pravega.codec.limits import SEGMENT_MAX_NAME

__all__ = [
    "BOOL_WIRE",
    "BYTES32_WIRE",
    "I32",
    "I32_WIRE",
    "I64",
    "I64_WIRE",
    "NAME_WIRE",
    "U8",
    "U8_WIRE",
    "UUID_WIRE",
    "Bool",
    "Bytes32",
    "Event32",
    "FieldType",
    "FlagByte",
    "Flags",
    "MalformedValue",
    "Name",
    "PartByte",
    "PartialKind",
    "Rest",
    "Text",
    "Uuid",
    "Zeros",
    "decode_text",
    "encode_text",
    "read_length",
]

_SUPPLEMENTARY: Final = re.compile("[\U00010000-\U0010ffff]")
T = TypeVar("T")
MAX_TEXT: Final = 0xFFFF


def encode_text(text: str) -> bytes:
    """Encode a text as modified UTF-8. Raises ValueError for an unpaired surrogate."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    text.encode("utf-8")  # refuses unpaired surrogates
    paired = _SUPPLEMENTARY.sub(_surrogates, text)
    return paired.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _surrogates(match: re.Match[str]) -> str:
    pair = match[0].encode("utf-16-be")
    return chr(int.from_bytes(pair[:2], "big")) + chr(int.from_bytes(pair[2:], "big"))


def decode_text(data: bytes) -> str:
    """Decode modified or plain UTF-8. Raises ValueError for bytes that are neither."""
    if data.isascii():
        return data.decode("ascii")
    try:
        halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise ValueError(f"text that is not UTF-8 ({error.reason})") from None


class MalformedValue(Exception):
    """Bytes that are not a value of a wire type. `at` is the offset within the bytes read."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.text = text
        self.at = at


class FieldType(Generic[T]):
    """The encoding of one kind of value. `size` is its bytes, None if they vary; `name` is for people."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int | None = None) -> None:
        self.name = name
        self.size = size

    def read(self, body: memoryview, at: int) -> tuple[T, int]:
        """Return the value at `at`, and the offset of its end. Raises Malformed."""
        raise NotImplementedError

    def write(self, value: T, out: list[bytes]) -> None:
        """Append the value's bytes to `out`. Raises ValueError for a value that does not fit."""
        raise NotImplementedError


def need(body: memoryview, at: int, size: int) -> int:
    """Return the end of `size` bytes from `at`. Raises Malformed if some are missing."""
    end = at + size
    if end > len(body):
        raise MalformedValue(f"{size} bytes are needed and {len(body) - at} are left", at)
    return end


class _Number(FieldType[int]):
    __slots__ = ("_highest", "_lowest", "_struct")

    def __init__(self, name: str, letter: str, size: int, lowest: int, highest: int) -> None:
        super().__init__(name, size)
        self._struct = struct.Struct(f">{letter}")
        self._lowest = lowest
        self._highest = highest

    def read(self, body: memoryview, at: int) -> tuple[int, int]:
        end = at + self._struct.size
        if end > len(body):
            need(body, at, self._struct.size)
        value: int = self._struct.unpack_from(body, at)[0]
        return value, end

    def write(self, value: int, out: list[bytes]) -> None:
        if not self._lowest <= value <= self._highest:
            raise ValueError(f"{value} is no {self.name}")
        out.append(self._struct.pack(value))


class _Bool(FieldType[bool]):
    """One byte; anything but 0 is true."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[bool, int]:
        end = need(body, at, 1)
        return body[at] != 0, end

    def write(self, value: bool, out: list[bytes]) -> None:
        out.append(b"\x01" if value else b"\x00")


class _Text(FieldType[str]):
    """Two bytes of length, then modified UTF-8."""

    __slots__ = ("_longest",)

    def __init__(self, name: str, longest: int) -> None:
        super().__init__(name)
        self._longest = longest

    def read(self, body: memoryview, at: int) -> tuple[str, int]:
        start = need(body, at, 2)
        length = int.from_bytes(body[at:start], "big")
        if length > self._longest:
            raise MalformedValue(f"a {self.name} of {length} bytes, at most {self._longest} are allowed", at)
        end = need(body, start, length)
        try:
            return decode_text(bytes(body[start:end])), end
        except ValueError as error:
            raise MalformedValue(str(error), start) from None

    def write(self, value: str, out: list[bytes]) -> None:
        encoded = encode_text(value)
        if len(encoded) > self._longest:
            raise ValueError(f"a {self.name} of {len(encoded)} bytes, at most {self._longest} are allowed")
        out += (len(encoded).to_bytes(2, "big"), encoded)


class _Uuid(FieldType[UUID]):
    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[UUID, int]:
        end = need(body, at, 16)
        return UUID(bytes=bytes(body[at:end])), end

    def write(self, value: UUID, out: list[bytes]) -> None:
        out.append(value.bytes)


def read_length(body: memoryview, at: int, what: str = "length") -> tuple[int, int]:
    """Return a length or count of four bytes, and the offset of its end. Raises Malformed for a negative one."""
    length, end = I32_WIRE.read(body, at)
    if length < 0:
        raise MalformedValue(f"a {what} of {length}", at)
    return length, end


class _Bytes32(FieldType[bytes]):
    """Four bytes of length, then the bytes."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[bytes, int]:
        length, start = read_length(body, at)
        end = need(body, start, length)
        return bytes(body[start:end]), end

    def write(self, value: bytes, out: list[bytes]) -> None:
        out += (len(value).to_bytes(4, "big"), value)


class _Rest(FieldType[bytes]):
    """The rest of the message."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[bytes, int]:
        return bytes(body[at:]), len(body)

    def write(self, value: bytes, out: list[bytes]) -> None:
        out.append(value)


class _Zeros(FieldType[int]):
    """Zero bytes to the end of the message; the value is their number. Their content is not checked."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[int, int]:
        return len(body) - at, len(body)

    def write(self, value: int, out: list[bytes]) -> None:
        if value < 0:
            raise ValueError(f"{value} zero bytes")
        out.append(bytes(value))


class _Event32(FieldType[bytes]):
    """One whole Event message, header included; the value is its payload."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[bytes, int]:
        kind, start = I32_WIRE.read(body, at)
        if kind != 0:
            raise MalformedValue(f"message type {kind} where an Event (0) was expected", at)
        return BYTES32_WIRE.read(body, start)

    def write(self, value: bytes, out: list[bytes]) -> None:
        out.append(bytes(4))
        BYTES32_WIRE.write(value, out)


class Flags(Struct, frozen=True):
    """Two bits of one byte, most significant first: at the tail (0x80), at the end of the segment (0x40)."""

    at_tail: bool = False
    at_end: bool = False


class _Flags(FieldType[Flags]):
    """The other six bits are sent as zero and ignored (reading 3)."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[Flags, int]:
        end = need(body, at, 1)
        return Flags(bool(body[at] & 0x80), bool(body[at] & 0x40)), end

    def write(self, value: Flags, out: list[bytes]) -> None:
        out.append(bytes([value.at_tail << 7 | value.at_end << 6]))


class PartialKind(IntEnum):
    """The part of a message that a Partial is (reading 4)."""

    BEGIN = 0
    MIDDLE = 1
    END = 2


class _Part(FieldType[PartialKind]):
    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[PartialKind, int]:
        end = need(body, at, 1)
        try:
            return PartialKind(body[at]), end
        except ValueError:
            raise MalformedValue(f"{body[at]} is none of Begin (0), Middle (1), End (2)", at) from None

    def write(self, value: PartialKind, out: list[bytes]) -> None:
        out.append(bytes([value]))


I32_WIRE: Final = _Number("i32", "i", 4, -(1 << 31), (1 << 31) - 1)
I64_WIRE: Final = _Number("i64", "q", 8, -(1 << 63), (1 << 63) - 1)
U8_WIRE: Final = _Number("u8", "B", 1, 0, 255)
BOOL_WIRE: Final = _Bool("bool", 1)
NAME_WIRE: Final = _Text("name", SEGMENT_MAX_NAME)
UUID_WIRE: Final = _Uuid("uuid", 16)
BYTES32_WIRE: Final = _Bytes32("bytes32")
I32 = Annotated[int, I32_WIRE]
I64 = Annotated[int, I64_WIRE]
U8 = Annotated[int, U8_WIRE]
Bool = Annotated[bool, BOOL_WIRE]
Name = Annotated[str, NAME_WIRE]
Text = Annotated[str, _Text("str", MAX_TEXT)]
Uuid = Annotated[UUID, UUID_WIRE]
Bytes32 = Annotated[bytes, BYTES32_WIRE]
Rest = Annotated[bytes, _Rest("rest")]
Zeros = Annotated[int, _Zeros("zero bytes")]
Event32 = Annotated[bytes, _Event32("Event")]
FlagByte = Annotated[Flags, _Flags("2 bits", 1)]
PartByte = Annotated[PartialKind, _Part("u8", 1)]
