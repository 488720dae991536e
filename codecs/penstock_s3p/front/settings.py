"""Settings of an S3P front."""

from __future__ import annotations

import msgspec

from penstock.model.limits import MIB
from penstock.model.streams import StreamConfig
from penstock.routing.loss.loss import LossPolicy
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.names import FixedBasin, S3PNames

__all__ = ["S3PSettings"]


class S3PSettings(msgspec.Struct, kw_only=True):
    """Settings of one S3P front; sizes in bytes, times in seconds."""

    names: S3PNames = msgspec.field(default_factory=FixedBasin)
    """Mapping of clients' names to streams."""
    limits: S3PLimits = msgspec.field(default_factory=S3PLimits)
    loss: LossPolicy = msgspec.field(default_factory=LossPolicy)
    """Policy for records that S3P cannot carry."""
    create_config: StreamConfig = StreamConfig()
    """Configuration layer of streams that CREATE makes."""
    max_read_bytes: int = 2 * MIB
    """Most metered bytes of records in one READ reply, whatever COUNT allows (S3P fact sheet 3, item 33)."""
    idle_timeout_seconds: float = 300.0
    """Silence while the next command is awaited, after which a connection is closed without a reply."""
    send_timeout_seconds: float = 30.0
    """Time in which a connection must receive each 256 KiB of its replies, else it is closed."""
