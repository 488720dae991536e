"""A cluster of Kafka as a back of records.

Offsets are sequence numbers, so every gateway before a cluster shows the same ones. A number is
missing where the partition has no record for its clients: at control records, at those of aborted transactions, and
where compaction has removed some.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import trio
from msgspec.structs import replace

from penstock.backends.background import background
from penstock.backends.sequence_numbering.creations import Creations
from penstock.backends.together import GroupingSession
from penstock.backends.trim_points import TrimPoints
from penstock.core.back import AppendSession, Back, ReadSession, append_in_session
from penstock.core.clock import Clock, wall_clock
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Append,
    Appended,
    Capability,
    CheckTail,
    CreateStream,
    DeleteStream,
    EnsureStream,
    FromSeqNum,
    GetStreamConfig,
    ListStreams,
    Locate,
    Located,
    Operation,
    Page,
    Provisioned,
    ProvisionResult,
    Read,
    ReconfigureStream,
    Start,
    Trim,
)
from penstock.model.records import RecordBatch, RecordId, StreamPosition, StreamRef
from penstock.model.streams import StreamConfig, StreamConfigPatch, StreamInfo, TimestampingMode
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.positions import KafkaPositions, PartitionSpot
from penstock_kafka.back.reading import open_kafka_read
from penstock_kafka.back.settings import KafkaBackSettings
from penstock_kafka.back.topics import ClusterTopics
from penstock_kafka.back.writer import KafkaWriter
from penstock_kafka.names import TopicPartition

__all__ = ["CAPABILITIES", "KafkaAppendSession", "KafkaBack", "open_kafka"]

R = TypeVar("R")
CAPABILITIES: Final = frozenset(
    {
        Capability.STREAM_CONFIG,
        Capability.HEADERS,
        Capability.EMPTY_BODIES,
        Capability.TIMESTAMPS,
        Capability.STORED_TIMESTAMPS,
        Capability.RECORD_IDS,
        Capability.TRIM,
        Capability.FOLLOW,
        Capability.LOCATE,
        Capability.LARGE_BATCHES,
    }
)


class KafkaAppendSession(GroupingSession[Appended], AppendSession):
    """The appends of one session; several share the writer of the partition. `identified`: acknowledgements have the
    identifiers of their records."""

    def __init__(self, writer: KafkaWriter, positions: KafkaPositions, *, identified: bool) -> None:
        super().__init__(writer)
        self._partition = writer.partition
        self._positions = positions
        self._identified = identified
        self._results: list[Appended] = []

    async def send(self, append: Append | AppendBytes) -> None:
        assert isinstance(append, Append), "the back has no operations on bytes"
        await super().send(append)

    async def receive(self) -> list[Appended]:
        if not self._results:
            self._results = await super().receive()
        if self._identified:
            for index, result in enumerate(self._results):
                if result.last_id is None:
                    self._results[index] = replace(result, last_id=await self._id_of(result.end))
        results, self._results = self._results, []
        return results

    async def _id_of(self, end: StreamPosition) -> RecordId | None:
        """Return the identifier of the last record before `end`; None if it cannot be asked for now: it is stored."""
        try:
            return await self._positions.record_id(self._partition, end.seq_num - 1, end.timestamp)
        except OperationFailed:
            return None


class KafkaBack(Back):
    """`Back` of a cluster. Made by `open_kafka`. `state` keeps creation times and trims."""

    def __init__(self, brokers: Brokers, state: Back, clock: Clock, nursery: trio.Nursery) -> None:
        self._brokers = brokers
        self._settings = brokers.settings
        self._clock = clock
        self._nursery = nursery
        self._positions = KafkaPositions(brokers, TrimPoints(state, brokers.back))
        self._topics = ClusterTopics(brokers)
        self._creations = Creations(state, brokers.back)
        self._writers: OrderedDict[TopicPartition, KafkaWriter] = OrderedDict()
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: partial(append_in_session, self),
            CheckTail: self._check_tail,
            Trim: self._trim,
            Locate: self._locate,
            CreateStream: self._create,
            EnsureStream: self._ensure,
            DeleteStream: self._delete,
            GetStreamConfig: self._config,
            ReconfigureStream: self._reconfigure,
            ListStreams: self._list,
        }

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of a cluster."""
        return CAPABILITIES

    async def perform(self, operation: Operation[R]) -> R:
        handler = self._handlers.get(type(operation))
        if handler is None:
            what = type(operation).__name__
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._brokers.where}: Kafka cannot {what}")
        result: R = await handler(operation)
        return result

    async def _find(self, stream: StreamRef, create_config: StreamConfig | None, create: bool) -> TopicPartition:
        """Return the partition that a stream is; create the stream if it is missing, and that is wanted and allowed."""
        try:
            return await self._brokers.retrying(lambda: self._brokers.find(stream))
        except OperationFailed as error:
            creates = create and self._settings.create_streams
            if not creates or error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        if await self._topics.create(stream, create_config):
            await self._created(stream)
        return await self._brokers.retrying(lambda: self._brokers.find(stream))

    # ---- appends -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[KafkaAppendSession]:
        partition = await self._find(stream, create_config, create_if_missing)
        # Clients that get identifiers never create streams by an append.
        yield KafkaAppendSession(await self._writer(partition), self._positions, identified=not create_if_missing)

    async def _writer(self, partition: TopicPartition) -> KafkaWriter:
        found = self._writers.get(partition)
        if found is None:
            config = await self._topics.config(partition)
            found = self._writers.setdefault(
                partition,
                KafkaWriter(
                    self._brokers,
                    self._positions,
                    partition,
                    self._nursery,
                    self._clock,
                    by_arrival=config.timestamping_mode is TimestampingMode.ARRIVAL,
                ),
            )
            idle = (
                other_partition
                for other_partition, writer in self._writers.items()
                if not writer.busy and other_partition != partition
            )
            if len(self._writers) > self._settings.known_streams and (oldest := next(idle, None)) is not None:
                del self._writers[oldest]
        self._writers.move_to_end(partition)
        return found

    # ---- reads -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _read(self, read: Read) -> AsyncIterator[ReadSession]:
        partition = await self._find(read.stream, read.create_config, read.create_if_missing)
        async with open_kafka_read(self._brokers, self._positions, partition, read) as session:
            yield session

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self._read(read)

    async def _check_tail(self, operation: CheckTail) -> StreamPosition:
        return await self._positions.tail(await self._find(operation.stream, None, operation.create_if_missing))

    async def _spot(self, partition: TopicPartition, stream: StreamRef, start: Start) -> PartitionSpot:
        """Return the first record at or after `start`, or the tail, with its timestamp."""
        spot = await self._positions.spot(partition, start)
        if not spot.at_tail and spot.timestamp < 0:
            read = Read(stream, FromSeqNum(spot.offset), count=1)
            try:
                async with open_kafka_read(self._brokers, self._positions, partition, read) as session:
                    delivered = await session.next()
            except OperationFailed as error:
                if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                    raise
                return await self._spot(partition, stream, start)  # what was left has been trimmed meanwhile
            if isinstance(delivered, RecordBatch):
                first = delivered.first_seq_num
                return PartitionSpot(first, delivered.columns.timestamps[0], gap=first - spot.offset)
            tail = session.tail().seq_num
            spot = PartitionSpot(tail, -1, at_tail=True, gap=tail - spot.offset)
        if spot.timestamp < 0:  # the tail that was found: records may have come meanwhile
            spot = spot._replace(timestamp=await self._positions.newest(partition))
        return spot

    async def _locate(self, operation: Locate) -> Located:
        partition = await self._find(operation.stream, None, False)
        offset, timestamp, at_tail, gap = await self._spot(partition, operation.stream, operation.start)
        identifier = RecordId(0, 0)
        if offset or not at_tail:
            identifier = await self._positions.record_id(partition, offset, timestamp)
        return Located(offset, timestamp, identifier, at_tail, gap=gap)

    async def _trim(self, operation: Trim) -> StreamPosition:
        partition = await self._find(operation.stream, None, False)
        kept = await self._spot(partition, operation.stream, operation.start)
        beginning = await self._positions.beginning(partition)
        first = max(kept.offset - kept.gap, beginning)  # it may be of a control record
        if first > beginning:
            if not kept.at_tail:
                await self._positions.trimming(partition, kept.offset, kept.timestamp)
            await self._topics.trim(partition, first)
        return StreamPosition(first, kept.timestamp)

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def _create(self, operation: CreateStream) -> Provisioned[StreamInfo]:
        if not await self._topics.create(operation.stream, operation.config):
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"stream {operation.stream} already exists")
        return Provisioned(await self._created(operation.stream), ProvisionResult.CREATED)

    async def _ensure(self, operation: EnsureStream) -> Provisioned[StreamInfo]:
        stream, config = operation.stream, operation.config
        if await self._topics.create(stream, config):
            return Provisioned(await self._created(stream), ProvisionResult.CREATED)
        partition = await self._find(stream, None, False)
        before = await self._topics.config(partition)
        fields = [(name, getattr(config, name)) for name in config.__struct_fields__]
        changed = {name: value for name, value in fields if value not in (None, getattr(before, name))}
        after = await self._topics.reconfigure(stream, StreamConfigPatch(**changed))
        self._writers.pop(partition, None)
        (created_at,) = await self._creations.of([stream], self._clock())
        result = ProvisionResult.NOOP if before == after else ProvisionResult.UPDATED
        return Provisioned(StreamInfo(name=stream.stream, created_at=created_at), result)

    async def _created(self, stream: StreamRef) -> StreamInfo:
        await self._forget(self._settings.names.from_stream(stream))
        now = self._clock()
        await self._creations.set(stream, now)
        return StreamInfo(name=stream.stream, created_at=now)

    async def _creation_times(self, streams: Sequence[StreamRef]) -> list[int]:
        """Return the creation times of streams: those of their topics. So `orders/0` keeps the time of `orders` if the
        topic gets more partitions. Gateways of before kept one for each of several partitions: it stays."""
        own = await self._creations.known(streams)
        topics = list(map(self._topic_of, streams))
        unknown = list(dict.fromkeys(topic for topic, at in zip(topics, own, strict=True) if at is None))
        times: dict[StreamRef, int] = {}
        if unknown:
            times = dict(zip(unknown, await self._creations.of(unknown, self._clock()), strict=True))
        return [times[topic] if at is None else at for topic, at in zip(topics, own, strict=True)]

    def _topic_of(self, stream: StreamRef) -> StreamRef:
        """Return the stream that a partition's topic is if it is the only one."""
        partition = self._settings.names.from_stream(stream)
        return stream if partition.whole else self._settings.names.to_stream(partition.topic)

    async def _delete(self, operation: DeleteStream) -> None:
        created = await self._creations.kept(operation.stream)
        await self._topics.delete(operation.stream)
        await self._forget(self._settings.names.from_stream(operation.stream))
        await self._creations.forget(operation.stream, created)

    async def _forget(self, partition: TopicPartition) -> None:
        await self._positions.forget(partition)
        self._writers.pop(partition, None)

    async def _config(self, operation: GetStreamConfig) -> StreamConfig:
        return await self._topics.config(await self._find(operation.stream, None, False))

    async def _reconfigure(self, operation: ReconfigureStream) -> StreamConfig:
        config = await self._topics.reconfigure(operation.stream, operation.patch)
        self._writers.pop(self._settings.names.from_stream(operation.stream), None)
        return config

    async def _list(self, operation: ListStreams) -> Page[StreamInfo]:
        names, has_more = await self._topics.names(operation)
        times = await self._creation_times([StreamRef(operation.basin, name) for name in names])
        infos = [StreamInfo(name=name, created_at=at) for name, at in zip(names, times, strict=True)]
        return Page(infos, has_more)


@asynccontextmanager
async def open_kafka(
    first: Sequence[Upstream],
    state: Back,
    settings: KafkaBackSettings,
    server: Callable[[UpstreamSettings], Upstream],
    clock: Clock = wall_clock,
) -> AsyncIterator[KafkaBack]:
    """Open a cluster until the block ends; no connection is made before one is needed. See `Brokers`."""
    brokers = Brokers(first, settings, server)
    try:
        async with background() as nursery:
            yield KafkaBack(brokers, state, clock, nursery)
    finally:
        with trio.CancelScope(shield=True):
            await brokers.close()
