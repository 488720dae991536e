"""What an operator may choose about a back that speaks S2."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.backs.delivery import Delivery
from penstock.backs.http import HttpVersion
from penstock_codecs.compression import Compression
from penstock_codecs.limits import MIB

__all__ = ["BasinStyle", "S2BackSettings"]


class BasinStyle(Enum):
    """How a request names its basin (S2 fact sheet, 1.1); the value is the TOML word."""

    HEADER = "header"
    """Header `s2-basin`, as s2-lite and Penstock take it."""
    HOST = "host"
    """As the first label of the authority, `{basin}.b.s2.dev`, beside the header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S2BackSettings:
    """Settings of a back that speaks S2; sizes in bytes, times in seconds.

    Deadlines of connections and of single answers are those of `penstock.backs.upstream.UpstreamSettings`.
    """

    http: HttpVersion = HttpVersion.AUTO
    """Which version of HTTP is spoken."""
    basin_style: BasinStyle = BasinStyle.HEADER
    basin_authority: str | None = None
    """With `BasinStyle.HOST`: what follows the basin's label, as `b.s2.dev`; None: the upstream's host and port."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """What is done about appends whose acknowledgement was lost."""
    compression: Compression = Compression.NONE
    """What frames are compressed with, and what the server is asked to compress its own with."""
    append_inflight_bytes: int = 128 * MIB
    """Appends that are not yet acknowledged, over all streams of this back; more wait their turn."""
    stream_inflight_bytes: int = 16 * MIB
    """The same for one stream, so that a slow one leaves room for the others."""
    recover_seconds: float = 30.0
    """How long a lost connection is tried to be made good, before appends and reads that depend on it fail."""
    backoff_seconds: tuple[float, float] = (0.1, 2.0)
    """The first pause between two tries, and the longest; each is twice the one before, less a random part."""
    watchdog_seconds: float = 20.0
    """A read without any frame for so long is taken for lost; servers send heartbeats every 5 to 15 s (2.4)."""
    linger_seconds: float = 10.0
    """How long the connection for a stream's appends is kept without any."""
    advised_reconnect_seconds: float = 60.0
    """A server's advice to reconnect is followed at most once in so long (2.1)."""
    config_cache_seconds: float = 5.0
    """How long a stream's configuration is believed: whether it exists, and how it stamps records."""
    cached_streams: int = 10_000
    """Of so many streams it is remembered which number the newest timestamps began with."""
    sse_dialect: str = "s2"
    """Of server-sent events: one of `penstock_codecs.sse.dialects.DIALECTS`."""
