"""Settings of a back that is a cluster of Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.core.delivery import Delivery
from penstock.model.limits import MIB
from penstock_kafka.names import KafkaNames

__all__ = ["KafkaBackSettings", "KafkaLogin"]


@dataclass(frozen=True, slots=True)
class KafkaLogin:
    """The gateway's authentication at a cluster. `mechanism`: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: str
    name: str
    secret: str = field(repr=False)


class KafkaBackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one cluster; sizes in bytes, times in seconds."""

    names: KafkaNames
    """Mapping of streams to topics."""
    create_streams: bool = False
    """True if an append, or a read that may, creates a topic that is missing."""
    replicas: int = -1
    """Replicas of topics that the gateway creates; -1: the cluster's default."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """Promise about appends whose acknowledgement was lost."""
    max_batch_bytes: int = 2 * MIB
    """`max.message.bytes` of topics that the gateway creates. Waiting appends are sent together up to 1 MiB."""
    append_inflight_bytes: int = 4 * MIB
    """Most bytes of one stream's unacknowledged appends; a single append may be larger."""
    max_fetch_bytes: int = 4 * MIB
    """Most bytes of one answer, which has one batch at least; a larger batch cannot be read."""
    poll_seconds: float = 20.0
    """Time that a broker lets a reader at the tail wait for records before it answers that there are none."""
    recover_seconds: float = 10.0
    """Time for which lost brokers are retried before waiting operations fail."""
    login: KafkaLogin | None = None
    """None: no authentication by SASL."""
    state_topic: str | None = None
    """Topic of the gateway's state, which is not a stream; None: none in this cluster."""
    known_streams: int = 1000
    """Most unused streams whose writer is kept in memory, and most topics whose leaders are."""
