"""Recognize secrets in bytes of an unknown protocol: by the bytes before them, and by their lengths."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.capture.redaction.secrets import Secrets

__all__ = ["Trigger", "TriggerSearch", "Triggers", "triggers_of"]

_JSON_TOKENS: Final = (b"access_token", b"accessToken", b"delegation_token", b"delegationToken")
_BLOCK: Final = re.compile(
    rb"(?s)(?<=\x00..)[\x01\x05\x09][\x00\x01\x04\x05\x08\x09\x0c\x0d\x20\x21\x24\x25\x28\x29\x2c\x2d]\x00..."
)
"""The end of a head of HTTP/2 before a header block of less than 64 KiB, on one of the first 16 million streams. It
begins with the frame's type, since there are fewer of these than zeros."""
_AROUND: Final = 64
"""Most bytes around the name in the text before a secret."""


class Trigger(NamedTuple):
    """A secret begins at `at`. `kind`: `line`, `param`, `user`, `json`, `pair`, `field` or `block`; the last two have
    `left` bytes."""

    at: int
    kind: str
    left: int = 0


class Triggers:
    """Finder of the triggers that the rules define."""

    def __init__(self, secrets: Secrets, *, http2: bool) -> None:
        names = (*secrets.headers, *secrets.parameters, *secrets.record_headers, *_JSON_TOKENS)
        self.reach = _AROUND + 3 * max(map(len, names))
        """Most bytes before a secret that reveal it."""
        self._http2 = http2 and bool(secrets.headers)
        self._words = sorted({word.lower() for word in _words(secrets)})
        kinds = list(_kinds(secrets))
        self._pattern = re.compile(b"|".join(kinds)) if kinds else None

    def may_be_in(self, text: bytes) -> bool:
        """Return whether the text may hold any of the words.

        Measured on 64 KiB: 0.1 ms, and the search itself 5 ms.
        """
        small = text.lower()
        return any(word in small for word in self._words)

    def of(self, text: bytes) -> TriggerSearch:
        """Return the triggers in a text."""
        return TriggerSearch(text, self._pattern if self.may_be_in(text) else None, _BLOCK if self._http2 else None)


@lru_cache(maxsize=8)
def triggers_of(secrets: Secrets, *, http2: bool) -> Triggers:
    """Return the triggers of prepared rules: to compile them takes 0.4 ms, and each connection that ends needs them."""
    return Triggers(secrets, http2=http2)


class TriggerSearch:
    """Triggers in one text, to be asked for in order. Later ones found on the way are remembered, so that the text is
    searched once for each kind."""

    def __init__(self, text: bytes, words: re.Pattern[bytes] | None, blocks: re.Pattern[bytes] | None) -> None:
        self._text = text
        self._words = words
        self._blocks = blocks
        self._word: re.Match[bytes] | None = None
        self._block: re.Match[bytes] | None = None

    def after(self, at: int) -> Trigger | None:
        """Return the first trigger from `at` on."""
        if self._words is not None and (self._word is None or self._word.start() < at):
            self._word = self._words.search(self._text, at)
            self._words = self._words if self._word else None
        if self._blocks is not None and (self._block is None or self._block.start() < at):
            self._block = self._blocks.search(self._text, at)
            self._blocks = self._blocks if self._block else None
        word, block = self._word, self._block
        if block is not None and (word is None or block.end() < word.end()):
            start = block.start()
            return Trigger(block.end(), "block", int.from_bytes(self._text[start - 3 : start], "big"))
        if word is None:
            return None
        kind = word.lastgroup or ""
        return Trigger(word.end(), kind, _length(word[0]) if kind == "field" else 0)


def _words(secrets: Secrets) -> Iterator[bytes]:
    yield from secrets.headers
    yield from (name + b"=" for name in secrets.parameters)
    if secrets.parameters:
        yield b"%"  # such a name may be percent-encoded
        yield b"@"
    if secrets.tokens:
        yield from _JSON_TOKENS
    for name in secrets.record_headers:
        yield name
        yield b2a_base64(name, newline=False)


def _kinds(secrets: Secrets) -> Iterator[bytes]:
    if secrets.headers:
        yield rb"(?P<line>(?i:%s)[ \t]*:)" % _any_of(secrets.headers)
    if secrets.parameters:
        yield rb"(?P<param>[?&;#](?i:%s)=)" % b"|".join(map(_encoded_or_not, sorted(secrets.parameters)))
        yield rb'(?P<user>(?://|(?i:connect +|host[ \t]*:[ \t]*))(?=[^/?#\s"]{1,%d}@))' % _AROUND
    if secrets.tokens:
        yield rb'(?P<json>"(?:%s)"\s{0,8}:\s{0,8}")' % _any_of(_JSON_TOKENS)
    if secrets.record_headers:
        spelled = [spelling for name in secrets.record_headers for spelling in (name, b2a_base64(name, newline=False))]
        yield rb'(?P<pair>\[\s{0,8}"(?:%s)"\s{0,8},\s{0,8}")' % _any_of(spelled)
        fields = _any_of(b"\x0a" + _varint(len(name)) + name for name in secrets.record_headers)
        yield rb"(?P<field>(?:%s)\x12[\x80-\xff]{0,4}[\x00-\x7f])" % fields


def _any_of(words: Iterable[bytes]) -> bytes:
    return b"|".join(map(re.escape, sorted(words)))


def _encoded_or_not(name: bytes) -> bytes:
    """Return an expression for a name in lower case of which any characters may be percent-encoded."""
    return b"".join(
        b"(?:%b|%%%02x|%%%02x)" % (re.escape(name[at : at + 1]), byte, name.upper()[at]) for at, byte in enumerate(name)
    )


def _varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += bytes((number & 127 | 128,))
        number >>= 7
    return out + bytes((number,))


def _length(varint: bytes) -> int:
    """Return the length stated at the end of the bytes that begin a header's value in protobuf."""
    start = len(varint) - 1
    while varint[start - 1] & 128 and len(varint) - start < 5:
        start -= 1
    return sum((byte & 127) << 7 * place for place, byte in enumerate(varint[start:]))
