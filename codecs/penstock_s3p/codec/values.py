"""Values in decimal digits: identifiers that are sent, and values of options (S3P 0.2.0, sections 5 and 8)."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.records import U64_MAX, RecordId

__all__ = ["parse_integer", "parse_ms", "spell_id"]

_INTEGER: Final = re.compile(rb"(-?)([0-9]+)")
_ENOUGH_DIGITS: Final = 21
"""More digits than any number used here has, leading zeros aside. Python refuses to convert more than 4,300."""


def parse_ms(text: bytes) -> int | None:
    """Parse `<ms>` alone, unsigned 64-bit, as in option ID. None if malformed."""
    if not text.isdigit():
        return None
    value = _number(text)
    return value if value <= U64_MAX else None


def parse_integer(text: bytes) -> int | None:
    """Parse an integer of any size, possibly negative, as in COUNT and BLOCK (item 28). None if malformed.

    A number outside the unsigned 64-bit range gives some other number outside of it.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    return -_number(match[2]) if match[1] else _number(match[2])


def _number(digits: bytes) -> int:
    """Return the digits' value; for more than 64 bits, some other value of more than 64 bits."""
    return int(digits.lstrip(b"0")[:_ENOUGH_DIGITS] or b"0")


def spell_id(record_id: RecordId) -> bytes:
    """Return the canonical spelling."""
    return b"%d-%d" % record_id
