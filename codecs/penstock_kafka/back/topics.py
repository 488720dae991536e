"""Streams as topics: created, deleted, listed, configured and trimmed by requests to the cluster.

A setting of a stream is one of a topic: its retention is `retention.ms` and `retention.bytes`, and its timestamping
mode `message.timestamp.type`. What topics cannot do is refused, and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import ListStreams
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE, Retention, StreamConfig, StreamConfigPatch, TimestampingMode
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.codec.client_errors import broker_failure
from penstock_kafka.codec.config_messages import (
    AlteredConfig,
    AlteredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock_kafka.codec.record_messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock_kafka.codec.topic_messages import (
    ConfigResource,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock_kafka.names import TopicPartition

__all__ = ["ClusterTopics"]

_TOPIC: Final = 2
_RETENTION: Final = "retention.ms"
_SIZE: Final = "retention.bytes"
_STAMPS: Final = "message.timestamp.type"
_POLICY: Final = "cleanup.policy"
_LARGEST: Final = "max.message.bytes"
_BY_ARRIVAL: Final = "LogAppendTime"
_BY_CLIENT: Final = "CreateTime"
_FIXED: Final = StreamConfig(storage_class="express", timestamping_uncapped=False, delete_on_empty_seconds=0)
_MODES: Final = {TimestampingMode.ARRIVAL: _BY_ARRIVAL, TimestampingMode.CLIENT_PREFER: _BY_CLIENT}
_INVALID_CONFIG: Final = 40


class ClusterTopics:
    """The topics of a cluster."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    # ---- creation and deletion ---------------------------------------------------------------------------------------

    async def create(self, stream: StreamRef, config: StreamConfig | None) -> bool:
        """Create a topic of one partition. Returns False if it exists.

        Records have the time of their arrival unless the configuration says otherwise. Raises NOT_REPRESENTABLE for a
        name that no topic, or only one of several partitions, can have, NOT_IMPLEMENTED for a configuration that no
        topic can have.
        """
        partition = self._whole(stream, "created")
        settings = {_STAMPS: _BY_ARRIVAL, **dict(_settings_of(stream, config or StreamConfig()))}
        return await self.create_topic(partition, settings, {_LARGEST: str(self._brokers.settings.max_batch_bytes)})

    async def create_topic(
        self, partition: TopicPartition, settings: Mapping[str, str], wished: Mapping[str, str]
    ) -> bool:
        """Create the topic of a sole partition. Returns False if it exists. `wished`: settings that it goes without if
        the server has them not."""
        code, message = await self._brokers.retrying(lambda: self._create(partition, {**settings, **wished}))
        if code == _INVALID_CONFIG:
            code, message = await self._brokers.retrying(lambda: self._create(partition, settings))
        failure = broker_failure(code, f"{self._brokers.where}, topic {partition.topic}", message) if code else None
        if failure is not None and failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
            raise OperationFailed(failure)
        await self._brokers.settled(partition.topic, exists=True)
        return failure is None

    async def _create(self, partition: TopicPartition, settings: Mapping[str, str]) -> tuple[int, str | None]:
        topic = CreatableTopic(
            name=partition.topic,
            num_partitions=1,
            replication_factor=self._brokers.settings.replicas,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._brokers.request_seconds * 1000))
        result = (await self._brokers.ask_controller(request, CreateTopicsResponse)).topics[0]
        return self._final(result.error_code, partition), result.error_message

    async def delete(self, stream: StreamRef) -> None:
        """Delete a topic. Raises STREAM_NOT_FOUND, NOT_IMPLEMENTED for one of several partitions."""
        partition = await self._brokers.find(stream)
        if not partition.whole:
            reason = f"stream {stream} is a partition of topic {partition.topic}, and partitions cannot be deleted"
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._brokers.where}: {reason}")
        seconds = int(self._brokers.request_seconds * 1000)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=partition.topic)], topic_names=[partition.topic], timeout_ms=seconds
        )

        async def attempt() -> None:
            result = (await self._brokers.ask_controller(request, DeleteTopicsResponse)).responses[0]
            code = self._final(result.error_code, partition)
            if code:
                raise OperationFailed(broker_failure(code, f"{self._brokers.where}, topic {partition.topic}"))

        await self._brokers.retrying(attempt, idempotent=False)
        await self._brokers.settled(partition.topic, exists=False)

    def _final(self, code: int, partition: TopicPartition) -> int:
        """Return an error that another try does not mend. Raises OperationFailed for the others."""
        if code and (failure := broker_failure(code, f"{self._brokers.where}, topic {partition.topic}")).retryable:
            raise OperationFailed(failure)
        return code

    def _whole(self, stream: StreamRef, what: str) -> TopicPartition:
        partition = self._brokers.settings.names.from_stream(stream)
        if not partition.whole:
            reason = f"stream {stream} is a partition of topic {partition.topic}, and topics of several are not {what}"
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._brokers.where}: {reason} by the gateway")
        return partition

    # ---- listing -----------------------------------------------------------------------------------------------------

    async def names(self, operation: ListStreams) -> tuple[list[str], bool]:
        """Return the names of streams, and whether there are more: a topic of several partitions is a set of them."""
        of_names = self._brokers.settings.names
        internal = bool(of_names.internal) and operation.basin == INTERNAL_BASIN
        if operation.basin != of_names.basin and not internal:
            raise fail(FailureCode.BASIN_NOT_FOUND, f"{self._brokers.where} has basin {operation.basin} not")
        metadata = await self._brokers.retrying(lambda: self._brokers.metadata(None))
        names = []
        for topic in metadata.topics:
            if topic.name is None or topic.is_internal or topic.error_code:
                continue
            own = of_names.internal_stream(topic.name)
            if internal and own is not None:
                names.append(own)
            elif not internal and own is None and topic.name != self._brokers.settings.state_topic:
                count = len(topic.partitions)
                names += [topic.name] if count == 1 else [f"{topic.name}/{number}" for number in range(count)]
        wanted = sorted(
            (name for name in names if name.startswith(operation.prefix) and name > operation.start_after),
            key=str.encode,
        )
        return wanted[: operation.limit], len(wanted) > operation.limit

    # ---- settings ----------------------------------------------------------------------------------------------------

    async def config(self, partition: TopicPartition) -> StreamConfig:
        """Return the configuration of a stream. Raises NOT_REPRESENTABLE for a topic that is compacted only: its
        records do not stay."""
        settings = await self.settings(partition, [_RETENTION, _SIZE, _STAMPS, _POLICY])
        age = int(settings.get(_RETENTION) or -1)
        by_arrival = settings.get(_STAMPS) == _BY_ARRIVAL
        return msgspec.structs.replace(
            _FIXED,
            retention=INFINITE if age < 0 else Retention(max(age // 1000, 1)),
            retention_bytes=max(int(settings.get(_SIZE) or -1), 0),
            timestamping_mode=TimestampingMode.ARRIVAL if by_arrival else TimestampingMode.CLIENT_PREFER,
        )

    async def settings(self, partition: TopicPartition, names: list[str]) -> Mapping[str, str | None]:
        """Return settings of a topic by name."""
        resource = ConfigResource(resource_type=_TOPIC, resource_name=partition.topic, configuration_keys=names)

        async def attempt() -> Mapping[str, str | None]:
            request = DescribeConfigsRequest(resources=[resource])
            result = (await self._brokers.ask_controller(request, DescribeConfigsResponse)).results[0]
            self._brokers.check(partition, result.error_code, result.error_message)
            return {setting.name: setting.value for setting in result.configs}

        return await self._brokers.retrying(attempt)

    async def reconfigure(self, stream: StreamRef, patch: StreamConfigPatch) -> StreamConfig:
        """Change settings of a topic; see `ReconfigureStream`. Raises NOT_IMPLEMENTED for what no topic can have."""
        partition = await self._brokers.find(stream)
        fields = {name: getattr(patch, name) for name in patch.__struct_fields__}
        changed = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        layer = StreamConfig(**{name: value for name, value in changed.items() if value is not None})
        settings: dict[str, str | None] = dict(_settings_of(stream, layer))
        for name, setting in (("retention", _RETENTION), ("retention_bytes", _SIZE), ("timestamping_mode", _STAMPS)):
            if name in changed and changed[name] is None:
                settings[setting] = None
        resource = AlteredResource(
            resource_type=_TOPIC,
            resource_name=partition.topic,
            configs=[
                AlteredConfig(name=name, config_operation=int(value is None), value=value)
                for name, value in settings.items()
            ],
        )

        async def attempt() -> None:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            found = (await self._brokers.ask_controller(request, IncrementalAlterConfigsResponse)).responses[0]
            self._brokers.check(partition, found.error_code, found.error_message)

        if settings:
            await self._brokers.retrying(attempt)
        return await self.config(partition)

    # ---- records -----------------------------------------------------------------------------------------------------

    async def trim(self, partition: TopicPartition, offset: int) -> int:
        """Delete the records before an offset; return the first that is left."""
        wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
            timeout_ms=int(self._brokers.request_seconds * 1000),
        )

        async def attempt() -> int:
            response = await self._brokers.ask_leader(partition, request, DeleteRecordsResponse)
            result = response.topics[0].partitions[0]
            self._brokers.check(partition, result.error_code)
            return result.low_watermark

        return await self._brokers.retrying(attempt)


def _settings_of(stream: StreamRef, config: StreamConfig) -> Iterator[tuple[str, str]]:
    """Yield the settings of a topic that a layer of a stream's configuration names. Raises NOT_IMPLEMENTED."""
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, Retention):
            yield _RETENTION, "-1" if value.age_seconds is None else str(value.age_seconds * 1000)
        elif name == "retention_bytes" and value is not None:
            yield _SIZE, str(value or -1)
        elif isinstance(value, TimestampingMode) and value in _MODES:
            yield _STAMPS, _MODES[value]
        elif value is not None and value != getattr(_FIXED, name):
            setting = value.value if isinstance(value, TimestampingMode) else value
            raise fail(FailureCode.NOT_IMPLEMENTED, f"stream {stream}: no topic of Kafka has {name} = {setting!r}")
