"""Settings of a front of Durable Streams."""

from __future__ import annotations

import msgspec

from penstock.model.limits import MIB
from penstock.routing.access.clients import ClientRules
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_durable.codec import DEFAULT_TYPE
from penstock_durable.names import DurableNames

__all__ = ["DurableSettings"]


class DurableSettings(msgspec.Struct, kw_only=True):
    """Settings of one front; times in seconds, sizes in bytes."""

    names: DurableNames = msgspec.field(default_factory=lambda: DurableNames("/v1/stream/", "penstock"))
    content_type: str = DEFAULT_TYPE
    """Content type of streams that other clients created."""
    cors_origins: frozenset[str] = frozenset()
    """Origins whose pages may use the front; `*` for any."""
    hosts: frozenset[str] | None = None
    """Host names that requests may use, see `penstock.net.http.browsers`; None: any."""
    clients: ClientRules = msgspec.field(default_factory=ClientRules)
    home: str = "embedded"
    """The back whose streams have their properties under their mere names; for others the name of the back is added."""
    shared: bool = True
    """True if caches may give an answer to other clients as well, since none has to authenticate."""
    loss: LossPolicy = msgspec.field(default_factory=lambda: LossPolicy(empty_body=Loss.DROP))
    max_append_bytes: int = 1 * MIB - 8
    max_read_bytes: int = 1 * MIB
    long_poll_seconds: float = 20.0
    event_stream_seconds: float = 60.0
    heartbeat_seconds: tuple[float, float] = (5.0, 15.0)
    """Range of the random time without data after which an event stream repeats its position."""
    body_seconds: float = 60.0
    """Time for the body of a request to arrive, counted from when it is wanted."""
    sweep_seconds: float = 5.0
    """Time between two searches for streams that have expired."""
    drain_grace_seconds: float = 3.0
    """Time from the beginning of a drain to the end of reads that still wait."""
