"""Settings of an S2 front."""

from __future__ import annotations

import msgspec

from penstock.routing.access.clients import ClientRules
from penstock_s2.codec.limits import S2_HEARTBEAT_SECONDS
from penstock_s2.codec.locations import DEFAULT_LOCATION

__all__ = ["S2Settings"]


class S2Settings(msgspec.Struct):
    """Settings of one S2 front; times in seconds."""

    default_basin: str | None = None
    """The basin of requests that name none."""
    location: str = DEFAULT_LOCATION
    """The name of the gateway's location, in which all basins are."""
    basin_host_suffixes: tuple[str, ...] = (".localhost",)
    """A host `<basin><suffix>` names its basin."""
    cors_origins: frozenset[str] = frozenset()
    """Origins whose pages may use the front; `*` for any."""
    hosts: frozenset[str] | None = None
    """Host names that requests may use, see `penstock.net.http.browsers`; None: any."""
    clients: ClientRules = msgspec.field(default_factory=ClientRules)
    sse_dialect: str = "s2"
    """Dialect of server-sent events: "s2" (what clients speak) or "seed"."""
    event_stream_seconds: float | None = None
    """Time after which an event stream ends and its client reconnects; None: the dialect's."""
    heartbeat_seconds: tuple[float, float] = S2_HEARTBEAT_SECONDS
    """Range of the random time without records after which a heartbeat is sent."""
    compress: bool = True
    """True to honour Accept-Encoding."""
    body_seconds: float = 60.0
    """Time for the body of a unary request to arrive, counted from when it is wanted."""
    drain_grace_seconds: float = 3.0
    """Time from the advice to reconnect to the end of sessions that are still open."""
