"""Kafka's wire protocol, both roles: framing, messages by version, and record batches of format 2.

The facts are those of Apache Kafka's protocol guide, its message definitions, and the KIPs that comments name.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.model.limits import MIB
from penstock.wire.codec import Codec, CodecPlugin, Role
from penstock_kafka.codec import cluster_messages as cluster
from penstock_kafka.codec import record_messages as records
from penstock_kafka.codec.apis import API_OF, API_VERSIONS, APIS, KafkaApi
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.carrying import ENCODING
from penstock_kafka.codec.conversation import (
    MAX_FRAME,
    KafkaClient,
    KafkaRequest,
    KafkaResponse,
    KafkaServer,
    RawResponse,
)
from penstock_kafka.codec.errors import KafkaError, error_of
from penstock_kafka.codec.schema import KafkaMessage

__all__ = [
    "APIS",
    "API_OF",
    "API_VERSIONS",
    "MAX_FRAME",
    "PLUGIN",
    "KafkaApi",
    "KafkaClient",
    "KafkaError",
    "KafkaMessage",
    "KafkaRequest",
    "KafkaResponse",
    "KafkaServer",
    "RawResponse",
    "error_of",
]

DIALECT: Final = "4"


def _make(role: Role, dialect: str) -> Codec[Any, Any]:
    if dialect != DIALECT:
        raise ValueError(f"Kafka has the dialect {DIALECT!r}, not {dialect!r}")
    return KafkaServer() if role is Role.SERVER else KafkaClient(observer=True)


def _sample(role: Role, _dialect: str) -> bytes:
    """Return a short conversation: versions, a topic, an append, and a read, in old and in flexible versions."""
    batch = encode_batch(
        KafkaBatch(keys=[None, b"k"], values=[b"first", None], timestamps=[1_700_000_000_000] * 2, offsets=[0, 1])
    )
    produce = records.ProduceTopic(name="orders", partitions=[records.ProducePartition(index=0, records=batch)])
    fetch = records.FetchTopic(
        topic="orders", partitions=[records.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    )
    exchanges: list[tuple[int, int, KafkaMessage, KafkaMessage]] = [
        (
            18,
            3,
            cluster.ApiVersionsRequest(client_software_name="sample", client_software_version="1"),
            cluster.ApiVersionsResponse(
                api_keys=[cluster.ApiVersionRange(api_key=18, min_version=0, max_version=4)],
                supported_features=[cluster.SupportedFeature(name="f", min_version=0, max_version=1)],
            ),
        ),
        (
            3,
            1,
            cluster.MetadataRequest(topics=None),
            cluster.MetadataResponse(
                brokers=[cluster.MetadataBroker(node_id=1, host="localhost", port=9092)], topics=[]
            ),
        ),
        (
            0,
            9,
            records.ProduceRequest(acks=-1, timeout_ms=1000, topics=[produce]),
            records.ProduceResponse(
                topics=[
                    records.ProduceTopicResult(
                        name="orders", partitions=[records.ProducePartitionResult(index=0, base_offset=0)]
                    )
                ]
            ),
        ),
        (
            1,
            11,
            records.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[fetch]),
            records.FetchResponse(
                topics=[
                    records.FetchTopicResult(
                        topic="orders",
                        partitions=[records.FetchPartitionResult(partition_index=0, high_watermark=2, records=batch)],
                    )
                ]
            ),
        ),
    ]
    client, server, data = KafkaClient(), KafkaServer(), b""
    for number, (key, version, request_message, answered) in enumerate(exchanges):
        request = b"".join(client.send(KafkaRequest(APIS[key], version, number, "sample", request_message)))
        server.receive(request)
        received = server.next_event()
        assert isinstance(received, KafkaRequest)
        response = b"".join(server.send(KafkaResponse(received, answered)))
        data += request if role is Role.SERVER else response
    return data


PLUGIN: Final = CodecPlugin("kafka", _make, (DIALECT,), _sample, MAX_FRAME + MIB, encodings=(ENCODING,))
