"""Builds the Kafka listener's front, and the back, from their tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from penstock.backends.logged_tables import LoggedTables, open_logged_tables
from penstock.core.address import Address
from penstock.core.delivery import Delivery
from penstock.net.http.traced import traced_connections
from penstock.net.upstream import Upstream, UpstreamSettings, Watch
from penstock.protocols.kafka.back import KafkaBackSettings, open_kafka
from penstock.protocols.kafka.back.brokers import Brokers
from penstock.protocols.kafka.back.settings import KafkaLogin
from penstock.protocols.kafka.back.state_topic import MAX_BATCH_BYTES, StateTopic
from penstock.protocols.kafka.config import KafkaBackTable, KafkaListener
from penstock.protocols.kafka.front import KafkaClients, KafkaFront, KafkaSettings
from penstock.protocols.kafka.groups.messages import GroupLimits
from penstock.protocols.kafka.names import KafkaNames, table_of
from penstock.protocols.kafka.transactions.limits import TransactionLimits
from penstock.protocols.opening import BackContext, ListenerContext, OpenListener
from penstock.protocols.struct_table import StructTable
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.access.clients import ClientRules
from penstock.routing.access.passwords import Passwords
from penstock.routing.target import Target

__all__ = ["kafka_back_settings", "kafka_settings", "open_back", "open_listener"]


def open_listener(context: ListenerContext, label: str, table: KafkaListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    rules = ClientRules(frozenset(table.auth_tokens), context.identities, context.access, table.anonymous)
    clients = KafkaClients(rules, Passwords(context.users) if context.users else None)
    settings, back = kafka_settings(table, clients, label), context.back(label, tokens=True)
    kept = StructTable(context.back(label), settings.table)
    lease = context.lease(f"listener/{label}", lambda: str(settings.advertise or context.bound[label][0]))
    front = KafkaFront(context.faulty(back, label), settings, kept, lease)
    return OpenListener(traced_connections(front.serve), front.drain, back, (settings,), front.run)


def kafka_settings(listener: KafkaListener, clients: KafkaClients, label: str = "kafka") -> KafkaSettings:
    """Return the settings of the Kafka front. `label`: the listener's, as in routes."""
    limits = listener.limits
    return KafkaSettings(
        names=KafkaNames(listener.basin),
        advertise=None if listener.advertise is None else Address.parse(listener.advertise),
        partitions=listener.partitions,
        max_partitions=limits.max_partitions,
        max_request_bytes=limits.max_request_bytes,
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


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: KafkaBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""

    first, server = _servers(name, table, context.watch)
    breaker = None if table.more_addresses else first[0].breaker  # one broker of several is not the cluster
    async with (
        open_kafka(first, context.embedded, kafka_back_settings(name, table), server) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "kafka", back, table.delivery, breaker=breaker)


@asynccontextmanager
async def open_state(name: str, table: KafkaBackTable, watch: Watch) -> AsyncIterator[LoggedTables]:
    """See `penstock.protocols.plugin.BackKind.open_state`."""
    first, server = _servers(name, table, watch)
    brokers = Brokers(first, replace(kafka_back_settings(name, table), max_fetch_bytes=MAX_BATCH_BYTES), server)
    try:
        async with open_logged_tables(StateTopic(brokers), table.state_max_bytes) as tables:
            yield tables
    finally:
        with trio.CancelScope(shield=True):
            await brokers.close()


def _servers(
    name: str, table: KafkaBackTable, watch: Watch
) -> tuple[list[Upstream], Callable[[UpstreamSettings], Upstream]]:
    """Return the brokers that are asked first, and the function that makes the others."""

    def server(settings: UpstreamSettings) -> Upstream:
        return Upstream(settings, watch=watch)

    addresses = (table.address, *table.more_addresses)
    return [server(upstream_settings(name, table, address, "kafka")) for address in addresses], server


def kafka_back_settings(name: str, table: KafkaBackTable) -> KafkaBackSettings:
    """Return the settings of a client of a cluster. Raises CannotStart for a password file that cannot be used."""
    login = None
    if table.username is not None and table.password_file is not None:
        secret = secret_in(f"backs.{name}.password_file", table.password_file)
        login = KafkaLogin(table.mechanism, table.username, secret)
    return KafkaBackSettings(
        names=KafkaNames(table.basin),
        login=login,
        create_streams=table.create_streams,
        replicas=table.replicas,
        delivery=Delivery(table.delivery),
        max_batch_bytes=table.max_batch_bytes,
        recover_seconds=table.recover_seconds,
        state_topic=table.state_topic,
    )
