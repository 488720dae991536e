"""Builds the Kafka listener's front from its table."""

from __future__ import annotations

from penstock.core.address import Address
from penstock.net.http.traced import traced_connections
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock.routing.access.clients import ClientRules
from penstock.tables.struct_table import StructTable
from penstock_kafka.config import KafkaListener
from penstock_kafka.front import KafkaFront, KafkaSettings
from penstock_kafka.groups.messages import GroupLimits
from penstock_kafka.names import KafkaNames, table_of
from penstock_kafka.transactions.limits import TransactionLimits

__all__ = ["kafka_settings", "open_listener"]


def open_listener(context: ListenerContext, label: str, table: KafkaListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    clients = context.clients(table.auth_tokens, anonymous=table.anonymous, passwords=True)
    settings = kafka_settings(table, clients, label)
    back, own = context.back(label, tokens=True), context.back(label)
    kept = StructTable(own, settings.table)
    lease = context.lease(f"listener/{label}", lambda: str(settings.advertise or context.bound[label][0]))
    front = KafkaFront(context.faulty(back, label), settings, kept, lease)
    return OpenListener(traced_connections(front.serve), front.drain, (back, own), (settings,), front.run)


def kafka_settings(listener: KafkaListener, clients: ClientRules, label: str = "kafka") -> KafkaSettings:
    """Return the settings of the Kafka front. `label`: the listener's, as in routes."""
    limits = listener.limits
    return KafkaSettings(
        names=KafkaNames(listener.basin),
        advertise=None if listener.advertise is None else Address.parse(listener.advertise),
        partitions=listener.partitions,
        max_partitions=limits.max_partitions,
        max_request_bytes=limits.max_request_bytes,
        max_request_items=limits.max_request_items,
        max_batch_bytes=limits.max_batch_bytes,
        max_fetch_bytes=limits.max_fetch_bytes,
        max_fetch_wait_ms=limits.max_fetch_wait_ms,
        table=table_of(label),
        clients=clients,
        groups=GroupLimits(
            initial_delay=listener.first_rebalance_seconds,
            offset_retention=listener.offset_retention_seconds,
            max_groups=limits.max_groups,
            max_members=limits.max_group_members,
            consumer_session=listener.consumer_session_seconds,
            consumer_heartbeat=listener.consumer_heartbeat_seconds,
        ),
        transactions=TransactionLimits(
            max_timeout=limits.max_transaction_seconds,
            max_producers=limits.max_transactional_ids,
            max_bytes=limits.max_transaction_bytes,
        ),
        idle_timeout_seconds=limits.idle_timeout_seconds,
        send_timeout_seconds=limits.send_timeout_seconds,
    )
