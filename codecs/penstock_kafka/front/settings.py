"""Settings of a Kafka front."""

from __future__ import annotations

import msgspec

from penstock.core.address import Address
from penstock.model.limits import MIB
from penstock.routing.access.clients import ClientRules
from penstock_kafka.groups.messages import GroupLimits
from penstock_kafka.names import KafkaNames
from penstock_kafka.transactions.limits import TransactionLimits

__all__ = ["KafkaSettings"]


class KafkaSettings(msgspec.Struct, kw_only=True):
    """Settings of one Kafka front; sizes in bytes."""

    names: KafkaNames = msgspec.field(default_factory=lambda: KafkaNames("penstock"))
    advertise: Address | None = None
    """Address at which clients connect again; None: the one that they are connected to."""
    partitions: int = 1
    """Partitions of a topic that is created without a number."""
    max_partitions: int = 100
    max_request_bytes: int = 16 * MIB
    max_request_items: int = 10_000
    """Most elements of all arrays of a request: topics, partitions, groups, names."""
    max_batch_bytes: int = 16 * MIB
    """Most decompressed bytes of the records for one partition in a request. While a request has so many in memory, no
    further partition of it is decompressed."""
    max_fetch_bytes: int = 8 * MIB
    max_fetch_wait_ms: int = 30_000
    table: str = "kafka"
    """Name of the table of groups and transactions."""
    clients: ClientRules = msgspec.field(default_factory=ClientRules)
    groups: GroupLimits = msgspec.field(default_factory=GroupLimits)
    transactions: TransactionLimits = msgspec.field(default_factory=TransactionLimits)
    idle_timeout_seconds: float = 600.0
    send_timeout_seconds: float = 30.0
