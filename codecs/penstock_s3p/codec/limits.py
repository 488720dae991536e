"""Limits of S3P (specification 0.2.0, section 11; defaults of the reference server, fact sheet 1)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.model.limits import MIB

S3P_MAX_HEADER_LINE: Final = 32
"""Longest `*<n>` or `$<n>` line with its CRLF; bounds the wait for a missing CRLF (fact sheet 3, items 4 and 6)."""


class S3PLimits(Struct, frozen=True):
    """Limits of an S3P server; the defaults are the reference server's."""

    max_name_bytes: int = 256
    max_records_per_append: int = 1000
    max_record_bytes: int = 1 * MIB - 8
    """A record of this size has the largest metered size that S2 allows, so S2's readers can be given it."""
    max_append_bytes: int = 1 * MIB
    """Sum of the record bytes of one APPEND, without framing (fact sheet 3, item 37)."""
    default_count: int = 1000
    max_count: int = 1000
    max_block_ms: int = 10_000
    max_option_pairs: int = 64
    """The specification sets none; without one an options array is an unbounded buffer (item 29)."""
    max_option_bytes: int = 256
    """Longest command name, option key or option value."""
