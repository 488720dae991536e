"""Settings of the byte view of another server's streams, and bounds of the memory and connections it takes."""

from __future__ import annotations

import msgspec

from penstock.model.byte_layout import Layout
from penstock.model.limits import MIB

__all__ = ["BytesSettings"]


class BytesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one back."""

    envelopes: Layout = Layout.PLAIN
    """Bits that select the records that appear in a stream's bytes as envelopes; see `StoreSettings.envelopes`. Records
    that were counted under other bits keep the bytes that they had."""
    max_read_sessions: int = 64
    """Most read sessions open at the back at once for byte reads; readers at the same place share one."""
    read_ahead_bytes: int = 1 * MIB
    """Bytes that such a session fetches beyond those requested; each keeps about three times this and the largest read
    in memory."""
    append_inflight_bytes: int = 16 * MIB
    """Most bytes of one stream's appends that are handed over and not yet acknowledged; one append always fits."""
    max_merge_bytes: int = 64 * MIB
    """Most bytes of all sources of one merge together."""
    cached_streams: int = 1000
    """Most unused streams that are kept in memory."""
    idle_seconds: float = 2.0
    """Seconds after which an unused session at the back ends. Each holds a connection if the back uses HTTP/1.1."""
    mark_every_bytes: int = 256 * 1024
    """Distance between marks of the index, in bytes of the stream: a read from the middle skips at most this and one
    batch."""
