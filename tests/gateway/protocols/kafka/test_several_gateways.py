"""Several gateways with one state: one serves the clients of a Kafka listener, and the others tell them which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import trio
from support.kafka.front import Client, serving
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.backends.logged_tables import Lease, open_logged_tables
from penstock.backends.logged_tables.leases import PATIENCE
from penstock.core.address import Address
from penstock.protocols.kafka.front import KafkaSettings
from penstock_codecs.kafka.cluster_messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from penstock_codecs.kafka.group_messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)


async def brokers(client: Client) -> dict[int, str]:
    """Return the brokers that Metadata names, which are those of DescribeCluster."""
    metadata = await client.call(MetadataRequest(topics=[]), MetadataResponse)
    cluster = await client.call(DescribeClusterRequest(), DescribeClusterResponse)
    found = {one.node_id: one.host for one in metadata.brokers}
    assert {one.broker_id: one.host for one in cluster.brokers} == found
    assert metadata.controller_id == cluster.controller_id == 1
    return found


async def test_a_gateway_that_serves_no_clients_names_itself_too(clock: MockClock, back: EmbeddedBack) -> None:
    """A client that knew only the address of a gateway that was killed would not find its successor."""
    shared = SharedLog()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        connect, running = {}, {}
        for name in ("one", "two"):
            tables = await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), 1 << 20))
            lease = Lease(tables, "listener/kafka", lambda name=name: f"{name}:9092")  # type: ignore[misc]
            settings = KafkaSettings(advertise=Address(name, 9092))
            connect[name], front = await stack.enter_async_context(serving(back, settings, lease))
            running[name] = await nursery.start(_run, front.run)
            await trio.sleep(1)
        assert await brokers(connect["one"]()) == {1: "one"}
        other = connect["two"]()
        assert await brokers(other) == {1: "one", 2: "two"}
        [coordinator] = (
            await other.call(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
        ).coordinators
        assert (coordinator.node_id, coordinator.host) == (1, "one")
        assert (await other.call(ListGroupsRequest(), ListGroupsResponse)).groups == [], "tools ask every broker"
        running["one"].cancel()
        await trio.sleep(2 * PATIENCE)
        assert await brokers(connect["two"]()) == {1: "two"}
        nursery.cancel_scope.cancel()


async def _run(duties: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await duties()
