"""Settings of a back of segment stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.core.delivery import Delivery
from penstock.model.limits import MIB
from penstock.net.upstream import UpstreamSettings
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_pravega.codec import Dialect
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.segment.names import SegmentNames

__all__ = ["REFUSE_ALL", "SegmentBackSettings"]

REFUSE_ALL: Final = LossPolicy(headers=Loss.REFUSE, empty_body=Loss.REFUSE, command_records=Loss.REFUSE)
"""Loss policy with which records that an event cannot carry fail the append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBackSettings:
    """Settings of one back of segment stores; sizes in bytes, times in seconds.

    Raises ValueError without `store` and `controller`, for a controller with the draft, for a user name without a
    controller, and if `loss` drops records that an acknowledgement counts.
    """

    store: UpstreamSettings | None = None
    """The one segment store that has all segments. None: the controller names the store of each segment."""
    controller: UpstreamSettings | None = None
    """The controller, which creates, deletes, lists and finds streams. The stores that it names are reached with its
    own TLS settings and times."""
    username: str | None = None
    """User for Basic credentials at the controller, with `password`. None: no credentials."""
    password: str = field(default="", repr=False)
    delegation_token: str = field(default="", repr=False)
    """Token sent with every request to a store. If empty and with a user name, the controller is asked for one per
    stream."""
    names: SegmentNames = field(default_factory=SegmentNames)
    """Mapping of streams to segments' names."""
    dialect: Dialect = Dialect.RELEASED
    """Pravega's protocol, or the draft, which has no conditions, attributes, merges and tables."""
    loss: LossPolicy = REFUSE_ALL
    """Policy for appending records that an event cannot carry; envelopes are unwrapped on reading."""
    keep_empty: bool = False
    """True to append a record with an empty body as an empty event, at which Pravega's Python client stops for
    ever."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """Promise about lost acknowledgements; at-least-once is the same as exactly-once."""
    limits: SegmentLimits = field(default_factory=SegmentLimits)
    """Limits of one connection."""
    append_inflight_bytes: int = 8 * MIB
    """Most bytes of one writer's unacknowledged appends; a single append may be larger."""
    one_in_flight: bool = False
    """True to send the appends of the gateway's own writers in one message at a time, those that wait together. Then
    each acknowledgement tells where its records are, even if others append to the segment."""
    recover_seconds: float = 10.0
    """Time for which a lost server is retried before waiting operations fail."""
    read_bytes: int = 1 * MIB
    """Most bytes that one ReadSegment of a scan asks for."""
    max_event_bytes: int = 16 * MIB
    """Largest event that is split into records; reading a larger one as records fails."""
    keep_alive_seconds: float = 20.0
    """Silence after which a connection in use is sent a KeepAlive; the server must answer in
    `store.request_seconds`."""

    def __post_init__(self) -> None:
        if self.store is None and self.controller is None:
            raise ValueError("neither a segment store nor a controller is given")
        if self.dialect is Dialect.DRAFT and self.controller is not None:
            raise ValueError("the draft has no controller")
        if self.username is not None and self.controller is None:
            raise ValueError("a user name is for the controller, but no controller is given")
        if Loss.DROP in (self.loss.empty_body, self.loss.command_records):
            raise ValueError("records that an acknowledgement counts cannot be dropped")

    @property
    def upstream(self) -> UpstreamSettings:
        """Settings to reach stores with; a controller's stores have their own host and port."""
        upstream = self.store or self.controller
        assert upstream is not None, "checked"
        return upstream

    @property
    def name(self) -> str:
        """The back's configured name."""
        return self.upstream.name
