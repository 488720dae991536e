"""Java's modified UTF-8 (segment fact sheet, section 0; the draft names it, reading 14).

NUL is c0 80, and a character above U+FFFF is its two surrogates with three bytes each. Plain UTF-8, which the Rust
and Python clients send, is read as well.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["decode_text", "encode_text"]

_SUPPLEMENTARY: Final = re.compile("[\U00010000-\U0010ffff]")


def encode_text(text: str) -> bytes:
    """Modified UTF-8 of a text. Raises ValueError where it has half of a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    text.encode("utf-8")  # refuses half pairs
    paired = _SUPPLEMENTARY.sub(_surrogates, text)
    return paired.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _surrogates(match: re.Match[str]) -> str:
    pair = match[0].encode("utf-16-be")
    return chr(int.from_bytes(pair[:2], "big")) + chr(int.from_bytes(pair[2:], "big"))


def decode_text(data: bytes) -> str:
    """The text of modified or plain UTF-8. Raises ValueError for bytes that are neither."""
    if data.isascii():
        return data.decode("ascii")
    try:
        halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise ValueError(f"text that is not UTF-8 ({error.reason})") from None
