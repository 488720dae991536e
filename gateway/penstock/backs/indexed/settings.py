"""What an operator may set of a server whose records are numbered here."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_codecs.limits import MIB

__all__ = ["IndexedSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedSettings:
    """Settings of one `IndexedBack`; sizes in bytes, times in seconds."""

    create_streams: bool = False
    """Whether an append to a stream that is missing creates it, where its client allows that."""
    exclusive: bool = False
    """Whether this gateway alone appends to and trims the server's streams. Then nothing is looked for before an append
    that was acknowledged, and the index is written every so many records only."""
    follow_seconds: float = 10.0
    """How long one scan waits at a tail before the next begins."""
    recent_bytes: int = 4 * MIB
    """The newest records of a stream that somebody follows, kept for all who do."""
    recent_total_bytes: int = 64 * MIB
    """The same of all streams together; those that had news longest ago are not kept then."""
    scan_bytes: int = 1 * MIB
    """About so much is read from the server at once."""
    cached_streams: int = 1000
    """How many streams' positions are kept in memory that nobody uses just now."""
    read_ahead: int = 64
    """How many reads may have fetched a batch more than their clients took, over all streams."""
    settle_seconds: float = 5.0
    """How long a scan that met records of unknown origin waits for appends under way, whose timestamps it must know."""
