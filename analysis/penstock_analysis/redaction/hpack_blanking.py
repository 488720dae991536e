"""Blank secret values of HTTP/2 header blocks in place (RFC 7541).

A blanked value has the same length on the wire and decoded as the original, so that both ends' dynamic tables keep
their sizes, and later references find the blanked value. Huffman-coded values are replaced by characters whose codes
have as many bits in all: as many `*` as possible, then shorter ones, `0`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from penstock_analysis.redaction.secrets import Secrets
from penstock_analysis.redaction.text import Edit, Span, joined, stars

__all__ = ["UNTOLD", "HeaderNames", "Unparsable", "filler", "redact_block"]

UNTOLD: Final = b""
"""Key among the wanted headers for one whose name is unknown, since it was sent before the recording began."""
_TABLE: Final = 4096
_MOST_TABLE: Final = 64 * 1024
"""Largest dynamic table that is kept, in the bytes of RFC 7541, 4.1. What a larger one holds has no name here."""
_ENTRY: Final = 32
_STATIC: Final = tuple(HeaderTable.STATIC_TABLE)
_encoder: Final = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


class Unparsable(Exception):
    """The bytes are not a header block."""


class _Entry(NamedTuple):
    name: bytes | None
    value: bytes | None
    size: int


class HeaderNames:
    """One direction's dynamic table, as far as redaction needs it: names, and the values that are wanted.

    In the middle of a connection it begins empty, and an entry that is referred to and missing has no name. Indices
    count from the newest entry, so all entries added since are found.
    """

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._size = 0
        self._most = _TABLE

    def get(self, index: int) -> tuple[bytes | None, bytes | None]:
        """Return name and value of an index from 1 on, as far as they are known. Raises Unparsable for 0."""
        if index == 0:
            raise Unparsable
        if index <= len(_STATIC):
            return _STATIC[index - 1]
        index -= len(_STATIC) + 1
        if index >= len(self._entries):
            return None, None
        entry = self._entries[index]
        return entry.name, entry.value

    def add(self, name: bytes | None, value: bytes | None, size: int) -> None:
        """Add an entry whose name and value have `size` bytes."""
        self._entries.appendleft(_Entry(name, value, size + _ENTRY))
        self._size += size + _ENTRY
        self._shrink()

    def resize(self, most: int) -> None:
        """Apply the encoder's new table size."""
        self._most = min(most, _MOST_TABLE)
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._most:
            self._size -= self._entries.pop().size


class _String(NamedTuple):
    """A string literal: the place of its bytes, and whether they are Huffman-coded."""

    start: int
    end: int
    coded: bool


class _Reader:
    """Reader of a header block from its beginning."""

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.at = 0

    def integer(self, bits: int) -> int:
        """Read an integer (RFC 7541, 5.1)."""
        block = self.block
        most = (1 << bits) - 1
        try:
            value = block[self.at] & most
            self.at += 1
            if value < most:
                return value
            for shift in range(0, 35, 7):
                byte = block[self.at]
                self.at += 1
                value += (byte & 127) << shift
                if byte < 128:
                    return value
        except IndexError:
            pass
        raise Unparsable

    def string(self) -> _String:
        """Read a string literal (RFC 7541, 5.2)."""
        coded = self.at < len(self.block) and bool(self.block[self.at] & 0x80)
        size = self.integer(7)
        start, self.at = self.at, self.at + size
        if self.at > len(self.block):
            raise Unparsable
        return _String(start, self.at, coded)

    def decoded(self, string: _String) -> bytes:
        """Return a string literal decoded. Raises Unparsable."""
        raw = self.block[string.start : string.end]
        if not string.coded:
            return raw
        try:
            return decode_huffman(raw)
        except HPACKDecodingError:
            raise Unparsable from None


def redact_block(block: bytes, names: HeaderNames, secrets: Secrets) -> tuple[list[Edit], dict[bytes, bytes]]:
    """Return the edits of a header block, and the values of `Secrets.wanted` headers in it; update `names`.

    Raises Unparsable.
    """
    reader = _Reader(block)
    edits: list[Edit] = []
    fields: dict[bytes, bytes] = {}
    while reader.at < len(block):
        first = block[reader.at]
        if first & 0xE0 == 0x20:
            names.resize(reader.integer(5))
            continue
        if first & 0x80:
            name, value = names.get(reader.integer(7))
        else:
            name, value = _literal(reader, names, secrets, edits)
        if name is None:
            fields[UNTOLD] = b""
        elif name in secrets.wanted and value is not None and fields.setdefault(name, value) != value:
            fields[name] += b", " + value
    return edits, fields


def _literal(
    reader: _Reader, names: HeaderNames, secrets: Secrets, edits: list[Edit]
) -> tuple[bytes | None, bytes | None]:
    """RFC 7541, 6.2: with a name by index or as a string, and to be remembered or not."""
    indexing = bool(reader.block[reader.at] & 0x40)
    index = reader.integer(6 if indexing else 4)
    name = names.get(index)[0] if index else reader.decoded(reader.string()).lower()
    string = reader.string()
    value = reader.decoded(string)
    spans = joined(secrets.in_header(name and name.strip(), value))
    if spans:
        edits.append(Edit(string.start, _blanked(value, spans, string.coded)))
    if indexing:
        kept = value if name in secrets.wanted else None
        names.add(name, kept, len(name or b"") + len(value))
    return name, value


def _blanked(value: bytes, spans: list[Span], coded: bool) -> bytes:
    out = bytearray(value)
    for start, end in spans:
        out[start:end] = filler(value[start:end]) if coded else stars(end - start)
    return _encoder.encode(bytes(out)) if coded else bytes(out)


# ---- Huffman codes -------------------------------------------------------------------------------------------

_BITS: Final = tuple(REQUEST_CODES_LENGTH[:256])
_SHORTEST: Final = min(_BITS)


def _characters() -> dict[int, int]:
    """Return a character for each length of codes: `*` has 8 bits, `0` has 5; printable ones where they exist."""
    found: dict[int, int] = {}
    for character in b"*0%:?+#$^<\\", *range(256):
        for one in character if isinstance(character, bytes) else (character,):
            found.setdefault(_BITS[one], one)
    return found


_CHARACTER: Final = _characters()
_USUAL: Final = 8
"""All lengths from the shortest to this one exist; nearly all that is printable has one of them."""


def filler(secret: bytes) -> bytes:
    """Return as many characters as `secret` has, with codes of the same number of bits in all."""
    lengths = [_BITS[byte] for byte in secret]
    long = sorted(length for length in lengths if length > _USUAL)
    left, bits = len(lengths) - len(long), sum(lengths) - sum(long)
    out = bytearray()
    while left:
        length = min(bits - _SHORTEST * (left - 1), _USUAL)
        out.append(_CHARACTER[length])
        bits -= length
        left -= 1
    return bytes(out) + bytes(map(_CHARACTER.__getitem__, long))
