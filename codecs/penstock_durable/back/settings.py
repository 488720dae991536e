"""Settings of a back of Durable Streams."""

from __future__ import annotations

import msgspec

from penstock.core.config_fields import DEFAULT_BASIN
from penstock.core.delivery import Delivery
from penstock.model.limits import MIB
from penstock.net.http.client.settings import HttpVersion
from penstock_durable.codec import RECORDS_TYPE
from penstock_durable.names import DurableNames

__all__ = ["DurableBackSettings"]


class DurableBackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one server; sizes in bytes, times in seconds."""

    names: DurableNames = msgspec.field(default_factory=lambda: DurableNames("/v1/stream/", DEFAULT_BASIN))
    """Mapping of streams to the server's URLs."""
    http: HttpVersion = HttpVersion.AUTO
    create_type: str = RECORDS_TYPE
    """Content type of streams that the gateway creates: one whose content consists of records."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """Promise about appends whose acknowledgement was lost."""
    drop_headers: bool = False
    """True to append records without their headers; False to refuse those that a stream cannot hold."""
    max_append_bytes: int = 2 * MIB
    """Largest body of a POST. Waiting appends are sent together up to this size."""
    append_inflight_bytes: int = 4 * MIB
    """Most bytes of one stream's unacknowledged appends; a single append may be larger."""
    poll_seconds: float = 60.0
    """Time after which a long poll that the server does not answer is given up."""
    open_reads: int = 64
    """Most reads that keep their place on the server, with an answer that may be unread, until they are continued."""
    known_streams: int = 1000
    """Most unused streams whose properties are kept in memory."""
    recover_seconds: float = 10.0
    """Time for which a lost server is retried before waiting operations fail."""
