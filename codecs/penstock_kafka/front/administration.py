"""APIs that create, delete and describe topics, and change their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_RECORD_BYTES
from penstock.model.operations import GetStreamConfig, ReconfigureStream
from penstock.model.streams import StreamConfig
from penstock.tables.struct_table import StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.config_messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredConfig,
    AlteredResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.codec.topic_messages import (
    ConfigEntry,
    ConfigResource,
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfigs,
    GrowingTopic,
    GrownTopic,
)
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.settings import KafkaSettings
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topic_settings import (
    INT,
    SETTINGS,
    InertSettings,
    config_entry,
    settings_change,
    topic_settings,
)
from penstock_kafka.topics import KafkaTopics

__all__ = ["AdministrationHandlers"]

_TOPIC, _BROKER = 2, 4
"""Types of resources."""
_SET, _RESET = 0, 1
"""Changes to a setting: a value, or back to the default."""


class AdministrationHandlers:
    """Handlers of CreateTopics, CreatePartitions, DeleteTopics, DescribeConfigs, AlterConfigs and
    IncrementalAlterConfigs. `table` keeps the settings that no stream has."""

    def __init__(
        self, back: Back, topics: KafkaTopics, ids: TopicIds, settings: KafkaSettings, table: StructTable
    ) -> None:
        self._back = back
        self._topics = topics
        self._ids = ids
        self._settings = settings
        self._inert = InertSettings(table, topics)
        self.handlers: KafkaHandlers = {
            CreateTopicsRequest: self._create,
            CreatePartitionsRequest: self._create_partitions,
            DeleteTopicsRequest: self._delete,
            DescribeConfigsRequest: self._describe,
            AlterConfigsRequest: self._replace,
            IncrementalAlterConfigsRequest: self._alter,
        }

    # ---- creation and deletion ---------------------------------------------------------------------------------------

    async def _create(self, request: CreateTopicsRequest, call: KafkaCall) -> CreateTopicsResponse:
        counts: Counter[str] = Counter()
        async for topic in call.each(request.topics):
            counts[topic.name] += 1
        created = []
        async for topic in call.each(request.topics):
            try:
                if counts[topic.name] > 1:
                    raise KafkaRefusal(
                        KafkaError.INVALID_REQUEST, f"topic {topic.name} is in the request more than once"
                    )
                created.append(await self._created(topic, call, only_checks=request.validate_only))
            except KafkaRefusal as refusal:
                call.refusals += 1
                created.append(CreatedTopic(name=topic.name, error_code=refusal.code, error_message=str(refusal)))
            except OperationFailed as error:
                created.append(
                    CreatedTopic(
                        name=topic.name, error_code=call.refused(error.failure), error_message=error.failure.message
                    )
                )
        return CreateTopicsResponse(topics=created)

    async def _created(self, topic: CreatableTopic, call: KafkaCall, *, only_checks: bool) -> CreatedTopic:
        count = await self._count(topic, call)
        changes = {setting.name: setting.value or "" async for setting in call.each(topic.configs)}
        change = settings_change(changes, self._settings.max_batch_bytes)
        config = change.patch.apply(StreamConfig())
        topic_id = NO_UUID
        if only_checks:
            await self._topics.check_absent(topic.name)
        else:
            await self._topics.create(topic.name, count, config)
            topic_id = await self._ids.of(topic.name)
            await self._inert.update(topic.name, change.inert)
        configs = [
            CreatedTopicConfig(name=one.name, value=one.value, read_only=True, config_source=one.config_source)
            for one in topic_settings(config.resolve(), change.inert)
        ]
        return CreatedTopic(
            name=topic.name, topic_id=topic_id, num_partitions=count, replication_factor=1, configs=configs
        )

    async def _count(self, topic: CreatableTopic, call: KafkaCall) -> int:
        """Return the number of partitions that a topic is to have."""
        if topic.assignments:
            count, numbers = len(topic.assignments), set[int]()
            nodes = [broker.node_id for broker in call.list_brokers()]
            async for assignment in call.each(topic.assignments):
                if len(assignment.broker_ids) != 1 or assignment.broker_ids[0] not in nodes:
                    raise KafkaRefusal(
                        KafkaError.INVALID_REPLICA_ASSIGNMENT, f"each has one replica, on one of {nodes}"
                    )
                numbers.add(assignment.partition_index)
            if len(numbers) < count or not 0 <= min(numbers) <= max(numbers) < count:
                raise KafkaRefusal(
                    KafkaError.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 without a gap"
                )
        else:
            count = self._settings.partitions if topic.num_partitions == -1 else topic.num_partitions
            if topic.replication_factor not in (-1, 1):
                reason = f"replication factor {topic.replication_factor}: the gateway is the only broker"
                raise KafkaRefusal(KafkaError.INVALID_REPLICATION_FACTOR, reason)
        if not 0 < count <= self._settings.max_partitions:
            reason = f"{count} partitions, where 1 to {self._settings.max_partitions} are allowed (max_partitions)"
            raise KafkaRefusal(KafkaError.INVALID_PARTITIONS, reason)
        return count

    async def _create_partitions(self, request: CreatePartitionsRequest, call: KafkaCall) -> CreatePartitionsResponse:
        results = []
        async for topic in call.each(request.topics):
            result = GrownTopic(name=topic.name)
            try:
                await self._grow(topic, call, only_checks=request.validate_only)
            except KafkaRefusal as refusal:
                call.refusals += 1
                result.error_code, result.error_message = refusal.code, str(refusal)
            except OperationFailed as error:
                result.error_code, result.error_message = call.refused(error.failure), error.failure.message
            results.append(result)
        return CreatePartitionsResponse(results=results)

    async def _grow(self, topic: GrowingTopic, call: KafkaCall, *, only_checks: bool) -> None:
        """Add partitions to a topic, with the settings of its partition 0."""
        count, limit = await self._topics.partitions(topic.name), self._settings.max_partitions
        reason = ""
        if not count < topic.count <= limit:
            reason = f"{topic.count} partitions, where more than {count} and at most {limit} are allowed"
        elif count == 1 and (await self._topics.creations(topic.name))[0][0].stream == topic.name:
            reason = (
                f"topic {topic.name} is one stream, beside which its partitions cannot exist: delete it, and create it "
                "with several partitions"
            )
        if reason:
            raise KafkaRefusal(KafkaError.INVALID_PARTITIONS, reason)
        if topic.assignments is not None:
            nodes = [broker.node_id for broker in call.list_brokers()]
            brokers = [assignment.broker_ids async for assignment in call.each(topic.assignments)]
            if len(brokers) != topic.count - count or any(
                len(replicas) != 1 or replicas[0] not in nodes for replicas in brokers
            ):
                reason = f"each new partition has one replica, on one of {nodes}"
                raise KafkaRefusal(KafkaError.INVALID_REPLICA_ASSIGNMENT, reason)
        config = await self._topics.on(topic.name, 0, lambda stream: self._back.perform(GetStreamConfig(stream)))
        if not only_checks:
            own = StreamConfig(
                retention=config.retention,
                retention_bytes=config.retention_bytes,
                timestamping_mode=config.timestamping_mode,
            )
            await self._topics.grow(topic.name, count, topic.count, own)

    async def _delete(self, request: DeleteTopicsRequest, call: KafkaCall) -> DeleteTopicsResponse:
        wanted = request.topics or [DeleteTopicState(name=name) async for name in call.each(request.topic_names)]
        return DeleteTopicsResponse(responses=[await self._deleted(topic, call) async for topic in call.each(wanted)])

    async def _deleted(self, topic: DeleteTopicState, call: KafkaCall) -> DeletedTopic:
        outcome = DeletedTopic(name=topic.name, topic_id=topic.topic_id)
        try:
            if topic.name is None:
                outcome.name = await self._ids.name_of(topic.topic_id)
            else:
                with suppress(OperationFailed):  # only a rest of it may be there
                    outcome.topic_id = await self._ids.of(topic.name)
            await self._topics.delete(outcome.name or "")
            await self._inert.discard(outcome.name or "")
        except KafkaRefusal as refusal:
            call.refusals += 1
            outcome.error_code, outcome.error_message = refusal.code, str(refusal)
        except OperationFailed as error:
            outcome.error_code, outcome.error_message = call.refused(error.failure), error.failure.message
        return outcome

    # ---- settings ----------------------------------------------------------------------------------------------------

    async def _describe(self, request: DescribeConfigsRequest, call: KafkaCall) -> DescribeConfigsResponse:
        results = [await self._described(resource, call) async for resource in call.each(request.resources)]
        return DescribeConfigsResponse(results=results)

    async def _described(self, resource: ConfigResource, call: KafkaCall) -> DescribedConfigs:
        outcome = DescribedConfigs(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            settings = await self._settings_of(resource, call)
        except OperationFailed as error:
            outcome.error_code, outcome.error_message = call.refused(error.failure), error.failure.message
            return outcome
        names = resource.configuration_keys
        if names is not None:
            keys = {name async for name in call.each(names)}
            settings = [setting for setting in settings if setting.name in keys]
        outcome.configs = settings
        return outcome

    async def _settings_of(self, resource: ConfigResource, call: KafkaCall) -> list[ConfigEntry]:
        if resource.resource_type == _TOPIC:
            config = await self._topics.on(
                resource.resource_name, 0, lambda stream: self._back.perform(GetStreamConfig(stream))
            )
            return list(topic_settings(config, await self._inert.of(resource.resource_name)))
        brokers = [str(broker.node_id) for broker in call.list_brokers()]
        if resource.resource_type == _BROKER and resource.resource_name in ("", *brokers):
            return [
                config_entry("num.partitions", str(self._settings.partitions), INT),
                config_entry("default.replication.factor", "1", INT),
                config_entry("message.max.bytes", str(MAX_RECORD_BYTES), INT),
            ]
        what = f"resource {resource.resource_name!r:.80} of type {resource.resource_type}"
        raise fail(FailureCode.INVALID, f"{what} has no settings: topics (2) have, and brokers {brokers} (4)")

    async def _replace(self, request: AlterConfigsRequest, call: KafkaCall) -> AlterConfigsResponse:
        """Set the settings of topics that the request has, and reset all others."""
        outcomes = []
        async for resource in call.each(request.resources):
            changes: dict[str, str | None] = dict.fromkeys(SETTINGS)
            changes |= {setting.name: setting.value or "" async for setting in call.each(resource.configs)}
            named = resource.resource_type, resource.resource_name
            outcomes.append(await self._altered(*named, changes, call, only_checks=request.validate_only))
        return AlterConfigsResponse(responses=outcomes)

    async def _alter(self, request: IncrementalAlterConfigsRequest, call: KafkaCall) -> IncrementalAlterConfigsResponse:
        outcomes = []
        async for resource in call.each(request.resources):
            named = resource.resource_type, resource.resource_name
            try:
                changes = await _changes_of(resource.configs, call)
            except KafkaRefusal as refusal:
                call.refusals += 1
                outcomes.append(_outcome(*named, refusal.code, str(refusal)))
                continue
            outcomes.append(await self._altered(*named, changes, call, only_checks=request.validate_only))
        return IncrementalAlterConfigsResponse(responses=outcomes)

    async def _altered(
        self, kind: int, name: str, changes: Mapping[str, str | None], call: KafkaCall, *, only_checks: bool
    ) -> AlteredResourceResult:
        """Change the streams of all partitions of a topic; None resets a setting."""
        try:
            if kind != _TOPIC:
                raise KafkaRefusal(KafkaError.INVALID_REQUEST, "only settings of topics (2) can be changed")
            change = settings_change(changes, self._settings.max_batch_bytes)
            async for stream, _ in call.each((await self._topics.creations(name)).values()):
                reconfigure = ReconfigureStream(stream, change.patch)
                await self._back.perform(GetStreamConfig(stream) if only_checks else reconfigure)
            if not only_checks:
                await self._inert.update(name, change.inert)
        except KafkaRefusal as refusal:
            call.refusals += 1
            return _outcome(kind, name, refusal.code, str(refusal))
        except OperationFailed as error:
            return _outcome(kind, name, call.refused(error.failure), error.failure.message)
        return _outcome(kind, name)


def _outcome(
    kind: int, name: str, code: KafkaError = KafkaError.NONE, reason: str | None = None
) -> AlteredResourceResult:
    return AlteredResourceResult(error_code=code, error_message=reason, resource_type=kind, resource_name=name)


async def _changes_of(changes: Sequence[AlteredConfig], call: KafkaCall) -> dict[str, str | None]:
    """Return the new value of each setting, None to reset it. Raises KafkaRefusal."""
    values: dict[str, str | None] = {}
    async for change in call.each(changes):
        if change.name in values:
            raise KafkaRefusal(KafkaError.INVALID_REQUEST, f"{change.name:.80} is changed more than once")
        if change.config_operation not in (_SET, _RESET):
            reason = f"operation {change.config_operation} on {change.name:.80}: settings can be set (0) and reset (1)"
            raise KafkaRefusal(KafkaError.INVALID_CONFIG, reason)
        values[change.name] = None if change.config_operation == _RESET else change.value or ""
    return values
