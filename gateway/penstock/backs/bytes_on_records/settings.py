"""What an operator may change about streams of other servers as bytes, and the bounds of what they cost here."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_codecs.byte_layout import Layout
from penstock_codecs.limits import MIB

__all__ = ["BytesSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesSettings:
    """Of one back."""

    envelopes: Layout = Layout.PLAIN
    """The bits that say which records stand in a stream's bytes as envelopes; as `StoreSettings.envelopes`. What was
    counted under others before keeps the bytes that it had."""
    max_read_sessions: int = 64
    """Most reads that are open at the back at once for readers of bytes; readers at the same place share one."""
    read_ahead_bytes: int = 1 * MIB
    """How much such a read fetches beyond what somebody asked for; about three times this and the largest read are in
    memory for each."""
    append_inflight_bytes: int = 16 * MIB
    """Most bytes of one stream's appends that are handed over and not yet acknowledged; one append always fits."""
    max_merge_bytes: int = 64 * MIB
    """Most bytes of the sources of one merge together."""
    cached_streams: int = 1000
    """How many streams are kept in memory that nobody uses just now."""
    idle_seconds: float = 2.0
    """Sessions at the back that nobody uses end after this. Each holds a connection where that is HTTP/1.1."""
    mark_every_bytes: int = 256 * 1024
    """How far apart the index's marks are, in bytes of the stream: what a read from the middle has to skip, at most,
    beside one batch."""
