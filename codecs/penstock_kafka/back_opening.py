"""Builds the Kafka back from its table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from msgspec.structs import replace

from penstock.backends.logged_tables import LoggedTables, open_logged_tables
from penstock.core.delivery import Delivery
from penstock.net.upstream import Upstream, UpstreamSettings, Watch
from penstock.protocols.back_opening import BackContext
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.target import Target
from penstock_kafka.back import KafkaBackSettings, open_kafka
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.settings import KafkaLogin
from penstock_kafka.back.state_topic import MAX_STATE_BATCH_BYTES, StateTopic
from penstock_kafka.config import KafkaBackTable
from penstock_kafka.names import KafkaNames

__all__ = ["kafka_back_settings", "open_back"]


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
    brokers = Brokers(first, replace(kafka_back_settings(name, table), max_fetch_bytes=MAX_STATE_BATCH_BYTES), server)
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
        names=KafkaNames(table.basin, f"{table.state_topic}.internal." if table.state_topic else ""),
        login=login,
        create_streams=table.create_streams,
        replicas=table.replicas,
        delivery=Delivery(table.delivery),
        max_batch_bytes=table.max_batch_bytes,
        recover_seconds=table.recover_seconds,
        state_topic=table.state_topic,
    )
