"""Versions, metadata, topics and their settings, and the ends of connections."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs
from support.kafka.front import CannotList, Client, Connect, fetched, records, serving

from penstock.backends.embedded import EmbeddedBack
from penstock.core.address import Address
from penstock.model.failures import OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteStream,
    GetStreamConfig,
    ReconfigureBasin,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfigPatch, Retention, StreamConfig, TimestampingMode
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
    TopicAsked,
    TopicPartitionsCursor,
)
from penstock_kafka.codec.config_messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredConfig,
    AlteredResource,
    AlteredResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ReplacedConfig,
    ReplacedResource,
)
from penstock_kafka.codec.inspection_messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducersTopic,
    TopicPartitions,
)
from penstock_kafka.codec.topic_messages import (
    ConfigResource,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    GrowingTopic,
    NewPartitionBrokers,
)
from penstock_kafka.front import KafkaSettings


async def metadata(client: Client, *topics: str, creates: bool = False) -> dict[str, MetadataTopic]:
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=asked or None, allow_auto_topic_creation=creates)
    return {topic.name: topic for topic in (await client.call(request, MetadataResponse)).topics}


async def created(client: Client, topic: CreatableTopic, *, only_checks: bool = False) -> CreatedTopic:
    request = CreateTopicsRequest(topics=[topic], validate_only=only_checks)
    return (await client.call(request, CreateTopicsResponse)).topics[0]


async def test_the_apis_that_are_offered(client: Client) -> None:
    offered = await client.call(ApiVersionsRequest(), ApiVersionsResponse)
    found = {one.api_key: (one.min_version, one.max_version) for one in offered.api_keys}
    assert found[0] == (0, 13) and found[1] == (4, 18) and found[18] == (0, 4)


async def test_an_unknown_version_of_apis_is_answered_with_the_known_ones(client: Client) -> None:
    await client.stream.send_all(bytes.fromhex("0000000a 0012 0063 00000009 ffff"))
    answer = await client.stream.receive_some(65536)
    assert answer[4:10] == b"\0\0\0\x09\0\x23"
    offered = await client.call(ApiVersionsRequest(), ApiVersionsResponse)
    assert offered.error_code == 0, "the connection goes on"


async def test_metadata_names_the_gateway_as_the_only_broker(connect: Connect, back: EmbeddedBack) -> None:
    settings = KafkaSettings(advertise=Address("kafka.example", 9999))
    async with serving(back, settings) as (advertised, _):
        answer = await advertised().call(MetadataRequest(topics=[]), MetadataResponse)
        assert [(one.host, one.port, one.node_id) for one in answer.brokers] == [("kafka.example", 9999, 1)]
        cluster = await advertised().call(DescribeClusterRequest(), DescribeClusterResponse)
        assert (cluster.brokers[0].host, cluster.controller_id) == ("kafka.example", 1)
        controllers = await advertised().call(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
        assert controllers.error_code == KafkaError.INVALID_REQUEST


async def test_metadata_of_all_topics(client: Client, back: EmbeddedBack) -> None:
    for name in ("set/0", "set/1", "no topic"):
        await back.perform(CreateStream(StreamRef("penstock", name)))
    found = await metadata(client)
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"set": 2, "t": 1}
    assert [one.partition_index for one in found["set"].partitions] == [0, 1]
    old = await client.call(MetadataRequest(topics=[]), MetadataResponse, version=0)
    assert [topic.name for topic in old.topics] == ["set", "t"], "in version 0 no topics stand for all"


async def test_a_missing_topic_is_created_if_request_and_basin_allow_it(client: Client, back: EmbeddedBack) -> None:
    assert (await metadata(client, "new"))["new"].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert (await metadata(client, "new", creates=True))["new"].error_code == 0
    await back.perform(CheckTail(StreamRef("penstock", "new"), create_if_missing=False))
    await back.perform(ReconfigureBasin("penstock", BasinConfigPatch(create_stream_on_append=False)))
    assert (await metadata(client, "other", creates=True))["other"].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    bad = (await metadata(client, "a/b", creates=True))["a/b"]
    assert bad.error_code == KafkaError.INVALID_TOPIC_EXCEPTION


async def test_topics_are_created_with_partitions_and_settings(client: Client, back: EmbeddedBack) -> None:
    configs = [
        CreatableTopicConfig(name="retention.ms", value="3600000"),
        CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime"),
        CreatableTopicConfig(name="cleanup.policy", value="delete"),
    ]
    topic = CreatableTopic(name="new", num_partitions=3, replication_factor=1, configs=configs)
    checked = await created(client, topic, only_checks=True)
    assert (checked.error_code, checked.num_partitions) == (0, 3)
    assert "new" not in await metadata(client)
    assert (await created(client, topic)).error_code == 0
    assert len((await metadata(client, "new"))["new"].partitions) == 3
    config = await back.perform(GetStreamConfig(StreamRef("penstock", "new/2")))
    assert (config.retention, config.timestamping_mode) == (Retention(3600), TimestampingMode.ARRIVAL)
    assert (await created(client, topic)).error_code == KafkaError.TOPIC_ALREADY_EXISTS
    described = await client.call(
        DescribeConfigsRequest(resources=[ConfigResource(resource_type=2, resource_name="new")]),
        DescribeConfigsResponse,
    )
    found = {one.name: (one.value, one.config_source) for one in described.results[0].configs}
    assert found["retention.ms"] == ("3600000", 1) and found["cleanup.policy"] == ("delete", 5)
    assert found["message.timestamp.type"] == ("LogAppendTime", 1)


@pytest.mark.parametrize("value", ["0", "-9223372036854775808", "9223372036854775807"])
async def test_every_retention_of_kafka_is_taken(client: Client, value: str) -> None:
    topic = CreatableTopic(name="new", configs=[CreatableTopicConfig(name="retention.ms", value=value)])
    assert (await created(client, topic)).error_code == 0


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic(name="a/b"), KafkaError.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="t"), KafkaError.TOPIC_ALREADY_EXISTS),
        (CreatableTopic(name="x", replication_factor=3), KafkaError.INVALID_REPLICATION_FACTOR),
        (CreatableTopic(name="x", num_partitions=0), KafkaError.INVALID_PARTITIONS),
        (CreatableTopic(name="x", num_partitions=101), KafkaError.INVALID_PARTITIONS),
        (
            CreatableTopic(name="x", configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")]),
            KafkaError.INVALID_CONFIG,
        ),
        (
            CreatableTopic(name="x", configs=[CreatableTopicConfig(name="retention.ms", value="long")]),
            KafkaError.INVALID_CONFIG,
        ),
        *(
            (
                CreatableTopic(name="x", configs=[CreatableTopicConfig(name="retention.ms", value=value)]),
                KafkaError.INVALID_CONFIG,
            )
            for value in ("--5", "\u00b2", "9" * 5000, str(1 << 63))
        ),
        (
            CreatableTopic(name="x", assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[2])]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic(name="x", assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
async def test_a_topic_that_cannot_be_as_it_is_wanted_is_refused(
    client: Client, topic: CreatableTopic, code: KafkaError
) -> None:
    refused = await created(client, topic)
    assert refused.error_code == code and refused.error_message


async def test_a_topic_that_a_request_names_twice_is_refused(client: Client) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="x"), CreatableTopic(name="x")])
    answer = await client.call(request, CreateTopicsResponse)
    assert [one.error_code for one in answer.topics] == [KafkaError.INVALID_REQUEST] * 2
    assert "x" not in await metadata(client)


async def test_topics_are_deleted_with_all_partitions(client: Client, back: EmbeddedBack) -> None:
    await created(client, CreatableTopic(name="set", num_partitions=3))
    await back.perform(CreateStream(StreamRef("penstock", "set/3/other")))
    answer = await client.call(DeleteTopicsRequest(topic_names=["t", "set", "nope"]), DeleteTopicsResponse)
    codes = [one.error_code for one in answer.responses]
    assert codes == [0, 0, KafkaError.UNKNOWN_TOPIC_OR_PARTITION]
    assert await metadata(client) == {}
    await back.perform(CheckTail(StreamRef("penstock", "set/3/other"), create_if_missing=False))


async def test_a_topic_can_be_deleted_by_its_id(client: Client) -> None:
    await created(client, CreatableTopic(name="set", num_partitions=2))
    found = await metadata(client, "set", "t")
    wanted = [DeleteTopicState(topic_id=found["set"].topic_id), DeleteTopicState(name="t")]
    for known in (True, False):
        answer = await client.call(DeleteTopicsRequest(topics=wanted), DeleteTopicsResponse, version=6)
        by_id, by_name = answer.responses
        if known:
            assert (by_id.error_code, by_id.name, by_id.topic_id) == (0, "set", found["set"].topic_id)
            assert (by_name.error_code, by_name.name, by_name.topic_id) == (0, "t", found["t"].topic_id)
        else:
            assert (by_id.error_code, by_id.name) == (KafkaError.UNKNOWN_TOPIC_ID, None)
            assert by_name.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


async def test_what_an_interrupted_creation_left_is_named_and_can_be_deleted(
    client: Client, back: EmbeddedBack
) -> None:
    """Partition 0 is created last, so there is no topic yet."""
    await back.perform(CreateStream(StreamRef("penstock", "half/1")))
    assert "half" not in await metadata(client)
    refused = await created(client, CreatableTopic(name="half", num_partitions=2))
    assert refused.error_message == "topic half exists in part: stream penstock/half/1"
    await client.call(DeleteTopicsRequest(topic_names=["half"]), DeleteTopicsResponse)
    assert (await created(client, CreatableTopic(name="half", num_partitions=2))).error_code == 0


async def test_on_a_back_that_cannot_list_streams_topics_are_found_by_name(back: EmbeddedBack) -> None:
    async with serving(CannotList(back)) as (connect, _):
        client = connect()
        assert (await created(client, CreatableTopic(name="one"))).error_code == 0
        assert (await created(client, CreatableTopic(name="set", num_partitions=3))).error_code == 0
        found = await metadata(client, "one", "set", "nope")
        assert [len(found[name].partitions) for name in ("one", "set", "nope")] == [1, 3, 0]
        assert found["nope"].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        assert await metadata(client) == {}
        answer = await client.call(DeleteTopicsRequest(topic_names=["set"]), DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0
        assert (await created(client, CreatableTopic(name="set"))).error_code == 0


async def test_settings_of_the_broker_and_of_nothing(client: Client) -> None:
    resources = [
        ConfigResource(resource_type=4, resource_name="1", configuration_keys=["num.partitions"]),
        ConfigResource(resource_type=4, resource_name="2"),
        ConfigResource(resource_type=2, resource_name="nope"),
    ]
    answer = await client.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    broker, other, missing = answer.results
    assert [(one.name, one.value) for one in broker.configs] == [("num.partitions", "1")]
    assert other.error_code == KafkaError.INVALID_REQUEST
    assert missing.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


# ---- connections -----------------------------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(client: Client) -> None:
    await client.send(MetadataRequest(topics=[]))
    await client.send(ApiVersionsRequest())
    await client.send(DescribeClusterRequest())
    kinds = [type(await client.response()) for _ in range(3)]
    assert kinds == [MetadataResponse, ApiVersionsResponse, DescribeClusterResponse]


@pytest.mark.parametrize("sent", ["00000003", "0000000a 0003 000a 00000001 ffff", "0000000a 0063 0000 00000001 ffff"])
async def test_a_request_that_breaks_the_protocol_ends_the_connection(client: Client, sent: str) -> None:
    await client.stream.send_all(bytes.fromhex(sent))
    assert await client.ended()


async def test_an_api_without_a_handler_ends_the_connection(back: EmbeddedBack) -> None:
    async with serving(back) as (connect, front):
        del front.handlers[MetadataRequest]
        client = connect()
        await client.send(MetadataRequest(topics=[]))
        assert await client.ended()


async def test_a_silent_client_is_disconnected(client: Client, clock: object) -> None:
    started = trio.current_time()
    await client.produce(records(b"x"))
    assert await client.ended()
    assert trio.current_time() - started >= 600


async def test_a_drain_finishes_the_request_in_progress(back: EmbeddedBack, client: Client) -> None:
    async with serving(back) as (connect, front):
        one = connect()
        await one.produce(records(b"x"))
        front.drain()
        assert await one.ended()


# ---- CreatePartitions and inspection --------------------------------------------------------------------------------


async def grown(client: Client, topic: str, count: int, **options: list[NewPartitionBrokers]) -> KafkaError:
    request = CreatePartitionsRequest(topics=[GrowingTopic(name=topic, count=count, **options)])
    [result] = (await client.call(request, CreatePartitionsResponse)).results
    assert bool(result.error_code) == bool(result.error_message)
    return KafkaError(result.error_code)


async def test_a_topic_of_several_partitions_gets_more(client: Client, back: EmbeddedBack) -> None:
    configs = [CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime")]
    await created(client, CreatableTopic(name="set", num_partitions=2, configs=configs))
    checked = CreatePartitionsRequest(topics=[GrowingTopic(name="set", count=4)], validate_only=True)
    assert (await client.call(checked, CreatePartitionsResponse)).results[0].error_code == 0
    assert len((await metadata(client, "set"))["set"].partitions) == 2
    on_one = [NewPartitionBrokers(broker_ids=[1])]
    assert await grown(client, "set", 4, assignments=on_one) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    assert await grown(client, "set", 3, assignments=on_one) == 0
    assert await grown(client, "set", 4) == 0
    assert [one.partition_index for one in (await metadata(client, "set"))["set"].partitions] == [0, 1, 2, 3]
    config = await back.perform(GetStreamConfig(StreamRef("penstock", "set/3")))
    assert config.timestamping_mode is TimestampingMode.ARRIVAL
    for count in (4, 3, 101):
        assert await grown(client, "set", count) == KafkaError.INVALID_PARTITIONS
    assert await grown(client, "none", 2) == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_is_one_stream_gets_no_partitions_beside_it(client: Client) -> None:
    await client.produce(records(b"x"))
    assert await grown(client, "t", 2) == KafkaError.INVALID_PARTITIONS
    assert fetched(await client.fetch()) == [(0, None, b"x")]


async def test_log_dirs_and_producers_are_those_of_existing_partitions(client: Client) -> None:
    await created(client, CreatableTopic(name="set", num_partitions=2))
    for topics, expected in (
        (None, {"set": [0, 1], "t": [0]}),
        (
            [TopicPartitions(topic="set", partitions=[1, 2, -1]), TopicPartitions(topic="no", partitions=[0])],
            {"set": [1]},
        ),
    ):
        [directory] = (await client.call(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)).results
        assert {topic.name: [one.partition_index for one in topic.partitions] for topic in directory.topics} == expected
    request = DescribeProducersRequest(topics=[ProducersTopic(name="set", partition_indexes=[1, 2])])
    [topic] = (await client.call(request, DescribeProducersResponse)).topics
    codes = {one.partition_index: one.error_code for one in topic.partitions}
    assert codes == {1: 0, 2: KafkaError.UNKNOWN_TOPIC_OR_PARTITION}


# ---- settings that change --------------------------------------------------------------------------------------------


async def altered(
    client: Client, *configs: AlteredConfig, topic: str = "t", kind: int = 2, only_checks: bool = False
) -> AlteredResourceResult:
    resource = AlteredResource(resource_type=kind, resource_name=topic, configs=list(configs))
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_checks)
    return (await client.call(request, IncrementalAlterConfigsResponse)).responses[0]


def setting(name: str, value: str | None, operation: int = 0) -> AlteredConfig:
    return AlteredConfig(name=name, config_operation=operation, value=value)


async def test_settings_of_all_partitions_change_and_return_to_the_default(client: Client, back: EmbeddedBack) -> None:
    await created(client, CreatableTopic(name="set", num_partitions=2))
    before = [await back.perform(GetStreamConfig(StreamRef("penstock", f"set/{number}"))) for number in range(2)]
    changes = (
        setting("retention.ms", "7200000"),
        setting("message.timestamp.type", "LogAppendTime"),
        setting("cleanup.policy", "delete"),
    )

    async def configs() -> list[StreamConfig]:
        return [await back.perform(GetStreamConfig(StreamRef("penstock", f"set/{number}"))) for number in range(2)]

    assert (await altered(client, *changes, topic="set", only_checks=True)).error_code == 0
    assert await configs() == before
    assert (await altered(client, *changes, topic="set")).error_code == 0
    for config in await configs():
        assert (config.retention, config.timestamping_mode) == (Retention(7200), TimestampingMode.ARRIVAL)
    assert (await altered(client, setting("retention.ms", None, 1), topic="set")).error_code == 0
    for config in await configs():
        assert (config.retention, config.timestamping_mode) == (before[0].retention, TimestampingMode.ARRIVAL)


async def described(client: Client, topic: str) -> dict[str, tuple[str | None, int]]:
    """Return the value and the source of each setting of a topic."""
    request = DescribeConfigsRequest(resources=[ConfigResource(resource_type=2, resource_name=topic)])
    [found] = (await client.call(request, DescribeConfigsResponse)).results
    assert found.error_code == 0
    return {one.name: (one.value, one.config_source) for one in found.configs}


async def test_settings_that_ask_for_nothing_here_are_told_back(client: Client, back: EmbeddedBack) -> None:
    """Those of Kafka Streams' repartition topics, and of topics that tools compare with a declaration."""
    values = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
        "min.insync.replicas": "2",
        "compression.type": "zstd",
        "max.message.bytes": "2000000",
    }
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]
    answer = await created(client, CreatableTopic(name="set", num_partitions=2, configs=configs))
    assert answer.error_code == 0
    assert values.items() <= {one.name: one.value for one in answer.configs or []}.items()
    found = await described(client, "set")
    assert values.items() <= {name: value for name, (value, _) in found.items()}.items()
    assert found["segment.bytes"] == ("52428800", 1) and found["retention.bytes"] == ("-1", 5)
    changes = setting("segment.ms", "1000"), setting("max.message.bytes", None, 1)
    assert (await altered(client, *changes, topic="set")).error_code == 0
    changed = await described(client, "set")
    assert changed == found | {"segment.ms": ("1000", 1), "max.message.bytes": ("1048576", 5)}
    for name in ("set/0", "set/1"):  # another protocol's client deletes it, and it is created again
        await back.perform(DeleteStream(StreamRef("penstock", name)))
    assert (await created(client, CreatableTopic(name="set", num_partitions=2))).error_code == 0
    assert "segment.bytes" not in await described(client, "set")


async def test_retention_by_size(client: Client, back: EmbeddedBack) -> None:
    """A setting of each partition: 0 keeps the newest batch, -1 has no bound."""
    size = CreatableTopicConfig(name="retention.bytes", value="25")
    assert (await created(client, CreatableTopic(name="small", num_partitions=2, configs=[size]))).error_code == 0
    assert (await described(client, "small"))["retention.bytes"] == ("25", 1)
    config = await back.perform(GetStreamConfig(StreamRef("penstock", "small/1")))
    assert config.retention_bytes == 25
    for value, entry in (("-1", ("-1", 5)), ("0", ("1", 1)), (None, ("-1", 5))):
        changed = setting("retention.bytes", value, int(value is None))
        assert (await altered(client, changed, topic="small")).error_code == 0
        assert (await described(client, "small"))["retention.bytes"] == entry


async def test_alter_configs_replaces_all_settings(client: Client) -> None:
    assert (await altered(client, setting("segment.ms", "1"), setting("retention.ms", "7200000"))).error_code == 0
    replaced = ReplacedResource(
        resource_type=2, resource_name="t", configs=[ReplacedConfig(name="segment.bytes", value="9")]
    )
    for only_checks in (True, False):
        before = await described(client, "t")
        request = AlterConfigsRequest(resources=[replaced], validate_only=only_checks)
        assert (await client.call(request, AlterConfigsResponse)).responses[0].error_code == 0
        assert (await described(client, "t") == before) == only_checks
    after = await described(client, "t")
    assert after["segment.bytes"] == ("9", 1) and after["retention.ms"] == ("604800000", 5)
    assert "segment.ms" not in after


async def test_a_refusal_of_compaction_says_what_works(client: Client) -> None:
    refused = await altered(client, setting("cleanup.policy", "compact,delete"))
    assert refused.error_code == KafkaError.INVALID_CONFIG
    assert "retention.ms = -1 keeps all records" in (refused.error_message or "")


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (KafkaError.INVALID_CONFIG, [setting("cleanup.policy", "compact")]),
        (KafkaError.INVALID_CONFIG, [setting("cleanup.policy", "compact", 2)]),
        (KafkaError.INVALID_CONFIG, [setting("retention.ms", None)]),
        (KafkaError.INVALID_CONFIG, [setting("retention.bytes", "1 MB")]),
        (KafkaError.INVALID_CONFIG, [setting("max.message.bytes", "16777217")]),
        (KafkaError.INVALID_CONFIG, [setting("compression.type", "brotli")]),
        (KafkaError.INVALID_CONFIG, [setting("segment.ms", str(1 << 63))]),
        (KafkaError.INVALID_CONFIG, [setting("no.such.setting", None, 1)]),
        (KafkaError.INVALID_REQUEST, [setting("retention.ms", "1000"), setting("retention.ms", "2000")]),
    ],
)
async def test_a_change_without_a_counterpart_is_refused(
    client: Client, back: EmbeddedBack, code: KafkaError, changes: list[AlteredConfig]
) -> None:
    before = await back.perform(GetStreamConfig(StreamRef("penstock", "t")))
    refused = await altered(client, setting("message.timestamp.type", "LogAppendTime"), *changes)
    assert refused.error_code == code and refused.error_message
    assert await back.perform(GetStreamConfig(StreamRef("penstock", "t"))) == before


async def test_only_topics_that_are_there_have_settings_to_change(client: Client) -> None:
    change = setting("retention.ms", "1000")
    assert (await altered(client, change, topic="none")).error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert (await altered(client, change, topic="1", kind=4)).error_code == KafkaError.INVALID_REQUEST


# ---- DescribeTopicPartitions -----------------------------------------------------------------------------------------


async def partitions(
    client: Client, *topics: str, limit: int = 2000, cursor: TopicPartitionsCursor | None = None
) -> DescribeTopicPartitionsResponse:
    asked = [TopicAsked(name=topic) for topic in topics]
    request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=limit, cursor=cursor)
    return await client.call(request, DescribeTopicPartitionsResponse)


async def test_partitions_are_described(client: Client) -> None:
    """With the ids of Metadata, in the order of names; those of topics that are not there have an error."""
    await created(client, CreatableTopic(name="set", num_partitions=3))
    known = await metadata(client, "set")
    missing, found, one = (await partitions(client, "t", "set", "none")).topics
    assert (missing.name, missing.error_code, missing.partitions) == (
        *("none", KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (),
    )
    assert (found.name, found.topic_id, one.name) == ("set", known["set"].topic_id, "t")
    assert [(part.partition_index, part.leader_id, part.isr_nodes) for part in found.partitions] == [
        (number, 1, (1,)) for number in range(3)
    ]


@pytest.mark.parametrize("limit", [-1, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("topics", [(), ("a", "set", "t", "none")], ids=["all", "some"])
async def test_a_listing_goes_on_at_its_cursor(client: Client, limit: int, topics: tuple[str, ...]) -> None:
    for name, count in (("a", 1), ("set", 3)):
        await created(client, CreatableTopic(name=name, num_partitions=count))
    seen: list[tuple[str | None, int]] = []
    cursor = None
    for _ in range(9):
        answer = await partitions(client, *topics, limit=limit, cursor=cursor)
        page = [(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions]
        assert len(page) <= max(limit, 1)
        seen += page
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("set", 0), ("set", 1), ("set", 2), ("t", 0)]


async def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it(client: Client) -> None:
    gone = TopicPartitionsCursor(topic_name="s", partition_index=7)
    assert [topic.name for topic in (await partitions(client, cursor=gone)).topics] == ["t"]
    negative = TopicPartitionsCursor(topic_name="t", partition_index=-3)
    assert len((await partitions(client, cursor=negative)).topics[0].partitions) == 1


# ---- the two shapes of a topic ---------------------------------------------------------------------------------------


async def test_no_client_of_another_protocol_hides_the_partitions_of_a_topic(
    client: Client, back: EmbeddedBack
) -> None:
    """Reads and appends create missing streams in this basin."""
    assert (await created(client, CreatableTopic(name="set", num_partitions=4))).error_code == 0
    for operation in (CheckTail(StreamRef("penstock", "set")), CreateStream(StreamRef("penstock", "set"))):
        with pytest.raises(OperationFailed, match=r"'set'.*divided into partitions"):
            await back.perform(operation)
    with pytest.raises(OperationFailed, match=r"'t/3'.*exists without partitions"):
        await back.perform(CheckTail(StreamRef("penstock", "t/3")))
    answer = await client.call(DeleteTopicsRequest(topic_names=["t"]), DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0
    assert (await created(client, CreatableTopic(name="t", num_partitions=2))).error_code == 0
    found = await metadata(client)
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"set": 4, "t": 2}


async def test_a_topic_in_both_shapes_is_named_in_the_log_and_deleted_as_a_whole(
    back: EmbeddedBack,
) -> None:
    """A store in which an older gateway created both."""
    for name in ("old", "old/0", "old/1"):
        await back.perform(CreateStream(StreamRef("penstock", name)))
    async with serving(back) as (connect, _):
        client = connect()
        with capture_logs() as logs:
            for _ in range(2):
                assert len((await metadata(client))["old"].partitions) == 1
        assert [(log["event"], log["topic"]) for log in logs if log["log_level"] == "warning"] == [
            ("topic_hides_partitions", "old")
        ]
        answer = await client.call(DeleteTopicsRequest(topic_names=["old"]), DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0
        assert await metadata(client) == {}
