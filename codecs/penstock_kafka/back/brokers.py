"""The brokers of a cluster: which of them leads a partition, and requests to them.

Any broker tells the leaders of all partitions (Metadata). What was told is kept until a broker denies it or is lost;
then the next request looks again, so a partition is followed to its new leader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import trio
from msgspec.structs import replace

from penstock.core.address import Address
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.records import StreamRef
from penstock.net.breaker import BreakerState
from penstock.net.retries import RetryPolicy, retrying
from penstock.net.upstream import Upstream, UpstreamSettings, doubtful
from penstock_kafka.back.connection import KafkaConnection, KafkaPool
from penstock_kafka.back.settings import KafkaBackSettings
from penstock_kafka.codec import KafkaMessage
from penstock_kafka.codec.client_errors import STALE_LEADER, broker_failure
from penstock_kafka.codec.cluster_messages import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.names import TopicPartition

__all__ = ["Brokers"]

M = TypeVar("M", bound=KafkaMessage)
T = TypeVar("T")
_ALL: Final = -1
"""The acknowledgement of all replicas in sync."""
_TOGETHER: Final = 1 * MIB
"""Bytes that a broker is asked for at once; it sends one batch at least."""
_ENDLESS: Final = 1_000_000
_MISSING: Final = 3
_GRACE_SECONDS: Final = 5.0
"""Time for which a topic that was there is looked for when a broker says that it does not exist: one that has just
started may not have heard of it yet."""
_LOOKS: Final = 0.02
"""Seconds between two looks whether all brokers know of a creation or deletion."""


class Brokers:
    """The brokers of a cluster. `server` makes an `Upstream` for one; `first`: those that are asked in the beginning,
    at least one."""

    def __init__(
        self, first: Sequence[Upstream], settings: KafkaBackSettings, server: Callable[[UpstreamSettings], Upstream]
    ) -> None:
        self.settings = settings
        self.patient = RetryPolicy(attempts=_ENDLESS, total_seconds=settings.recover_seconds)
        self._server = server
        self._model = first[0].settings
        self._pools: dict[Address, KafkaPool] = {}
        self._first = [self._add(upstream) for upstream in first]
        self._nodes: dict[int, KafkaPool] = {}
        self._topics: OrderedDict[str, MetadataTopic] = OrderedDict()
        self._seen: OrderedDict[str, float | None] = OrderedDict()  # topics that were there; since when they are not
        self._controller = -1

    @property
    def back(self) -> str:
        """Name of the back, for metrics."""
        return self._model.name

    @property
    def where(self) -> str:
        """The cluster as messages name it."""
        return f"back {self._model.name}"

    @property
    def request_seconds(self) -> float:
        """Time limit of a request, in seconds, beside the time for which a broker is asked to wait."""
        return self._model.request_seconds

    def _add(self, upstream: Upstream) -> KafkaPool:
        def make(stream: trio.abc.Stream, to: Upstream) -> KafkaConnection:
            return KafkaConnection(stream, to, self.settings.max_fetch_bytes, self.settings.login)

        host, port = upstream.settings.host, upstream.settings.port
        pool = self._pools[Address(host, port)] = KafkaPool(upstream, make)
        return pool

    async def close(self) -> None:
        """Close the idle connections."""
        for pool in self._pools.values():
            await pool.close()

    # ---- metadata ----------------------------------------------------------------------------------------------------

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Return what a broker says of these topics, or of all (None).

        Brokers are asked one after the other until one answers. Raises the last failure.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        candidates = dict.fromkeys([*self._nodes.values(), *self._first])
        for pool in sorted(
            candidates, key=lambda candidate: candidate.upstream.breaker.state is not BreakerState.CLOSED
        ):
            try:
                async with pool.use() as connection:
                    metadata = await connection.call(request, MetadataResponse, self.request_seconds)
            except OperationFailed as error:
                failure = error
            else:
                self._learn(metadata)
                return metadata
        raise failure

    def _learn(self, metadata: MetadataResponse) -> None:
        nodes = {}
        for broker in metadata.brokers:
            address = Address(broker.host, broker.port)
            pool = self._pools.get(address)
            if pool is None:
                pool = self._add(self._server(replace(self._model, host=broker.host, port=broker.port)))
            nodes[broker.node_id] = pool
        self._nodes = nodes or self._nodes
        self._controller = metadata.controller_id

    async def topic(self, name: str) -> MetadataTopic:
        """Return a topic's partitions and their leaders. Raises STREAM_NOT_FOUND, PERMISSION_DENIED."""
        known = self._topics.get(name)
        if known is None:
            [known] = (await self.metadata([name])).topics
            if known.error_code:
                failure = broker_failure(known.error_code, f"{self.where}, topic {name}")
                if known.error_code == _MISSING and self._may_come_back(name):
                    failure = Failure(FailureCode.HOT_SERVER, failure.message)
                raise OperationFailed(failure)
            self._topics[name], self._seen[name] = known, None
            for cache in (self._topics, self._seen):
                while len(cache) > self.settings.known_streams:
                    cache.popitem(last=False)
        self._topics.move_to_end(name)
        self._seen.move_to_end(name)
        return known

    async def topic_id(self, name: str) -> bytes:
        """Return the id of a topic, NO_UUID of a cluster before Kafka 2.8. Raises STREAM_NOT_FOUND."""
        return (await self.topic(name)).topic_id

    def _may_come_back(self, name: str) -> bool:
        """Return whether a topic that a broker does not know was there, up to `_GRACE_SECONDS` ago."""
        if name not in self._seen:
            return False
        now = trio.current_time()
        since = self._seen[name]
        if since is None:
            since = self._seen[name] = now
        if now - since < _GRACE_SECONDS:
            return True
        del self._seen[name]
        return False

    def forget(self, topic: str) -> None:
        """Forget the leaders of a topic."""
        self._topics.pop(topic, None)

    async def settled(self, topic: str, *, exists: bool) -> None:
        """Wait until every broker that answers knows that a topic exists, with leaders, or that it does not; for
        `request_seconds` at most. A controller acknowledges a change before the brokers have heard of it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        with trio.move_on_after(self.request_seconds):
            await self.metadata([topic])
            for pool in list(self._nodes.values()):
                while True:
                    try:
                        async with pool.use() as connection:
                            topic_metadata = (
                                await connection.call(request, MetadataResponse, self.request_seconds)
                            ).topics[0]
                    except OperationFailed:
                        break
                    told = {
                        topic_metadata.error_code,
                        *(partition.error_code for partition in topic_metadata.partitions),
                    }
                    if told == ({0} if exists else {_MISSING}):
                        break
                    await trio.sleep(_LOOKS)
        self.forget(topic)
        self._seen.pop(topic, None)

    # ---- partitions --------------------------------------------------------------------------------------------------

    async def find(self, stream: StreamRef) -> TopicPartition:
        """Return the partition that a stream is.

        Raises STREAM_NOT_FOUND, also for a partition of a topic with another number of them (docs/names.md), and
        NOT_REPRESENTABLE for a name that no topic can have.
        """
        partition = self.settings.names.from_stream(stream)
        hidden = stream.basin != INTERNAL_BASIN and self.settings.names.internal_stream(partition.topic) is not None
        if hidden or partition.topic == self.settings.state_topic:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"topic {partition.topic} is the gateway's own, and no stream")
        topic = await self.topic(partition.topic)
        count = len(topic.partitions)
        if partition.partition >= count or (count == 1) is not partition.whole:
            self.forget(partition.topic)
            reason = f"stream {stream} does not exist: topic {partition.topic} has {count} partitions"
            raise fail(FailureCode.STREAM_NOT_FOUND, reason)
        return partition

    async def leader(self, partition: TopicPartition) -> KafkaPool:
        """Return the connections to a partition's leader. Raises HOT_SERVER if there is none, STREAM_NOT_FOUND."""
        topic = await self.topic(partition.topic)
        leaders = [
            topic_partition.leader_id
            for topic_partition in topic.partitions
            if topic_partition.partition_index == partition.partition
        ]
        pool = self._nodes.get(leaders[0]) if leaders else None
        if pool is None:
            self.forget(partition.topic)
            reason = f"{self.where}: partition {partition.partition} of topic {partition.topic} has no leader"
            raise fail(FailureCode.HOT_SERVER, reason)
        return pool

    async def ask_leader(self, partition: TopicPartition, message: KafkaMessage, kind: type[M]) -> M:
        """Ask a partition's leader, once. After a failure the leader is looked up again."""
        with self.looking_again(partition):
            pool = await self.leader(partition)
            async with pool.use() as connection:
                return await connection.call(message, kind, self.request_seconds)

    async def fetch_request(
        self, partition: TopicPartition, topic_id: bytes | None, offset: int, wait: float, isolation_level: int
    ) -> FetchRequest:
        """Return a request for the records of one partition from an offset on, for which the leader waits so many
        seconds. Raises STREAM_NOT_FOUND if the topic has another id than `topic_id`: it was created again."""
        now = await self.topic_id(partition.topic)
        if topic_id not in (None, now):
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{self.where}: topic {partition.topic} was created again")
        part = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=_TOGETHER)
        return FetchRequest(
            max_wait_ms=int(wait * 1000),
            min_bytes=1,
            max_bytes=_TOGETHER,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=partition.topic, topic_id=now, partitions=[part])],
        )

    async def produce(self, partition: TopicPartition, batch: bytes) -> ProducePartitionResult:
        """Ask a partition's leader once to store a batch on all replicas. Returns its answer, maybe an error."""
        topic = ProduceTopic(
            name=partition.topic,
            topic_id=await self.topic_id(partition.topic),
            partitions=[ProducePartition(index=partition.partition, records=batch)],
        )
        request = ProduceRequest(acks=_ALL, timeout_ms=int(self.request_seconds * 1000), topics=[topic])
        response = await self.ask_leader(partition, request, ProduceResponse)
        return response.topics[0].partitions[0]

    @contextmanager
    def looking_again(self, partition: TopicPartition) -> Iterator[None]:
        """Forget the partition's leader if the block raises an OperationFailed."""
        try:
            yield
        except OperationFailed:
            self.forget(partition.topic)
            raise

    def check(self, partition: TopicPartition, code: int, message: str | None = None) -> None:
        """Raise the failure for an error of a partition's leader; after those in STALE_LEADER it is looked up again,
        and the request may be repeated."""
        if not code:
            return
        where = f"{self.where}, topic {partition.topic}, partition {partition.partition}"
        failure = broker_failure(code, where, message)
        if code in STALE_LEADER:
            self.forget(partition.topic)
            failure = Failure(FailureCode.HOT_SERVER, failure.message)
        raise OperationFailed(failure)

    def check_produced(self, partition: TopicPartition, result: ProducePartitionResult) -> None:
        """Raise the failure for a leader's answer to a Produce; see `check`. It is UNAVAILABLE for errors in
        STALE_LEADER: a leader that loses its place while replicas confirm a batch has stored it, and its successor
        may have it."""
        try:
            self.check(partition, result.error_code, result.error_message)
        except OperationFailed as error:
            if result.error_code in STALE_LEADER:
                raise OperationFailed(doubtful(error.failure)) from None
            raise

    # ---- the cluster -------------------------------------------------------------------------------------------------

    async def ask_controller(self, message: KafkaMessage, kind: type[M]) -> M:
        """Ask the broker that stands for the controller, once. Raises OperationFailed."""
        await self.metadata([])
        pool = self._nodes.get(self._controller) or next(iter(self._nodes.values()), None)
        if pool is None:
            raise fail(FailureCode.HOT_SERVER, f"{self.where}: the cluster has no brokers")
        async with pool.use() as connection:
            return await connection.call(message, kind, self.request_seconds)

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, idempotent: bool = True, patient: bool = False
    ) -> T:
        """Return the result of `attempt`, again after failures that are worth it, for `recover_seconds`.

        `patient`: also while circuits are open, for what had begun before brokers were lost.
        """
        return await retrying(attempt, self.patient, idempotent=idempotent, patient=patient, back=self.back)
