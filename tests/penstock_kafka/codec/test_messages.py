"""Every message in every version: what is encoded is decoded, also by kafka-python, which has Apache Kafka's own
message definitions."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.examples import examples
from support.kafka.messages import messages

from penstock_kafka.codec import APIS, KafkaApi, KafkaMessage
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    SupportedFeature,
)
from penstock_kafka.codec.record_messages import FetchPartitionResult, LeaderIdAndEpoch, ProduceRequest
from penstock_kafka.codec.wire import KafkaFault, KafkaReader

EACH = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
THEIRS = pytest.mark.parametrize(
    "api", [api for api in APIS.values() if not api.name.startswith("ConsumerGroup")], ids=lambda api: api.name
)
"""Those that kafka-python has."""
SIDES = pytest.mark.parametrize("side", ["request", "response"])
DEFINED_IN = ("metadata", "admin", "producer", "consumer", "sasl")
FIRST_DEFINED = {"Produce": 3}
"""Oldest versions that kafka-python defines, where that is not the first: Kafka 4 has dropped those before."""


@cache
def theirs(name: str) -> Any:
    """The class of a message in kafka-python."""
    pytest.importorskip("kafka", reason="kafka-python is not installed (group peers)")
    for module in DEFINED_IN:
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    raise AssertionError(f"kafka-python has no {name}")


def encoded(message: KafkaMessage, api: KafkaApi, version: int) -> bytes:
    try:
        return b"".join(message.encode(version, flexible=api.is_flexible(version)))
    except ValueError:  # this version cannot spell a null
        reject()


FEW = examples(share=4, most=25)
"""For each message; there are 60."""


def decoded(data: bytes, cls: type[KafkaMessage], api: KafkaApi, version: int) -> KafkaMessage:
    reader = KafkaReader(data, items=1000)
    message = cls.read(reader, version, flexible=api.is_flexible(version))
    assert reader.at == len(data)
    return message


def versions(api: KafkaApi, first: int = 0) -> st.SearchStrategy[int]:
    return st.integers(max(api.oldest, first), api.newest)


@EACH
@SIDES
@FEW
@given(data=st.data())
def test_a_message_is_decoded_as_it_was_encoded(api: KafkaApi, side: str, data: st.DataObject) -> None:
    cls, version = getattr(api, side), data.draw(versions(api))
    sent = encoded(data.draw(messages(cls)), api, version)
    message = decoded(sent, cls, api, version)
    assert encoded(message, api, version) == sent
    if sent:
        with pytest.raises(KafkaFault):
            decoded(sent[: data.draw(st.integers(0, len(sent) - 1))], cls, api, version)


@THEIRS
@SIDES
@FEW
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same(api: KafkaApi, side: str, data: st.DataObject) -> None:
    cls = theirs(f"{api.name}{side.capitalize()}")
    version = data.draw(versions(api, FIRST_DEFINED.get(api.name, 0)))
    given_message: Any = data.draw(messages(getattr(api, side)))
    if isinstance(given_message, ApiVersionsResponse):
        given_message.error_code = 0  # with an error it takes the message for one of version 0
    sent = encoded(given_message, api, version)
    message = cls.decode(sent, version=version)
    message._header = None  # its own `encode` looks for one
    assert message.encode(version=version) == sent


def test_a_field_that_a_version_lacks_has_its_default() -> None:
    sent = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    assert decoded(encoded(sent, APIS[3], 3), MetadataRequest, APIS[3], 3) == MetadataRequest(topics=())
    assert decoded(encoded(sent, APIS[3], 4), MetadataRequest, APIS[3], 4) == sent


def test_null_is_refused_where_a_version_cannot_spell_it() -> None:
    with pytest.raises(ValueError, match=r"MetadataRequest\.topics: this version cannot spell null"):
        MetadataRequest(topics=None).encode(0, flexible=False)
    with pytest.raises(KafkaFault, match=r"MetadataRequest\.topics is null"):
        decoded(b"\xff\xff\xff\xff", MetadataRequest, APIS[3], 0)
    assert decoded(b"\xff\xff\xff\xff", MetadataRequest, APIS[3], 1).topics is None


def test_a_tagged_field_with_its_default_takes_no_bytes() -> None:
    plain = FetchPartitionResult(partition_index=0)
    named = FetchPartitionResult(partition_index=0, current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=1))
    assert b"".join(plain.encode(12, flexible=True))[-1:] == b"\0"
    sent = b"".join(named.encode(12, flexible=True))
    assert sent.endswith(bytes.fromhex("01 01 09 00000007 00000001 00"))  # one field, tag 1, 9 bytes
    assert FetchPartitionResult.read(KafkaReader(sent, items=9), 12, flexible=True) == named
    assert b"".join(named.encode(11, flexible=False)) == b"".join(plain.encode(11, flexible=False))


@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_tagged_array_takes_no_bytes(empty: Sequence[SupportedFeature]) -> None:
    sent = ApiVersionsResponse(api_keys=(), supported_features=empty)
    assert b"".join(sent.encode(3, flexible=True)) == bytes.fromhex("0000 01 00000000 00")


def test_unknown_tagged_fields_are_skipped() -> None:
    sent = bytes.fromhex("0000 01 00000000 02 05 02 abcd 63 00")  # tags 5 and 99
    assert decoded(sent, ApiVersionsResponse, APIS[18], 3) == ApiVersionsResponse(api_keys=())


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("0000 01 00000000 02 00 01 01 00 01 01", "tag 0 follows tag 0"),
        ("0000 01 00000000 01 01 09 0000000000000001 00", "tag 1 has 1 bytes too many"),
        ("0000 01 00000000 01 01 01 00", "tag 1: byte 0: the message ends within int64"),
        ("0000 01 00000000 ff01", "255 tagged fields in 0 bytes"),
        ("0000 01 00000000 8101" + 129 * "00", "129 tagged fields, where 128 are allowed"),
        ("0000 ffffffff0f", "an array of 4294967294 elements in 0 bytes"),
        ("0000 8080808080", "more than 32 bits"),
    ],
)
def test_what_breaks_the_rules_of_flexible_versions_is_named(sent: str, why: str) -> None:
    with pytest.raises(KafkaFault, match=why):
        decoded(bytes.fromhex(sent), ApiVersionsResponse, APIS[18], 3)


def test_the_elements_of_all_arrays_are_counted_together() -> None:
    topics = [MetadataRequestTopic(name="t")] * 10
    sent = b"".join(MetadataRequest(topics=topics).encode(1, flexible=False))
    MetadataRequest.read(KafkaReader(sent, items=10), 1, flexible=False)
    with pytest.raises(KafkaFault, match="an array of 10 elements, where 9 more are allowed"):
        MetadataRequest.read(KafkaReader(sent, items=9), 1, flexible=False)


def test_a_number_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ProduceRequest\.acks: 40000 is not of its type"):
        ProduceRequest(acks=40_000, timeout_ms=0, topics=()).encode(3, flexible=False)
