"""Blank secrets in JSON in place: it stays JSON, and base64 stays base64.

Any text with JSON in it will do, such as an event of an event stream. Matches outside strings and numbers are blanked
except for punctuation and spaces.
"""

from __future__ import annotations

import itertools
import re
from binascii import Error as BadBase64
from binascii import a2b_base64, b2a_base64
from bisect import bisect_right
from operator import itemgetter
from typing import Final, NamedTuple

from penstock.capture.redaction.leaves import Leaves, whole_characters
from penstock.capture.redaction.text import Edit, Span, changed, joined, stars

__all__ = ["json_edits"]

_TOKEN: Final = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"?|([^\s"\[\]{},:]++)|[\[\]{},:]|[\r\n]data:', re.DOTALL)
"""A string that is not closed goes to the end, so that no byte is looked at twice. The last is where the data of an
event goes on in the next line."""
_ESCAPE: Final = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Final = frozenset({b"true", b"false", b"null", b"data", b"event", b"id", b"retry"})
"""JSON's own, and the names of an event's fields."""
_PLAIN: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/_-]*+={0,2}")
_SPACE: Final = re.compile(rb"\s")
_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")
_NOT_FOR_URLS: Final = bytes.maketrans(b"-_", b"+/")
_TOKENS: Final = frozenset({b"access_token", b"accessToken", b"delegation_token", b"delegationToken"})
"""Members that hold a token, in every document."""


class _String(NamedTuple):
    """A string token: the place of its first byte inside the quotes, and its bytes as spelled in the text."""

    start: int
    raw: bytes


_Token = bytes | _String


def json_edits(text: bytes, leaves: Leaves, *, base64: bool = False) -> list[Edit]:
    """Return the edits of a text. `base64`: strings that can be base64 are, and stay so where they match as spelled."""
    return _Json(text, leaves, base64).read()


class _Json:
    """One text, read once from its beginning."""

    def __init__(self, text: bytes, leaves: Leaves, base64: bool) -> None:
        self._text = text
        self._leaves = leaves
        self._base64 = base64
        self._edits: list[Edit] = []
        self._outer = joined(leaves.patterns.spans(text)) if leaves.patterns else []
        self._next_outer = 0  # the first that does not end before the token at hand
        self._in_text = leaves.may_be_in(text)

    def read(self) -> list[Edit]:
        """Return the edits of the text."""
        first: _Token = b""  # the tokens before
        second = third = fourth = first
        for match in _TOKEN.finditer(self._text):
            token: _Token = match[0][:1]
            if token == b"\r" or token == b"\n":
                continue
            if token == b'"':
                token = _String(match.start(1), match[1])
                if fourth == b":" and isinstance(third, _String):
                    self._member(third, token)
                self._string(token)
            elif token == b"]":  # ["name", "value"]: how S2 spells a record's header
                if isinstance(fourth, _String) and third == b"," and isinstance(second, _String) and first == b"[":
                    self._named(second, fourth)
            elif match[2] is not None:
                self._bare(match[2], *match.span())
            first, second, third, fourth = second, third, fourth, token
        return self._edits

    # ---- what is secret by its name ------------------------------------------------------------------------------

    def _member(self, name: _String, value: _String) -> None:
        if self._leaves.tokens and _meaning(name.raw) in _TOKENS:
            self._edits.append(Edit(value.start, stars(len(value.raw))))
        else:
            self._named(name, value)

    def _named(self, name: _String, value: _String) -> None:
        if not value.raw:
            return
        if self._leaves.is_secret(_meaning(name.raw)):
            self._edits.append(Edit(value.start, stars(len(value.raw))))
            return
        coded = _decoded(name.raw)
        if coded is not None and self._leaves.is_secret(coded):  # then so is the value
            plain = _decoded(value.raw)
            if plain is None:
                self._edits.append(Edit(value.start, stars(len(value.raw))))
            else:
                self._edits += _respelled(value, 0, b2a_base64(stars(len(plain)), newline=False))

    # ---- what is secret by what it says --------------------------------------------------------------------------

    def _string(self, value: _String) -> None:
        start, raw = value
        if not self._leaves.any or not raw:
            return
        spans = self._inner(raw) if self._in_text or b"\\" in raw else []
        outer = [(first - start, last - start) for first, last in self._outer_in(start, start + len(raw))]
        spans += _whole(raw, outer) if outer else []
        plain = _decoded(raw)
        for first, last in joined(spans):
            blank = stars(last - first)
            if self._base64 and plain is not None:
                blank = re.sub(rb"[^=]", b"A", raw[first:last])
            self._edits.append(Edit(start + first, blank))
        if plain and self._leaves.may_be_in(plain):
            self._inside_base64(value, plain)

    def _outer_in(self, start: int, end: int) -> list[Span]:
        """Return matches in the document itself, as far as they are in a token. Tokens must come in order."""
        spans, outer = [], self._outer
        while self._next_outer < len(outer) and outer[self._next_outer][1] <= start:
            self._next_outer += 1
        for index in range(self._next_outer, len(outer)):
            first, last = outer[index]
            if first >= end:
                break
            spans.append((max(first, start), min(last, end)))
        return spans

    def _inner(self, raw: bytes) -> list[Span]:
        """Return matches in a string's value, as places in its spelling."""
        if b"\\" not in raw:
            return self._leaves.spans(raw, text=True)
        plain, places = _unescaped(raw)
        spans = self._leaves.spans(plain, text=True)
        return [(places[start], places[end]) for start, end in spans]

    def _inside_base64(self, value: _String, plain: bytes) -> None:
        edits = self._leaves.leaf(plain)
        blanked = changed(plain, edits)
        for start, blank in edits:  # two of them may share three bytes, which are four characters
            first, last = start // 3 * 3, -(-(start + len(blank)) // 3) * 3
            self._edits += _respelled(value, first // 3 * 4, b2a_base64(blanked[first:last], newline=False))

    def _bare(self, text: bytes, start: int, end: int) -> None:
        """Blank matches in a token that is not a string. A number stays a number: its digits become 1."""
        for first, last in self._outer_in(start, end):
            if _NUMBER.fullmatch(text):
                self._edits.append(Edit(first, re.sub(rb"[0-9]", b"1", self._text[first:last])))
            elif text not in _WORDS:
                first, last = whole_characters(self._text, first, last)
                self._edits.append(Edit(first, stars(last - first)))


def _decoded(raw: bytes) -> bytes | None:
    """Return the bytes of a base64 string of either alphabet, padded or not, on one line or several; None if it is not
    base64."""
    coded = raw if b"\\" not in raw else _SPACE.sub(b"", _meaning(raw))
    if not _BASE64.fullmatch(coded):
        return None
    digits = coded.rstrip(b"=")
    try:
        return a2b_base64(digits.translate(_NOT_FOR_URLS) + b"=" * (-len(digits) % 4))
    except BadBase64:
        return None


def _respelled(value: _String, at: int, coded: bytes) -> list[Edit]:
    """Return the edits of a base64 string that replace its digits from `at` on. A digit spelled with an escaped solidus
    cannot be changed, and stays."""
    start, raw = value
    digits = coded.rstrip(b"=")
    if b"-" in raw or b"_" in raw:
        digits = digits.translate(_FOR_URLS)
    if b"\\" not in raw:
        return [Edit(start + at, digits)]
    plain, places = _unescaped(raw)
    spelled = [place for place, byte in zip(_pairs(places), plain, strict=True) if not _SPACE.match(bytes((byte,)))]
    edits = []
    for (first, last), digit in zip(spelled[at:], digits, strict=False):
        if last - first == 1:
            edits.append(Edit(start + first, bytes((digit,))))
        elif last - first > 2:
            edits.append(Edit(start + first, b"\\u%04x" % digit))
    return edits


def _pairs(places: list[int]) -> list[Span]:
    return list(itertools.pairwise(places))


def _meaning(raw: bytes) -> bytes:
    """Return a string's value."""
    return _unescaped(raw)[0] if b"\\" in raw else raw


def _unescaped(raw: bytes) -> tuple[bytes, list[int]]:
    """Return a string's value, and the place in its spelling of each byte and of the end."""
    plain, places, at = bytearray(), list[int](), 0
    for escape in _ESCAPE.finditer(raw):
        plain += raw[at : escape.start()]
        places += range(at, escape.start())
        meant = _meant(escape)
        plain += meant
        places += [escape.start()] * len(meant)
        at = escape.end()
    plain += raw[at:]
    places += range(at, len(raw) + 1)
    return bytes(plain), places


def _meant(escape: re.Match[bytes]) -> bytes:
    if escape[4] is not None:
        return _PLAIN.get(escape[4], escape[4])
    if escape[3] is not None:
        return chr(int(escape[3], 16)).encode("utf-8", "surrogatepass")
    return chr(0x10000 + ((int(escape[1], 16) & 0x3FF) << 10) + (int(escape[2], 16) & 0x3FF)).encode()


def _whole(raw: bytes, spans: list[Span]) -> list[Span]:
    """Return the escapes and characters that these stretches of a string's spelling touch."""
    escapes = [escape.span() for escape in _ESCAPE.finditer(raw)] if b"\\" in raw else []
    out = []
    for start, end in spans:
        start, end = whole_characters(raw, start, end)
        for index in range(bisect_right(escapes, start, key=itemgetter(1)), len(escapes)):
            first, last = escapes[index]
            if first >= end:
                break
            start, end = min(start, first), max(end, last)
        out.append((start, end))
    return out
