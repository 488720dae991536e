"""What an operator may set of a back that speaks S3P."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.backs.delivery import Delivery
from penstock.policy.loss import Loss, LossPolicy
from penstock.routing.names import FixedBasin, S3PNames
from penstock_codecs.limits import MIB, S3PLimits

__all__ = ["S3PBackSettings"]


def _refuse_all() -> LossPolicy:
    return LossPolicy(headers=Loss.REFUSE, empty_body=Loss.REFUSE, command_records=Loss.REFUSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3PBackSettings:
    """Settings of one S3P server; sizes in bytes, times in seconds.

    Raises ValueError for a delivery that S3P cannot promise, and where `loss` drops records that an acknowledgement has
    to count.
    """

    names: S3PNames = field(default_factory=FixedBasin)
    """How streams are called at the server."""
    limits: S3PLimits = field(default_factory=S3PLimits)
    """The server's. What is larger is refused before it is sent."""
    loss: LossPolicy = field(default_factory=_refuse_all)
    """What is done on append with what a body cannot carry; envelopes are unwrapped on reading."""
    delivery: Delivery = Delivery.REFUSE
    """What is promised about lost acknowledgements."""
    split_appends: bool = False
    """A batch that is larger than one APPEND may be goes in several, which are not applied together; else it is
    refused."""
    trim_keeps_last: bool = False
    """Trimming all records leaves the last one at the server, where clients of the gateway do not see it: for servers
    that forget with it which identifier was the last, as the Go reference does."""
    append_inflight_bytes: int = 4 * MIB
    """Bytes of one session's appends that are handed over and not yet acknowledged; a single append may be larger."""
    max_reply_bytes: int = 16 * MIB
    """Most bytes of one READ's answer. Where a server has more for it, fewer records are asked for."""
    recover_seconds: float = 10.0
    """How long a lost server is tried again for, before what waits for it fails."""

    def __post_init__(self) -> None:
        if self.delivery is Delivery.EXACTLY_ONCE:
            raise ValueError(
                "S3P has neither conditions nor writers, so nobody can say whether an append whose acknowledgement was "
                'lost is there: delivery is "at-least-once" or "refuse"'
            )
        if Loss.DROP in (self.loss.empty_body, self.loss.command_records):
            raise ValueError("records that an acknowledgement counts cannot be dropped")
