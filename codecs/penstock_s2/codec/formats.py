"""Bytes in JSON strings, as header `s2-format` selects (S2 fact sheet, section 0 and 1.2).

Base64 is the standard alphabet with padding; non-zero pad bits are accepted (RFC 4648, 3.5 leaves the choice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import pybase64

from penstock_s2.codec.names import invalid_header

__all__ = ["S2_FORMATS", "BytesFormat", "parse_bytes", "parse_format", "spell_bytes", "spell_exactly"]


class BytesFormat(Enum):
    """Encoding of bytes in JSON: as UTF-8 text, or as base64."""

    RAW = "raw"
    BASE64 = "base64"


S2_FORMATS: Final[Mapping[str, BytesFormat]] = {
    "raw": BytesFormat.RAW,
    "json": BytesFormat.RAW,
    "base64": BytesFormat.BASE64,
    "json-binsafe": BytesFormat.BASE64,
}
"""S2's values of the header."""


def parse_format(
    value: str | None, default: BytesFormat = BytesFormat.RAW, spellings: Mapping[str, BytesFormat] = S2_FORMATS
) -> BytesFormat:
    """Return the format that header `s2-format` names; `default` if it is absent. Raises BAD_HEADER for an unknown
    value.

    Dialects of the event stream have their own default and values (`sse.dialects`).
    """
    if value is None:
        return default
    record_format = spellings.get(value.strip())
    if record_format is None:
        raise invalid_header("s2-format", f"{value!r} is not one of {', '.join(spellings)}")
    return record_format


# pybase64, then msgspec or orjson on str. Measured, CPU us per record of 100 B / 1 KiB / 16 KiB: decoding so 0.35 /
# 0.78 / 6.8, msgspec's own bytes 0.24 / 1.13 / 15.4; encoding so 0.32 / 0.47 / 2.0, msgspec's own 0.18 / 0.94 / 13.6.
# The loss at 100 B is not worth a second set of shapes.
def _from_base64(text: str) -> bytes:
    return pybase64.b64decode(text, None, True)  # by position: a `partial` with keywords costs 0.1 us more


def _lossy_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


parse_bytes: Final[Mapping[BytesFormat, Callable[[str], bytes]]] = {
    BytesFormat.RAW: str.encode,
    BytesFormat.BASE64: _from_base64,
}
"""Functions that convert a JSON string to bytes; ValueError for bad base64."""

spell_bytes: Final[Mapping[BytesFormat, Callable[[bytes], str]]] = {
    BytesFormat.RAW: _lossy_text,
    BytesFormat.BASE64: pybase64.b64encode_as_string,
}
"""Functions that convert bytes to a JSON string; with RAW, invalid UTF-8 becomes U+FFFD."""

spell_exactly: Final[Mapping[BytesFormat, Callable[[bytes], str]]] = {
    BytesFormat.RAW: bytes.decode,
    BytesFormat.BASE64: pybase64.b64encode_as_string,
}
"""Functions that convert bytes to a JSON string without loss; UnicodeDecodeError if RAW cannot."""
