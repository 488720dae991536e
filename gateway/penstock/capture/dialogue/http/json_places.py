"""Locate a decoder's complaint in a JSON text by the byte, or by the path, that it names."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["place_of"]

_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)")
_PATH: Final = re.compile(r"at `\$([^`]*)`|\bin (records\[[^ ]*)$")
_STEP: Final = re.compile(r"\[([0-9]+)\]|\.?([^.\[\]]+)")
_BLANK: Final = re.compile(rb"[ \t\r\n,:]*")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PLAIN: Final = re.compile(rb"[^\s,\]}]+")
_NESTED: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A string without an end is one token up to the end of the text: each of its quotes would be tried otherwise."""
_TRUNCATED: Final = "Input data was truncated"


def place_of(text: bytes, complaint: str) -> int:
    """Return the offset of the complaint, or 0 if it cannot be known."""
    if (byte := _BYTE.search(complaint)) is not None:
        return min(int(byte[1]), len(text))
    if _TRUNCATED in complaint:
        return len(text)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    path = _PATH.search(complaint)
    return 0 if path is None else _follow(text, path[1] if path[2] is None else path[2])


def _follow(text: bytes, path: str) -> int:
    at = _blank(text, 0)
    for match in _STEP.finditer(path):
        value_at = _element(text, at, int(match[1])) if match[1] is not None else _member(text, at, match[2].encode())
        if value_at is None:
            return at
        at = value_at
    return at


def _element(text: bytes, at: int, index: int) -> int | None:
    if text[at : at + 1] != b"[":
        return None
    at = _blank(text, at + 1)
    for _ in range(index):
        at = _blank(text, _behind(text, at))
    return at if at < len(text) else None


def _member(text: bytes, at: int, name: bytes) -> int | None:
    """Return the place of a member's value; of several with one name, the last: it is the one that counts."""
    if text[at : at + 1] != b"{":
        return None
    value_at = None
    at = _blank(text, at + 1)
    while (key := _STRING.match(text, at)) is not None:
        at = _blank(text, key.end())
        if key[0][1:-1] == name:
            value_at = at
        at = _blank(text, _behind(text, at))
    return value_at


def _blank(text: bytes, at: int) -> int:
    """Skip white space and punctuation between values."""
    match = _BLANK.match(text, at)
    return at if match is None else match.end()


def _behind(text: bytes, at: int) -> int:
    """Return the end of the value that begins at `at`."""
    first = text[at : at + 1]
    if first not in (b"{", b"["):
        match = (_STRING if first == b'"' else _PLAIN).match(text, at)
        return len(text) if match is None else match.end()
    depth = 0
    for token in _NESTED.finditer(text, at):
        if token[0][:1] != b'"':
            depth += 1 if token[0] in b"[{" else -1
            if not depth:
                return token.end()
    return len(text)
