"""APIs that create, delete and describe topics, and change their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.core.back import Back
from penstock.protocols.kafka.front.call import KafkaCall, KafkaHandlers
from penstock.protocols.kafka.front.settings import KafkaSettings
from penstock.protocols.kafka.sequences import KafkaRefusal
from penstock.protocols.kafka.topic_ids import TopicIds
from penstock.protocols.kafka.topics import KafkaTopics
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.kafka import KafkaError
from penstock_codecs.kafka.batches import LARGEST
from penstock_codecs.kafka.config_messages import (
    AlteredConfig,
    AlteredResource,
    AlteredResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock_codecs.kafka.schema import NO_UUID
from penstock_codecs.kafka.topic_messages import (
    ConfigEntry,
    ConfigResource,
    CreatableTopic,
    CreatableTopicConfig,
    CreatedTopic,
    CreatedTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfigs,
)
from penstock_codecs.limits import S2_MAX_RECORD
from penstock_codecs.operations import GetStreamConfig, ReconfigureStream
from penstock_codecs.streams import (
    DEFAULT_STREAM_CONFIG,
    INFINITE,
    Retention,
    StreamConfig,
    StreamConfigPatch,
    TimestampingMode,
)

__all__ = ["AdministrationHandlers"]

_TOPIC, _BROKER = 2, 4
"""Types of resources."""
_OWN, _DEFAULT = 1, 5
"""Sources of a setting: the topic's own, or the default."""
_STRING, _INT, _LONG, _LIST = 2, 3, 5, 7
"""Types of settings."""
_RETENTION: Final = "retention.ms"
_TIMESTAMPS: Final = "message.timestamp.type"
_POLICY: Final = "cleanup.policy"
_ARRIVAL: Final = "LogAppendTime"
_CREATION: Final = "CreateTime"
_SET, _RESET = 0, 1
"""Changes to a setting: a value, or back to the default."""


class _Refusal(Exception):
    """A topic that cannot be created, or changed, as it is wanted."""

    def __init__(self, code: KafkaError, message: str) -> None:
        super().__init__(message)
        self.code = code


class AdministrationHandlers:
    """Handlers of CreateTopics, DeleteTopics, DescribeConfigs and IncrementalAlterConfigs."""

    def __init__(self, back: Back, topics: KafkaTopics, ids: TopicIds, settings: KafkaSettings) -> None:
        self._back = back
        self._topics = topics
        self._ids = ids
        self._settings = settings
        self.handlers: KafkaHandlers = {
            CreateTopicsRequest: self._create,
            DeleteTopicsRequest: self._delete,
            DescribeConfigsRequest: self._describe,
            IncrementalAlterConfigsRequest: self._alter,
        }

    # ---- creation and deletion ---------------------------------------------------------------------------------------

    async def _create(self, request: CreateTopicsRequest, call: KafkaCall) -> CreateTopicsResponse:
        names = [topic.name for topic in request.topics]
        created = []
        for topic in request.topics:
            try:
                if names.count(topic.name) > 1:
                    raise _Refusal(KafkaError.INVALID_REQUEST, f"topic {topic.name} is in the request more than once")
                created.append(await self._created(topic, call, only_checks=request.validate_only))
            except _Refusal as refusal:
                created.append(CreatedTopic(name=topic.name, error_code=refusal.code, error_message=str(refusal)))
            except OperationFailed as error:
                created.append(
                    CreatedTopic(
                        name=topic.name, error_code=call.refused(error.failure), error_message=error.failure.message
                    )
                )
        return CreateTopicsResponse(topics=created)

    async def _created(self, topic: CreatableTopic, call: KafkaCall, *, only_checks: bool) -> CreatedTopic:
        count = self._count(topic, call)
        config = _config_of(topic.configs)
        topic_id = NO_UUID
        if only_checks:
            await self._topics.check_absent(topic.name)
        else:
            await self._topics.create(topic.name, count, config)
            topic_id = await self._ids.of(topic.name)
        configs = [
            CreatedTopicConfig(name=one.name, value=one.value, read_only=True, config_source=one.config_source)
            for one in _settings_of(config.resolve())
        ]
        return CreatedTopic(
            name=topic.name, topic_id=topic_id, num_partitions=count, replication_factor=1, configs=configs
        )

    def _count(self, topic: CreatableTopic, call: KafkaCall) -> int:
        """Return the number of partitions that a topic is to have."""
        if topic.assignments:
            if sorted(one.partition_index for one in topic.assignments) != list(range(len(topic.assignments))):
                raise _Refusal(KafkaError.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 without a gap")
            nodes = [broker.node_id for broker in call.list_brokers()]
            if any(len(one.broker_ids) != 1 or one.broker_ids[0] not in nodes for one in topic.assignments):
                raise _Refusal(KafkaError.INVALID_REPLICA_ASSIGNMENT, f"each has one replica, on one of {nodes}")
            count = len(topic.assignments)
        else:
            count = self._settings.partitions if topic.num_partitions == -1 else topic.num_partitions
            if topic.replication_factor not in (-1, 1):
                why = f"replication factor {topic.replication_factor}: the gateway is the only broker"
                raise _Refusal(KafkaError.INVALID_REPLICATION_FACTOR, why)
        if not 0 < count <= self._settings.max_partitions:
            why = f"{count} partitions, where 1 to {self._settings.max_partitions} are allowed (max_partitions)"
            raise _Refusal(KafkaError.INVALID_PARTITIONS, why)
        return count

    async def _delete(self, request: DeleteTopicsRequest, call: KafkaCall) -> DeleteTopicsResponse:
        wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
        return DeleteTopicsResponse(responses=[await self._deleted(one, call) for one in wanted])

    async def _deleted(self, topic: DeleteTopicState, call: KafkaCall) -> DeletedTopic:
        found = DeletedTopic(name=topic.name, topic_id=topic.topic_id)
        try:
            if topic.name is None:
                found.name = await self._ids.name_of(topic.topic_id)
            else:
                with suppress(OperationFailed):  # only a rest of it may be there
                    found.topic_id = await self._ids.of(topic.name)
            await self._topics.delete(found.name or "")
        except KafkaRefusal as refusal:
            call.refusals += 1
            found.error_code, found.error_message = refusal.code, str(refusal)
        except OperationFailed as error:
            found.error_code, found.error_message = call.refused(error.failure), error.failure.message
        return found

    # ---- settings ----------------------------------------------------------------------------------------------------

    async def _describe(self, request: DescribeConfigsRequest, call: KafkaCall) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[await self._described(one, call) for one in request.resources])

    async def _described(self, resource: ConfigResource, call: KafkaCall) -> DescribedConfigs:
        found = DescribedConfigs(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            settings = await self._settings_of(resource, call)
        except OperationFailed as error:
            found.error_code, found.error_message = call.refused(error.failure), error.failure.message
            return found
        wanted = resource.configuration_keys
        found.configs = [one for one in settings if wanted is None or one.name in wanted]
        return found

    async def _settings_of(self, resource: ConfigResource, call: KafkaCall) -> list[ConfigEntry]:
        if resource.resource_type == _TOPIC:
            config = await self._topics.on(
                resource.resource_name, 0, lambda stream: self._back.perform(GetStreamConfig(stream))
            )
            return list(_settings_of(config))
        brokers = [str(broker.node_id) for broker in call.list_brokers()]
        if resource.resource_type == _BROKER and resource.resource_name in ("", *brokers):
            return [
                _entry("num.partitions", str(self._settings.partitions), _INT),
                _entry("default.replication.factor", "1", _INT),
                _entry("message.max.bytes", str(S2_MAX_RECORD), _INT),
            ]
        what = f"resource {resource.resource_name!r:.80} of type {resource.resource_type}"
        raise fail(FailureCode.INVALID, f"{what} has no settings: topics (2) have, and brokers {brokers} (4)")

    async def _alter(self, request: IncrementalAlterConfigsRequest, call: KafkaCall) -> IncrementalAlterConfigsResponse:
        altered = [await self._altered(one, call, only_checks=request.validate_only) for one in request.resources]
        return IncrementalAlterConfigsResponse(responses=altered)

    async def _altered(self, resource: AlteredResource, call: KafkaCall, *, only_checks: bool) -> AlteredResourceResult:
        """Change the streams of all partitions of a topic."""
        found = AlteredResourceResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if resource.resource_type != _TOPIC:
                raise _Refusal(KafkaError.INVALID_REQUEST, "only settings of topics (2) can be changed")
            patch = _patch_of(resource.configs)
            for stream, _ in (await self._topics.creations(resource.resource_name)).values():
                await self._back.perform(GetStreamConfig(stream) if only_checks else ReconfigureStream(stream, patch))
        except _Refusal as refusal:
            call.refusals += 1
            found.error_code, found.error_message = refusal.code, str(refusal)
        except OperationFailed as error:
            found.error_code, found.error_message = call.refused(error.failure), error.failure.message
        return found


def _config_of(settings: Sequence[CreatableTopicConfig]) -> StreamConfig:
    """Return the configuration layer of a new stream. Raises _Refusal for settings without a counterpart."""
    values: dict[str, Any] = {}
    for setting in settings:
        values |= _fields_of(setting.name, setting.value)
    return StreamConfig(**values)


def _patch_of(changes: Sequence[AlteredConfig]) -> StreamConfigPatch:
    """Return the change to a stream's configuration. Raises _Refusal for settings without a counterpart."""
    values: dict[str, Any] = {}
    names = [change.name for change in changes]
    for change in changes:
        if names.count(change.name) > 1:
            raise _Refusal(KafkaError.INVALID_REQUEST, f"{change.name:.80} is changed more than once")
        if change.config_operation == _SET:
            values |= _fields_of(change.name, change.value)
        elif change.config_operation == _RESET and change.name in _AT_FIRST:
            values |= dict.fromkeys(_fields_of(change.name, _AT_FIRST[change.name]))
        else:
            why = (
                f"operation {change.config_operation} on {change.name:.80}: {', '.join(_AT_FIRST)} can be set and reset"
            )
            raise _Refusal(KafkaError.INVALID_CONFIG, why)
    return StreamConfigPatch(**values)


_AT_FIRST: Final = {_RETENTION: "-1", _TIMESTAMPS: _CREATION, _POLICY: "delete"}
"""The settings that can be changed, each with a value that it may have."""


_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def _fields_of(name: str, value: str | None) -> dict[str, Any]:
    """Return the fields of a stream's configuration that a setting gives. Raises _Refusal for one without a
    counterpart."""
    if name == _RETENTION and value is not None and _NUMBER.fullmatch(value) and int(value) <= LARGEST:
        return {"retention": INFINITE if int(value) < 0 else Retention(max(1, int(value) // 1000))}
    if name == _TIMESTAMPS and value in (_CREATION, _ARRIVAL):
        mode = TimestampingMode.ARRIVAL if value == _ARRIVAL else TimestampingMode.CLIENT_PREFER
        return {"timestamping_mode": mode}
    if (name, value) == (_POLICY, "delete"):
        return {}
    why = f"{name:.80} = {value!r:.80}: {_RETENTION}, {_TIMESTAMPS} and {_POLICY} = delete can be set"
    raise _Refusal(KafkaError.INVALID_CONFIG, why)


def _settings_of(config: StreamConfig) -> Iterator[ConfigEntry]:
    """Yield the settings of a topic; `config` is resolved."""
    retention = config.retention or INFINITE
    age = -1 if retention.age_seconds is None else retention.age_seconds * 1000
    by_arrival = config.timestamping_mode is TimestampingMode.ARRIVAL
    yield _entry(_POLICY, "delete", _LIST)
    yield _entry(_RETENTION, str(age), _LONG, own=config.retention != DEFAULT_STREAM_CONFIG.retention)
    yield _entry(_TIMESTAMPS, _ARRIVAL if by_arrival else _CREATION, _STRING, own=by_arrival)
    yield _entry("max.message.bytes", str(S2_MAX_RECORD), _INT)


def _entry(name: str, value: str, kind: int, *, own: bool = False) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, config_source=_OWN if own else _DEFAULT, config_type=kind)
