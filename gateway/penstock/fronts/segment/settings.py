"""What an operator may set of a segment front."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.access.delegation import Delegation
from penstock.routing.segments import SegmentNames
from penstock_codecs.features import Feature
from penstock_codecs.limits import MIB, SegmentLimits

__all__ = ["SegmentSettings"]


@dataclass(slots=True, kw_only=True)
class SegmentSettings:
    """Settings of one segment front; sizes in bytes, times in seconds."""

    names: SegmentNames = field(default_factory=SegmentNames)
    """How segments' names map to streams."""
    limits: SegmentLimits = field(default_factory=SegmentLimits)
    """What one connection may cost."""
    refuse: frozenset[Feature] = frozenset({Feature.HEADERS})
    """Features of records that fail a read; the others are left out or enveloped, as the record's layout has it."""
    max_read_bytes: int = 2 * MIB
    """Most bytes of one SegmentRead, whatever its client suggests (segment fact sheet, 1.1)."""
    read_hold_seconds: float = 20.0
    """How long a read at the tail waits for bytes before it is answered without any (1.5)."""
    idle_timeout_seconds: float = 3600.0
    """A connection that sends nothing for so long, while nothing is under way for it, is closed."""
    send_timeout_seconds: float = 30.0
    """A connection that takes less than 256 KiB of what waits for it in so long is closed."""
    delegation: Delegation | None = None
    """What checks the delegation tokens that all requests must have; None: none are looked at."""
