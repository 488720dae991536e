"""How S2 spells bytes in JSON strings: header `s2-format` (S2 fact sheet, section 0 and 1.2).

Base64 is the standard alphabet with padding; non-zero pad bits are accepted (RFC 4648, 3.5 leaves the choice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import pybase64

from penstock_codecs.s2.names import invalid_header

__all__ = ["S2_FORMATS", "Format", "parse_bytes", "parse_format", "spell_bytes", "spell_exactly"]


class Format(Enum):
    """Bytes as UTF-8 text, or as base64."""

    RAW = "raw"
    BASE64 = "base64"


S2_FORMATS: Final[Mapping[str, Format]] = {
    "raw": Format.RAW,
    "json": Format.RAW,
    "base64": Format.BASE64,
    "json-binsafe": Format.BASE64,
}
"""The spellings that S2 knows."""


def parse_format(
    value: str | None, default: Format = Format.RAW, spellings: Mapping[str, Format] = S2_FORMATS
) -> Format:
    """What header `s2-format` says; `default` where it is absent. Raises BAD_HEADER for any other spelling.

    Dialects of the event stream bring their own default and spellings (`sse.dialects`).
    """
    if value is None:
        return default
    found = spellings.get(value.strip())
    if found is None:
        raise invalid_header("s2-format", f"{value!r} is not one of {', '.join(spellings)}")
    return found


# pybase64, then msgspec or orjson on str. Measured, CPU us per record of 100 B / 1 KiB / 16 KiB: decoding so
# 0.35 / 0.78 / 6.8, msgspec's own bytes 0.24 / 1.13 / 15.4; encoding so 0.32 / 0.47 / 2.0, msgspec's own
# 0.18 / 0.94 / 13.6. What is lost at 100 B is not worth a second set of shapes.
def _from_base64(text: str) -> bytes:
    return pybase64.b64decode(text, None, True)  # by position: a `partial` with keywords costs 0.1 us more


def _lossy_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


parse_bytes: Final[Mapping[Format, Callable[[str], bytes]]] = {Format.RAW: str.encode, Format.BASE64: _from_base64}
"""A JSON string's bytes; ValueError for bad base64."""

spell_bytes: Final[Mapping[Format, Callable[[bytes], str]]] = {
    Format.RAW: _lossy_text,
    Format.BASE64: pybase64.b64encode_as_string,
}
"""Bytes as a JSON string; as RAW, what is not UTF-8 becomes U+FFFD."""

spell_exactly: Final[Mapping[Format, Callable[[bytes], str]]] = {
    Format.RAW: bytes.decode,
    Format.BASE64: pybase64.b64encode_as_string,
}
"""Bytes as a JSON string that gives them back; UnicodeDecodeError where RAW cannot."""
