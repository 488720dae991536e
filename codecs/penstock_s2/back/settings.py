"""Settings of a back that speaks S2."""

from __future__ import annotations

from enum import Enum

import msgspec

from penstock.core.delivery import Delivery
from penstock.model.limits import MIB
from penstock.net.http.client import HttpVersion
from penstock.wire.compression import Compression

__all__ = ["BasinStyle", "S2BackSettings"]


class BasinStyle(Enum):
    """Way to name the basin in a request (S2 fact sheet, 1.1); the value is the TOML word."""

    HEADER = "header"
    """Header `s2-basin`, as s2-lite and Penstock take it."""
    HOST = "host"
    """As the first label of the authority, `{basin}.b.s2.dev`, beside the header."""


class S2BackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a back that speaks S2; sizes in bytes, times in seconds.

    Deadlines of connections and of single answers are those of `penstock.net.upstream.UpstreamSettings`.
    """

    http: HttpVersion = HttpVersion.AUTO
    """HTTP version."""
    basin_style: BasinStyle = BasinStyle.HEADER
    basin_authority: str | None = None
    """Authority after the basin's label with `BasinStyle.HOST`, as `b.s2.dev`; None: the upstream's host and port."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """Handling of appends whose acknowledgement was lost."""
    compression: Compression = Compression.NONE
    """Compression of frames, in both directions."""
    append_inflight_bytes: int = 128 * MIB
    """Most bytes of unacknowledged appends over all streams of this back; further ones wait."""
    stream_inflight_bytes: int = 16 * MIB
    """The same for one stream, so that a slow stream leaves room for the others."""
    recover_seconds: float = 30.0
    """Time during which a lost connection is retried before appends and reads that depend on it fail."""
    backoff_seconds: tuple[float, float] = (0.1, 2.0)
    """First and longest pause between tries; each is twice the one before, less a random part."""
    watchdog_seconds: float = 20.0
    """Silence after which a read's connection counts as lost; servers send heartbeats every 5 to 15 s (2.4)."""
    linger_seconds: float = 10.0
    """Time for which an idle connection for a stream's appends is kept."""
    advised_reconnect_seconds: float = 60.0
    """Least time between two times that a server's advice to reconnect is followed (2.1)."""
    config_cache_seconds: float = 5.0
    """Time for which a stream's configuration is cached: whether it exists, and how it stamps records."""
    cached_streams: int = 10_000
    """Streams for which the first sequence numbers of the newest timestamps are remembered."""
    sse_dialect: str = "s2"
    """Dialect of server-sent events: one of `penstock_s2.codec.sse.dialects.DIALECTS`."""
