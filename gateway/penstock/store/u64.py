"""Unsigned 64-bit numbers in SQLite, whose integers are signed.

Values below 2**63 are stored as INTEGER, larger ones as BLOB of 8 bytes, big-endian. SQLite orders every integer
before every blob, and blobs by their bytes ("Datatypes In SQLite", section 4.1), so comparisons and indexes stay
right, and a person with a SQLite shell sees plain numbers. Columns that hold them have no declared type, so that
nothing is converted.
"""

from __future__ import annotations

from typing import Final

__all__ = ["from_sql", "to_sql"]

_SIGNED_MAX: Final = 2**63 - 1


def to_sql(value: int) -> int | bytes:
    """`value` as SQLite keeps it. Raises OverflowError outside 0..2**64-1."""
    return value if 0 <= value <= _SIGNED_MAX else value.to_bytes(8, "big")


def from_sql(value: int | bytes) -> int:
    """The number that `to_sql` made this of."""
    return value if isinstance(value, int) else int.from_bytes(value, "big")
