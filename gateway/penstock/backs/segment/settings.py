"""What an operator may set of a back of segment stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.backs.delivery import Delivery
from penstock.backs.upstream import UpstreamSettings
from penstock.policy.loss import Loss, LossPolicy
from penstock.routing.segments import SegmentNames
from penstock_codecs.limits import MIB, SegmentLimits
from penstock_codecs.segment import Dialect

__all__ = ["REFUSE_ALL", "SegmentBackSettings"]

REFUSE_ALL: Final = LossPolicy(headers=Loss.REFUSE, empty_body=Loss.REFUSE, command_records=Loss.REFUSE)
"""What an event cannot carry fails the append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBackSettings:
    """Settings of one back of segment stores; sizes in bytes, times in seconds.

    Raises ValueError where neither `store` nor `controller` is given, where the draft is given a controller, where
    there is a user name and nobody to show it to, and where `loss` drops records that an acknowledgement has to count.
    """

    store: UpstreamSettings | None = None
    """The one segment store that has all segments. None: the controller says where each segment lives."""
    controller: UpstreamSettings | None = None
    """The controller, which creates, deletes, lists and finds streams. The stores that it names are reached with the
    same TLS and times as itself."""
    username: str | None = None
    """With `password`: what the controller is shown as Basic credentials. None: nothing."""
    password: str = field(default="", repr=False)
    delegation_token: str = field(default="", repr=False)
    """Sent with every request to a store. Empty, with a user name: the controller is asked for one for each stream."""
    names: SegmentNames = field(default_factory=SegmentNames)
    """How streams are named as segments."""
    dialect: Dialect = Dialect.RELEASED
    """Pravega's protocol, or the draft, which has no conditions, attributes, merges and tables."""
    loss: LossPolicy = REFUSE_ALL
    """What is done on append with records that an event cannot carry; envelopes are unwrapped on reading."""
    keep_empty: bool = False
    """Append a record without a body as an event without bytes, at which Pravega's Python client stops for ever."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """What is promised about lost acknowledgements; at least once comes to the same as exactly once."""
    limits: SegmentLimits = field(default_factory=SegmentLimits)
    """What one connection may cost."""
    append_inflight_bytes: int = 8 * MIB
    """Bytes of one writer's appends that are handed over and not yet acknowledged; a single append may be larger."""
    recover_seconds: float = 10.0
    """How long a lost server is tried again for before what waits for it fails."""
    read_bytes: int = 1 * MIB
    """What one ReadSegment of a scan asks for."""
    max_event_bytes: int = 16 * MIB
    """A larger event is not taken apart into records: reading it as records fails."""
    keep_alive_seconds: float = 20.0
    """After so long without traffic a connection in use is asked for a sign of life; it has `store.request_seconds`."""

    def __post_init__(self) -> None:
        if self.store is None and self.controller is None:
            raise ValueError("neither a segment store nor a controller is given")
        if self.dialect is Dialect.DRAFT and self.controller is not None:
            raise ValueError("the draft knows no controller")
        if self.username is not None and self.controller is None:
            raise ValueError("a user name is for the controller, and none is given")
        if Loss.DROP in (self.loss.empty_body, self.loss.command_records):
            raise ValueError("records that an acknowledgement counts cannot be dropped")

    @property
    def upstream(self) -> UpstreamSettings:
        """How stores are reached, but for the host and port of those that a controller names."""
        upstream = self.store or self.controller
        assert upstream is not None, "checked"
        return upstream

    @property
    def name(self) -> str:
        """The back's name, as configured."""
        return self.upstream.name
