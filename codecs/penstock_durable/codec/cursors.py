"""Cursors, by which caches between client and server tell requests apart (protocol, section 8.1)."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.failures import FailureCode, fail

__all__ = ["EPOCH", "INTERVAL_SECONDS", "MOST_AHEAD", "next_cursor", "parse_cursor"]

EPOCH: Final = 1_728_432_000
"""Time from which intervals are counted, in Unix seconds: 2024-10-09T00:00:00Z."""
INTERVAL_SECONDS: Final = 20
MOST_AHEAD: Final = 3600 // INTERVAL_SECONDS
"""Most intervals that a cursor is put ahead: an hour."""
_CURSOR: Final = re.compile(r"[0-9]{1,15}")


def parse_cursor(text: str | None) -> int | None:
    """Return the cursor that a client repeats, None for none. Raises BAD_QUERY."""
    if not text:
        return None
    if _CURSOR.fullmatch(text) is None:
        raise fail(FailureCode.BAD_QUERY, f"cursor: {text!r:.80} is not a cursor of this server")
    return int(text)


def next_cursor(now: float, seen: int | None, ahead: int) -> int:
    """Return the cursor of an answer: the number of the interval of `now` (Unix seconds), but always more than `seen`,
    the one that the client sent: a cache that repeated an empty answer would keep it from ever getting on.

    `ahead`: a random number from 1 to MOST_AHEAD, by how much more.
    """
    current = max(int(now - EPOCH) // INTERVAL_SECONDS, 0)
    return current if seen is None or seen < current else seen + ahead
