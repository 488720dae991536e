"""What an operator may set of an S3P front."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.policy.loss import LossPolicy
from penstock.routing.names import FixedBasin, S3PNames
from penstock_codecs.limits import MIB, S3PLimits
from penstock_codecs.streams import StreamConfig

__all__ = ["S3PSettings"]


@dataclass(slots=True, kw_only=True)
class S3PSettings:
    """Settings of one S3P front; sizes in bytes, times in seconds."""

    names: S3PNames = field(default_factory=FixedBasin)
    """How clients' names map to streams."""
    limits: S3PLimits = field(default_factory=S3PLimits)
    loss: LossPolicy = field(default_factory=LossPolicy)
    """What is done with records that S3P cannot carry."""
    create_config: StreamConfig = StreamConfig()
    """The layer of configuration that CREATE gives a stream."""
    max_read_bytes: int = 2 * MIB
    """Most metered bytes of records in one READ reply, whatever COUNT allows (S3P fact sheet 3, item 33)."""
    idle_timeout_seconds: float = 300.0
    """A connection that sends nothing for so long while its next command is awaited is closed without a reply."""
    send_timeout_seconds: float = 30.0
    """A connection that takes less than 256 KiB of what waits for it in so long is closed."""
