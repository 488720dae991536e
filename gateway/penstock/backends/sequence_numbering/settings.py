"""Settings of a server whose records the gateway numbers."""

from __future__ import annotations

import msgspec

from penstock.model.limits import MIB

__all__ = ["IndexedSettings"]


class IndexedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one `IndexedBack`; sizes in bytes, times in seconds."""

    create_streams: bool = False
    """Create a missing stream on append, if the client allows that."""
    exclusive: bool = False
    """True if only this gateway appends to and trims the server's streams. Then acknowledged appends are numbered
    without a scan for records before them, and the index is written only for new marks and gateway timestamps."""
    follow_seconds: float = 10.0
    """Seconds that one scan waits at a tail before the next begins."""
    recent_bytes: int = 4 * MIB
    """Bytes of the newest records of a followed stream that are kept in memory for all its followers."""
    recent_total_bytes: int = 64 * MIB
    """The same of all streams together; beyond it, the streams without new records for longest keep none."""
    scan_bytes: int = 1 * MIB
    """Approximate bytes of one scan."""
    cached_streams: int = 1000
    """Most unused streams whose positions are kept in memory."""
    read_ahead: int = 64
    """Most reads, over all streams, that may have fetched a batch ahead of their clients."""
    recover_seconds: float = 10.0
    """Seconds for which a lost server is retried before clients that have begun to read get the error."""
    settle_seconds: float = 5.0
    """Seconds that a scan that met unnumbered records waits for appends in flight, whose timestamps it must know."""
