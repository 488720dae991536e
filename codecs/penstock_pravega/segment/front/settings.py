"""Settings of a segment front."""

from __future__ import annotations

import msgspec

from penstock.model.features import Feature
from penstock.model.limits import MIB
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.segment.delegation import Delegation
from penstock_pravega.segment.names import SegmentNames

__all__ = ["SegmentSettings"]


class SegmentSettings(msgspec.Struct, kw_only=True):
    """Settings of one segment front; sizes in bytes, times in seconds."""

    names: SegmentNames = msgspec.field(default_factory=SegmentNames)
    """Mapping of segments' names to streams."""
    numbered: bool = False
    """True if a controller directs clients here and numbers the segments (see
    `penstock_pravega.segment.front.streams`)."""
    limits: SegmentLimits = msgspec.field(default_factory=SegmentLimits)
    """Limits of one connection."""
    refuse: frozenset[Feature] = frozenset({Feature.HEADERS})
    """Features of records that fail a read; others are dropped or enveloped, as the record's layout specifies."""
    max_read_bytes: int = 2 * MIB
    """Most bytes of one SegmentRead, whatever its client suggests (segment fact sheet, 1.1)."""
    read_hold_seconds: float = 20.0
    """Time for which a read at the tail waits for bytes before it is answered without any (1.5)."""
    idle_timeout_seconds: float = 3600.0
    """Silence, with nothing in progress, after which a connection is closed."""
    send_timeout_seconds: float = 30.0
    """Time in which a connection must receive each 256 KiB of its replies, else it is closed."""
    delegation: Delegation | None = None
    """Checker of the delegation tokens that all requests must have; None: tokens are ignored."""
