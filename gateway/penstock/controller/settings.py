"""What an operator may set of a controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from penstock.access.delegation import Delegation
from penstock.access.passwords import Passwords
from penstock.routing.segments import SegmentNames

__all__ = ["Advertised", "ControllerSettings", "SegmentsMode"]


class SegmentsMode(Enum):
    """What is done with a stream that is to have several segments; the values are those of the configuration."""

    SEPARATE = "separate"
    """Each segment is a stream of its own, whose order holds within it only."""
    SINGLE = "single"
    """It gets one segment all the same: one order, for the clients of all protocols."""
    REFUSE = "refuse"
    """It is not created."""


class Advertised(NamedTuple):
    """Where clients are told to reach the segment listener. `host` None: the host by which they reached us."""

    host: str | None
    port: int


@dataclass(slots=True, kw_only=True)
class ControllerSettings:
    """Settings of one controller."""

    names: SegmentNames = field(default_factory=SegmentNames)
    """How segments' names map to streams; the segment listener's."""
    segments: SegmentsMode = SegmentsMode.SEPARATE
    advertise: Callable[[], Advertised]
    """Asked for each answer, since the listener's port may be chosen by the system when it is bound."""
    delegation: Delegation | None = None
    """What issues the delegation tokens that the segment listener wants; with it clients need a password. None: neither
    is looked at."""
    passwords: Passwords | None = None
    """Whose they are."""
