"""Blank secret values of HTTP/2 header blocks in place (RFC 7541).

A blanked value has the same length on the wire and decoded as the original, so that both ends' dynamic tables keep
their sizes, and later references find the blanked value. Huffman-coded values are replaced by characters whose codes
have as many bits in all: as many `*` as possible, then shorter ones, `0`.

Integers, Huffman codes and the dynamic table are those of `hpack`. Its decoder is not used: it does not tell where on
the wire a string stands, and it ends at an entry of the table that was sent before the recording began.
"""

from __future__ import annotations

from typing import Final

from hpack.exceptions import HPACKDecodingError
from hpack.hpack import decode_integer
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.text import Edit, Span, joined, stars

__all__ = ["UNKNOWN_NAME", "filler", "redact_block"]

UNKNOWN_NAME: Final = b""
"""The name of a header that is unknown, since it was sent before the recording began."""
_MOST_TABLE: Final = 64 * 1024
"""Largest dynamic table that is kept, in the bytes of RFC 7541, 4.1. What a larger one holds has no name here."""
_LONGEST_INTEGER: Final = 6
_STATIC: Final = HeaderTable.STATIC_TABLE
_encoder: Final = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
_BITS: Final = tuple(REQUEST_CODES_LENGTH[:256])
_SHORTEST: Final = min(_BITS)
_USUAL: Final = 8
"""All lengths from the shortest to this one exist; nearly all that is printable has one of them."""


class _Reader:
    """Reader of a header block from its beginning. Raises HPACKDecodingError."""

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.at = 0

    def integer(self, bits: int) -> int:
        """Read an integer (RFC 7541, 5.1)."""
        most = (1 << bits) - 1
        value = self.block[self.at] & most if self.at < len(self.block) else most
        size = 1
        if value == most:
            value, size = decode_integer(self.block[self.at : self.at + _LONGEST_INTEGER], bits)
        self.at += size
        return value

    def string(self) -> tuple[bytes, int, bool]:
        """Read a string literal (RFC 7541, 5.2): return it decoded, the place of its first byte, and whether it is
        Huffman-coded."""
        coded = self.block[self.at : self.at + 1] >= b"\x80"
        size = self.integer(7)
        start, self.at = self.at, self.at + size
        if self.at > len(self.block):
            raise HPACKDecodingError("a string is cut short")
        raw = self.block[start : self.at]
        return (decode_huffman(raw) if coded else raw), start, coded


def redact_block(block: bytes, table: HeaderTable, secrets: Secrets) -> tuple[list[Edit], dict[bytes, bytes]]:
    """Return the edits of a header block, and the values of `Secrets.wanted` headers in it; update `table`, that of its
    sender.

    A table that is not known from the connection's beginning may lack entries: headers that refer to these have
    UNKNOWN_NAME. Indices count from the newest entry, so all entries added since are found. Raises HPACKDecodingError.
    """
    reader = _Reader(block)
    edits: list[Edit] = []
    fields: dict[bytes, bytes] = {}
    wanted, end = secrets.wanted, len(block)
    while reader.at < end:
        first = block[reader.at]
        if first & 0xE0 == 0x20:
            table.maxsize = min(reader.integer(5), _MOST_TABLE)
            continue
        if first & 0x80:
            name, value = _entry(table, reader.integer(7))
        else:
            name, value = _literal(reader, table, secrets, edits)
        if name in wanted or name == UNKNOWN_NAME:
            fields[name] = value if fields.get(name, value) == value else fields[name] + b", " + value
    return edits, fields


def _entry(table: HeaderTable, index: int) -> tuple[bytes, bytes]:
    if index == 0:
        raise HPACKDecodingError("no entry has index 0")
    if index <= len(_STATIC):
        return _STATIC[index - 1]
    index -= len(_STATIC) + 1
    return table.dynamic_entries[index] if index < len(table.dynamic_entries) else (UNKNOWN_NAME, b"")


def _literal(reader: _Reader, table: HeaderTable, secrets: Secrets, edits: list[Edit]) -> tuple[bytes, bytes]:
    """RFC 7541, 6.2: with a name by index or as a string, and to be remembered or not."""
    indexing = bool(reader.block[reader.at] & 0x40)
    index = reader.integer(6 if indexing else 4)
    if index:
        name = _entry(table, index)[0]
    else:
        name, start, coded = reader.string()
        if spans := joined(secrets.in_name(name)):
            edits.append(Edit(start, _blanked(name, spans, coded)))
        name = name.lower()
    value, start, coded = reader.string()
    spans = joined(secrets.in_header(name.strip(), value))
    if spans:
        edits.append(Edit(start, _blanked(value, spans, coded)))
    if indexing:
        table.add(name, value)
    return name, value


def _blanked(value: bytes, spans: list[Span], coded: bool) -> bytes:
    out = bytearray(value)
    for start, end in spans:
        out[start:end] = filler(value[start:end]) if coded else stars(end - start)
    return _encoder.encode(bytes(out)) if coded else bytes(out)


# ---- Huffman codes -------------------------------------------------------------------------------------------


def _characters() -> dict[int, int]:
    """Return a character for each length of codes: `*` has 8 bits, `0` has 5; those that a name may have, if any."""
    by_bits: dict[int, int] = {}
    for character in b"*0%x!+#$^`\\", *range(256):
        for byte in character if isinstance(character, bytes) else (character,):
            by_bits.setdefault(_BITS[byte], byte)
    return by_bits


_CHARACTER: Final = _characters()


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
