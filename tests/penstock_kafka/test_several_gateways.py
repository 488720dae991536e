"""Several gateways with one state: one serves the clients of a Kafka listener, and the others tell them which."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import trio
from support.kafka.front import Client, Connect, serving
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.backends.logged_tables import Lease, open_logged_tables
from penstock.backends.logged_tables.leases import PATIENCE
from penstock.core.address import Address
from penstock.model.operations import CreateStream
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.cluster_messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock_kafka.codec.group_messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock_kafka.codec.record_messages import InitProducerIdRequest, InitProducerIdResponse
from penstock_kafka.codec.topic_messages import (
    ConfigResource,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock_kafka.front import KafkaSettings

TOPIC = "t"
NODES: dict[str, int] = {}


async def brokers(client: Client) -> tuple[str | None, list[str]]:
    """Return the hosts of the leader and of all brokers that Metadata names, which are those of DescribeCluster."""
    metadata = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse)
    cluster = await client.call(DescribeClusterRequest(), DescribeClusterResponse)
    found = {one.node_id: one.host for one in metadata.brokers}
    assert {one.broker_id: one.host for one in cluster.brokers} == found
    [partition] = metadata.topics[0].partitions
    assert metadata.controller_id == cluster.controller_id == partition.leader_id
    expected = KafkaError.LEADER_NOT_AVAILABLE if partition.leader_id == -1 else KafkaError.NONE
    assert (metadata.topics[0].error_code, partition.error_code) == (KafkaError.NONE, expected)
    for node, host in found.items():
        assert NODES.setdefault(host, node) == node, "all gateways name a host by one node id"
    return found.get(partition.leader_id), sorted(found.values())


@dataclass
class Gateways:
    """Gateways with one state, by name; the first one serves the clients."""

    connect: dict[str, Connect] = field(default_factory=dict)
    running: dict[str, trio.CancelScope] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)


@asynccontextmanager
async def gateways(back: EmbeddedBack, **abouts: str) -> AsyncIterator[Gateways]:
    """Run gateways that are at these addresses, whose hosts in Metadata are their names."""
    shared, started = SharedLog(), Gateways()
    await back.perform(CreateStream(StreamRef("penstock", TOPIC)))
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        for name, about in abouts.items():
            tables = await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), 1 << 20))
            lease = started.leases[name] = Lease(tables, "listener/kafka", lambda about=about: about)  # type: ignore[misc]
            settings = KafkaSettings(advertise=Address(name, 9092))
            started.connect[name], front = await stack.enter_async_context(serving(back, settings, lease))
            started.running[name] = await nursery.start(_run, front.run)
            await trio.sleep(1)
        yield started
        nursery.cancel_scope.cancel()


async def coordinator(client: Client) -> tuple[int, str]:
    """Return the error and the host of the answer to FindCoordinator."""
    response = await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    [found] = response.coordinators
    return found.error_code, found.host


async def test_each_gateway_names_all_others(clock: MockClock, back: EmbeddedBack) -> None:
    """A client that knew only the address of a gateway that was killed would not find its successor."""
    every = ["one", "three", "two"]
    async with gateways(back, one="one:9092", two="two:9092", three="three:9092") as started:
        for name in every:
            assert await brokers(started.connect[name]()) == ("one", every), name
        assert await coordinator(started.connect["two"]()) == (0, "one")
        started.running["one"].cancel()
        await trio.sleep(2 * PATIENCE)
        [(leader, rest), again] = [await brokers(started.connect[name]()) for name in ("two", "three")]
        assert (leader, rest) == again
        assert rest == ["three", "two"]
        assert leader in rest


async def test_a_gateway_answers_while_none_serves_clients(clock: MockClock, back: EmbeddedBack) -> None:
    """librdkafka forgets all brokers when the last one closes its connection."""
    async with gateways(back, one="one:9092", two="two:9092") as started:
        other = started.connect["two"]()
        assert await brokers(other) == ("one", ["one", "two"])
        started.leases["one"]._beat = b"lost"  # it is taken for dead
        await trio.sleep(PATIENCE * 0.7)
        assert await brokers(other) == (None, ["one", "two"])
        assert await coordinator(other) == (KafkaError.COORDINATOR_NOT_AVAILABLE, "")
        await trio.sleep(PATIENCE)
        assert await brokers(other) == ("two", ["one", "two"])


async def test_a_gateway_that_was_killed_does_not_serve_before_it_has_the_lease_again(
    clock: MockClock, back: EmbeddedBack
) -> None:
    """Until then the lease has its address, but nothing coordinates groups and transactions."""
    async with gateways(back, one="two:9092", two="two:9092") as started:
        client = started.connect["two"]()
        assert await brokers(client) == (None, ["two"])
        await client.send(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000))
        assert await client.ended()


async def test_an_address_that_clients_cannot_connect_to_is_not_named(clock: MockClock, back: EmbeddedBack) -> None:
    async with gateways(back, one="one:9092", two="0.0.0.0:9092", three="[::]:9092") as started:
        assert await brokers(started.connect["one"]()) == ("one", ["one"])
        assert await brokers(started.connect["two"]()) == ("one", ["one", "two"])


async def test_requests_of_any_broker_are_answered_by_all(clock: MockClock, back: EmbeddedBack) -> None:
    """Clients send these to any of the brokers that Metadata names, whichever serves them."""
    async with gateways(back, one="one:9092", two="two:9092") as started:
        other = started.connect["two"]()
        producer = await other.call(InitProducerIdRequest(), InitProducerIdResponse)
        assert (producer.error_code, producer.producer_epoch) == (0, 0)
        assert (await other.call(ListGroupsRequest(), ListGroupsResponse)).groups == ()
        topic = CreatableTopic(name="made", num_partitions=1, replication_factor=1)
        created = await other.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        assert [one.error_code for one in created.topics] == [0]
        resource = ConfigResource(resource_type=2, resource_name="made")
        described = await other.call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        assert [one.error_code for one in described.results] == [0]
        await other.send(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000))
        assert await other.ended(), "a transactional producer has a coordinator"


async def _run(duties: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await duties()
