"""The settings of a controller."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from penstock.routing.access.passwords import Passwords
from penstock_pravega.segment.delegation import Delegation
from penstock_pravega.segment.names import SegmentNames

__all__ = ["Advertised", "ControllerSettings", "ScalingSettings", "SegmentsMode"]


class SegmentsMode(Enum):
    """The treatment of streams that are created with several segments; the values are the words of the
    configuration."""

    SEPARATE = "separate"
    """Make each segment a stream of its own; order holds only within it."""
    SINGLE = "single"
    """Create the stream with one segment instead: one order, for the clients of all protocols."""
    REFUSE = "refuse"
    """Refuse to create the stream."""


class Advertised(NamedTuple):
    """The address of the segment listener for clients. `host` None: the one through which they reached the
    controller."""

    host: str | None
    port: int


class ScalingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of scaling by rate, in seconds; see `penstock_pravega.controller.controller.autoscaling`."""

    sample_seconds: float = 5.0
    cooldown_seconds: float = 600.0
    burst_seconds: float = 120.0
    busy_seconds: float = 300.0
    steady_seconds: float = 600.0
    idle_seconds: float = 1200.0


class ControllerSettings(msgspec.Struct, kw_only=True):
    """Settings of one controller."""

    names: SegmentNames = msgspec.field(default_factory=SegmentNames)
    """The mapping of segments' names to streams, which is the segment listener's."""
    segments: SegmentsMode = SegmentsMode.SEPARATE
    advertise: Callable[[], Advertised]
    """Called for each answer, since the system may choose the listener's port when it is bound."""
    retention_seconds: float = 1800.0
    """Seconds between the turns at which streams are truncated by their retention policies."""
    watermark_seconds: float = 10.0
    """Seconds between the turns at which watermarks are made of the times that writers note."""
    scaling: ScalingSettings = ScalingSettings()
    """The rates at which streams are scaled."""
    delegation: Delegation | None = None
    """Issues the delegation tokens that the segment listener requires, and clients need a password. None: neither
    tokens nor passwords are checked."""
    passwords: Passwords | None = None
    """The passwords of clients."""
    local: bool = False
    """True if all clients on this machine are served, and no others: then REST refuses requests by a host's name, which
    web pages with DNS rebinding send."""
