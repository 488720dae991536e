"""Unsigned 64-bit numbers in SQLite, whose integers are signed.

Values below 2**63 are stored as INTEGER, larger ones as BLOB of 8 bytes, big-endian. SQLite orders every integer before
every blob, and blobs by their bytes ("Datatypes In SQLite", section 4.1), so comparisons and indexes stay correct, and
a SQLite shell shows plain numbers. Columns that hold them have no declared type, so that nothing is converted.
"""

from __future__ import annotations

from typing import Final

__all__ = ["from_sql", "to_sql"]

_SIGNED_MAX: Final = 2**63 - 1


def to_sql(value: int) -> int | bytes:
    """Return `value` as it is stored in SQLite. Raises OverflowError outside 0..2**64-1."""
    return value if 0 <= value <= _SIGNED_MAX else value.to_bytes(8, "big")


def from_sql(value: int | bytes) -> int:
    """Return the number that `to_sql` converted to `value`."""
    return value if isinstance(value, int) else int.from_bytes(value, "big")
