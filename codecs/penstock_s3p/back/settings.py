"""Settings of a back that speaks S3P."""

from __future__ import annotations

import msgspec

from penstock.core.delivery import Delivery
from penstock.model.limits import MIB
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.names import FixedBasin, S3PNames

__all__ = ["S3PBackSettings"]


def _refuse_all() -> LossPolicy:
    return LossPolicy(headers=Loss.REFUSE, empty_body=Loss.REFUSE, command_records=Loss.REFUSE)


class S3PBackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one S3P server; sizes in bytes, times in seconds.

    Raises ValueError for a delivery that S3P cannot promise, and if `loss` drops records that an acknowledgement
    counts.
    """

    names: S3PNames = msgspec.field(default_factory=FixedBasin)
    """Mapping of streams to the server's names."""
    limits: S3PLimits = msgspec.field(default_factory=S3PLimits)
    """The server's limits. Anything larger is refused before it is sent."""
    loss: LossPolicy = msgspec.field(default_factory=_refuse_all)
    """Policy for appending what a body cannot carry; envelopes are unwrapped on reading."""
    delivery: Delivery = Delivery.REFUSE
    """Promise about appends whose acknowledgement was lost."""
    split_appends: bool = False
    """True to send a batch that is too large for one APPEND as several, which is not atomic; False to refuse it."""
    trim_keeps_last: bool = False
    """True if a trim of all records keeps the last one at the server, hidden from clients of the gateway: for servers
    that otherwise forget the last identifier, as the Go reference does."""
    append_inflight_bytes: int = 4 * MIB
    """Most bytes of one session's unacknowledged appends; a single append may be larger."""
    max_reply_bytes: int = 16 * MIB
    """Most bytes of one READ's reply. If a server has more, fewer records are requested."""
    recover_seconds: float = 10.0
    """Time for which a lost server is retried before waiting operations fail."""

    def __post_init__(self) -> None:
        if self.delivery is Delivery.EXACTLY_ONCE:
            raise ValueError(
                "S3P has neither conditions nor writers, so the gateway cannot know whether an append "
                'was stored if its acknowledgement is lost: delivery must be "at-least-once" or "refuse"'
            )
        if Loss.DROP in (self.loss.empty_body, self.loss.command_records):
            raise ValueError("records that an acknowledgement counts cannot be dropped")
