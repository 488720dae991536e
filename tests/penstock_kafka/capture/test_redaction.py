"""Kafka: what SASL says is blanked, and where rules look into contents, secrets in record sets and all else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.captures.redaction import CLIENT, SERVER, Tape, at_every_cut, leaks

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.choosing import dialogue_for
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Opened
from penstock.capture.redaction.redactor import Redactor
from penstock.capture.redaction.rules import RedactionRules
from penstock.wire.codec import Role
from penstock_kafka.codec import APIS, PLUGIN, KafkaMessage, KafkaRequest
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batch, whole_batches
from penstock_kafka.codec.cluster_messages import SaslAuthenticateRequest, SaslHandshakeRequest
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.conversation import encode_request, encode_response, read_request, read_response
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)

HUSH = b"hush-hush-4711"
REQUESTS, RESPONSES = PLUGIN.sample(Role.SERVER, "4"), PLUGIN.sample(Role.CLIENT, "4")


def request(message: KafkaMessage, key: int, version: int) -> bytes:
    return b"".join(encode_request(KafkaRequest(APIS[key], version, 1, "me", message)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_sasl_says_is_blanked_and_the_rest_stays(version: int) -> None:
    shake = request(SaslHandshakeRequest(mechanism="PLAIN"), 17, 1)
    secret = request(SaslAuthenticateRequest(auth_bytes=b"\0user\0" + HUSH), 36, version)
    client, server = at_every_cut([(CLIENT, shake + secret + REQUESTS), (SERVER, RESPONSES)], RedactionRules(), "kafka")
    assert not leaks(client, HUSH)
    assert (client[: len(shake)], client[-len(REQUESTS) :], server) == (shake, REQUESTS, RESPONSES)
    blanked = read_request(client[len(shake) + 4 : len(shake) + len(secret)])
    assert (blanked.api.name, blanked.client_id, blanked.version) == ("SaslAuthenticate", "me", version)


def test_bytes_that_are_no_request_are_withheld() -> None:
    """They may be a token, as they follow the oldest SaslHandshake."""
    client, _ = at_every_cut([(CLIENT, b"\0\0\0\x14\0user\0" + HUSH)], RedactionRules(), "kafka")
    assert not leaks(client, HUSH)


RULES = RedactionRules(patterns=(rb"hush-[a-z]+-[0-9]+",), record_headers=(b"x-secret",))
FILLER = b"".join(b"%d;" % (number * number) for number in range(100))
VALUES: list[bytes | None] = [HUSH, None, b"a" + HUSH + b"; " + FILLER, FILLER]
BLANK = b"*" * len(HUSH)


def batch(compression: KafkaCompression, values: list[bytes | None], offset: int = 0) -> bytes:
    count = len(values)
    return encode_batch(
        KafkaBatch(
            base_offset=offset,
            compression=compression,
            keys=[HUSH if number % 2 else None for number in range(count)],
            values=values,
            timestamps=range(1000, 1000 + count),
            offsets=range(offset, offset + count),
            headers={0: ((b"x-secret", b"never this"), (b"null", None), (b"o", HUSH))},
        )
    )


def produce(records: bytes) -> bytes:
    topic = ProduceTopic(name="orders", partitions=[ProducePartition(index=0, records=records)])
    return request(ProduceRequest(acks=-1, timeout_ms=1, topics=[topic]), 0, 9)


def produced(client: bytes) -> bytes:
    message = read_request(client[4:]).message
    assert isinstance(message, ProduceRequest)
    return message.topics[0].partitions[0].records or b""


def dialogue(client: bytes, server: bytes) -> list[Message | Problem]:
    """Return the items of a conversation as it is recorded, redacted and read again."""
    redactor, judged = Redactor(RULES), dialogue_for(conversation := Tape(RULES, "kafka").conversation)
    events: list[CaptureEvent] = [Opened(conversation, 0)]
    events += [Chunk(conversation, 1, CLIENT, 0, client), Chunk(conversation, 2, SERVER, 0, server)]
    events += [Closed(conversation, 3, sender) for sender in (CLIENT, SERVER)]
    return [item for event in events for each in redactor.redact(event) for item in judged.receive(each)]


@pytest.mark.parametrize("compression", list(KafkaCompression))
def test_records_are_blanked_in_every_compression_and_the_batch_stays_whole(compression: KafkaCompression) -> None:
    """Those of clients and of servers, with a checksum that is right."""
    fetch = FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[
            FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1)])
        ],
    )
    records = batch(compression, VALUES, 7)
    result = FetchPartitionResult(partition_index=0, records=records + records[:-1])
    fetched = FetchResponse(topics=[FetchTopicResult(topic="orders", partitions=[result])])
    said = [
        (CLIENT, produce(records) + request(fetch, 1, 12)),
        (SERVER, b"".join(encode_response(APIS[1], 12, 1, fetched))),
    ]
    client, server = at_every_cut(said, RULES, "kafka")
    for side in (client, server):
        assert not leaks(side, HUSH)
        assert not leaks(side, b"never this")
    answer = read_response(replace(read_request(request(fetch, 1, 12)[4:]), correlation_id=1), server[4:])
    assert isinstance(answer, FetchResponse)
    for data in (produced(client), answer.topics[0].partitions[0].records or b""):
        start, end = next(iter(whole_batches(data)))
        found = read_batch(data[start:end])
        assert found.values == [value and value.replace(HUSH, BLANK) for value in VALUES]
        assert (found.keys, found.offsets) == ([None, BLANK] * 2, range(7, 11))
        assert found.headers == {0: ((b"x-secret", b"*" * 10), (b"null", None), (b"o", BLANK))}
        assert list(found.timestamps) == [1000, 1001, 1002, 1003]


def test_what_cannot_be_packed_again_is_withheld_alone_and_never_judged() -> None:
    """A batch with a damaged checksum, one of an unknown compression, an old format, an API that is not known."""
    whole = batch(KafkaCompression.SNAPPY, VALUES)
    strange = bytearray(whole)
    strange[22] |= 7
    damaged = whole[:17] + b"none" + whole[21:]
    messages = [produce(bytes(strange)), produce(damaged), produce(whole[:16] + b"\1" + whole[17:])]
    unknown = b"\0\0\0\x20" + b"\x7f\1" + HUSH * 2 + b"\0\0"
    client, _ = at_every_cut([(CLIENT, b"".join([*messages, unknown, REQUESTS]))], RULES, "kafka")
    assert not leaks(client, HUSH)
    items = dialogue(b"".join([*messages, unknown, REQUESTS]), b"\0\0\0\x20" + b"\0\0\x77\1" + HUSH * 2)
    assert [item.withheld for item in items if isinstance(item, Problem)] == [32]  # of the API that is not known
    heard = [item for item in items if isinstance(item, Message)]
    assert [bool(message.withheld) for message in heard[:3]] == [True] * 3
    rest = [message for message in heard[3:] if message.sender is CLIENT]
    assert rest
    assert not any(message.withheld for message in rest)


def test_messages_without_secrets_pass_bit_for_bit() -> None:
    assert at_every_cut([(CLIENT, REQUESTS), (SERVER, RESPONSES)], RULES, "kafka")[0] == REQUESTS
