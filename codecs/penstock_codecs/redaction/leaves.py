"""Pieces of plain content: bodies of records, names and values of headers, strings. What in them is secret."""

from __future__ import annotations

from typing import Final

from penstock_codecs.envelope import MARK
from penstock_codecs.redaction.secrets import Secrets
from penstock_codecs.redaction.text import Edit, Span, joined, stars

__all__ = ["Leaves", "whole_characters"]

_ENVELOPE: Final = MARK + b"\x01"
_HEADERS: Final = 0x12
"""The tag of AppendRecord.headers, which come first in an envelope."""


class Leaves:
    """What the rules say of content, wherever it stands."""

    def __init__(self, secrets: Secrets) -> None:
        self.tokens = secrets.tokens
        self.patterns = secrets.patterns
        self._record_headers = secrets.record_headers

    @property
    def any(self) -> bool:
        """Whether anything can be secret in a leaf."""
        return bool(self.patterns or self._record_headers)

    def may_be_in(self, data: bytes) -> bool:
        """Whether anything that is secret may stand in `data` as it is spelled there.

        Looked at first, since most messages have nothing secret: for 1000 records of 100 B this takes 0.1 ms, and to
        look at each by itself 8 ms.
        """
        return self.patterns.may_match_in(data) or any(name in data for name in self._record_headers)

    def is_secret(self, name: bytes) -> bool:
        """Whether the values of record headers of this name are."""
        return name in self._record_headers

    def leaf(self, data: bytes, base: int = 0, *, text: bool = False) -> list[Edit]:
        """What to change in `data`, which begins at `base`. `text`: it is UTF-8, and must stay so."""
        return [Edit(base + start, stars(end - start)) for start, end in self.spans(data, text=text)]

    def spans(self, data: bytes, *, text: bool = False) -> list[Span]:
        """Matches, and values of secret headers in envelopes; joined, in order."""
        found = self.patterns.spans(data) if self.patterns else []
        if self._record_headers and _ENVELOPE in data:
            found += self.in_envelopes(data)
        if text:
            found = [whole_characters(data, *span) for span in found]
        return joined(found)

    def in_envelopes(self, data: bytes) -> list[Span]:
        """Values of secret headers in envelopes that begin anywhere; one that is cut ends with `data`."""
        found: list[Span] = []
        at = data.find(_ENVELOPE)
        while at >= 0:
            at += len(_ENVELOPE)
            while data[at : at + 1] == bytes((_HEADERS,)):
                start, size = _length(data, at + 1)
                end = min(start + size, len(data))
                found += self._in_header(data, start, end)
                at = end
            at = data.find(_ENVELOPE, at)
        return found

    def _in_header(self, data: bytes, at: int, end: int) -> list[Span]:
        name, found = b"", []
        while at < end:
            number = data[at] >> 3
            at, size = _length(data, at + 1)
            if number == 1:
                name = data[at : at + size]
            elif self.is_secret(name):
                found.append((at, min(at + size, end)))
            at += size
        return found


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length, and where what has it begins; what is cut short has none."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
    return at, value


def whole_characters(data: bytes, start: int, end: int) -> Span:
    """The characters of UTF-8 of which any byte stands in a stretch."""
    for _ in range(3):
        if 0 < start < len(data) and data[start] & 0xC0 == 0x80:
            start -= 1
        if end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return start, end
