"""Kafka's conversations as messages, records and problems."""

from __future__ import annotations

from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts
from support.kafka.front import BY_NAME

from penstock.capture.dialogue import APPENDED, DELIVERED
from penstock.capture.pcapng import Sender
from penstock.capture.plugin import Likeness
from penstock.model.records import Header
from penstock.wire.codec import Role
from penstock_kafka.capture.conversation import KafkaDialogue
from penstock_kafka.capture.plugin import PLUGIN
from penstock_kafka.codec import APIS, KafkaMessage, KafkaRequest
from penstock_kafka.codec import PLUGIN as CODEC
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataResponse, MetadataTopic
from penstock_kafka.codec.conversation import encode_request, encode_response
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)

_APIS = {api.request: api for api in APIS.values()} | {api.response: api for api in APIS.values()}
BATCH = encode_batch(KafkaBatch(keys=[None, b"k"], values=[b"a", None], timestamps=[5, 6], offsets=[0, 1]))


def asked(number: int, message: KafkaMessage, version: int | None = None) -> tuple[Sender, bytes]:
    api = _APIS[type(message)]
    request = KafkaRequest(
        api, BY_NAME.get(api.name, api.newest) if version is None else version, number, "me", message
    )
    return CLIENT, b"".join(encode_request(request))


def answered(number: int, message: KafkaMessage, version: int | None = None) -> tuple[Sender, bytes]:
    api = _APIS[type(message)]
    return SERVER, b"".join(
        encode_response(api, BY_NAME.get(api.name, api.newest) if version is None else version, number, message)
    )


def producing(partition: int = 0, acks: int = -1, data: bytes = BATCH) -> ProduceRequest:
    given = ProduceTopic(name="orders", partitions=[ProducePartition(index=partition, records=data)])
    return ProduceRequest(acks=acks, timeout_ms=1, topics=[given])


def produced(partition: int = 0, offset: int = 7, error: int = 0) -> ProduceResponse:
    result = ProducePartitionResult(index=partition, base_offset=offset, error_code=error, error_message=None)
    return ProduceResponse(topics=[ProduceTopicResult(name="orders", partitions=[result])])


def fetching(offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[wanted])])


def fetched(data: bytes) -> FetchResponse:
    result = FetchPartitionResult(partition_index=0, high_watermark=2, records=data)
    return FetchResponse(topics=[FetchTopicResult(topic="orders", partitions=[result])])


STORY: Said = [
    asked(1, MetadataRequest(topics=[])),
    asked(2, producing()),
    answered(1, MetadataResponse(brokers=[], topics=[])),
    answered(2, produced()),
    asked(3, producing(partition=2)),
    answered(3, produced(partition=2, offset=-1, error=10)),
    asked(4, fetching(1), 11),
    answered(4, fetched(BATCH), 11),
    asked(5, producing(acks=0)),
    asked(6, producing()),
]


def told(said: Said) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]], list[str]]:
    heard, problems, records = parts(
        hear(KafkaDialogue(conversation("kafka"), {}), events(conversation("kafka"), said))
    )
    return (
        [(one.sender, one.kind, one.exchange, one.stream, one.failure) for one in heard],
        [(one.action, one.stream, one.body, one.seq_num, one.acknowledged, one.failure) for one in records],
        [one.rule for one in problems],
    )


def test_requests_and_responses_are_paired_and_records_listed() -> None:
    heard, records, problems = told(STORY)
    assert heard == [
        (CLIENT, "Metadata", 1, "", ""),
        (CLIENT, "Produce", 2, "orders", ""),
        (SERVER, "Metadata", 1, "", ""),
        (SERVER, "Produce", 2, "orders", ""),
        (CLIENT, "Produce", 3, "orders/2", ""),
        (SERVER, "Produce", 3, "orders/2", "MESSAGE_TOO_LARGE: "),
        (CLIENT, "Fetch", 4, "orders", ""),
        (SERVER, "Fetch", 4, "orders", ""),
        (CLIENT, "Produce", 5, "orders", ""),
        (CLIENT, "Produce", 6, "orders", ""),
        (CLIENT, "end", None, "", ""),
    ]
    assert records == [
        (APPENDED, "orders", b"a", 7, True, ""),
        (APPENDED, "orders", b"", 8, True, ""),
        (APPENDED, "orders/2", b"a", None, False, "MESSAGE_TOO_LARGE: "),
        (APPENDED, "orders/2", b"", None, False, "MESSAGE_TOO_LARGE: "),
        (DELIVERED, "orders", b"", 1, True, ""),
        *[(APPENDED, "orders", body, None, False, "") for body in (b"a", b"", b"a", b"")],
    ]
    assert problems == []


def test_topics_are_named_once_their_ids_were_told() -> None:
    """Also to other conversations of the capture."""
    known, of = MetadataTopic(name="orders", topic_id=bytes(range(16)), partitions=[]), bytes(range(16))
    wanted = FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1000)
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic_id=of, partitions=[wanted])])
    result = FetchPartitionResult(partition_index=1, high_watermark=2, records=BATCH)
    found = FetchResponse(topics=[FetchTopicResult(topic_id=of, partitions=[result])])
    names: dict[bytes, str] = {}
    before = [asked(1, fetch, 13), answered(1, found, 13)]
    after = [asked(2, MetadataRequest(topics=[])), answered(2, MetadataResponse(brokers=[], topics=[known])), *before]
    for said, topic in ((before, "00010203-0405-0607-0809-0a0b0c0d0e0f"), (after, "orders"), (before, "orders")):
        talk = conversation("kafka")
        heard, _, records = parts(hear(KafkaDialogue(talk, names), events(talk, said)))
        assert [one.stream for one in heard if one.kind == "Fetch"] == [f"{topic}/1"] * 2
        assert [(one.stream, one.seq_num) for one in records] == [(f"{topic}/1", 1)]


def test_the_same_is_heard_however_the_bytes_were_cut() -> None:
    assert told(cut_up(STORY, 7)) == told(STORY)


def test_keys_and_nulls_are_the_headers_that_streams_have() -> None:
    *_, records = parts(hear(KafkaDialogue(conversation("kafka"), {}), events(conversation("kafka"), STORY[:4])))
    assert records[1].headers == (Header(b"kafka-key", b"k"), Header(b"kafka-null", b"value"))
    assert [one.timestamp for one in records] == [5, 6]


def test_fields_name_sizes_and_no_bytes() -> None:
    first = parts(hear(KafkaDialogue(conversation("kafka"), {}), events(conversation("kafka"), STORY)))[0][1]
    assert first.fields["topics"] == [
        {"name": "orders", "topic_id": "16 bytes", "partitions": [{"index": 0, "records": f"{len(BATCH)} bytes"}]}
    ]
    assert (first.fields["version"], first.fields["client_id"]) == (12, "me")


def test_what_cannot_be_read_is_a_problem_and_reading_goes_on() -> None:
    unknown = (CLIENT, bytes.fromhex("0000000a 0063 0000 00000001 ffff"))
    heard, _, problems = told([unknown, asked(2, producing()), answered(2, produced()), answered(9, produced())])
    assert [one[1] for one in heard] == ["Produce", "Produce", "response"]
    assert problems == ["a request in a known version: byte 0: API 99 is not known"]
    broken = (SERVER, bytes.fromhex("00000006 00000002 0000"))
    assert told([asked(2, producing()), broken])[2][0].startswith("a response Produce version 12: byte")
    assert told([(CLIENT, b"GET / HTTP/1.1\r\n\r\n")])[2] == ["a message has 8 to 67108864 bytes, not 1195725856"]


def test_a_conversation_that_is_recorded_from_its_middle() -> None:
    late = [(CLIENT, b"tail of a request"), *STORY[1:4]]
    heard = parts(hear(KafkaDialogue(conversation("kafka"), {}), events(conversation("kafka"), late, offsets=(50, 9))))[
        0
    ]
    assert [one.kind for one in heard] == ["Produce", "response", "Produce"]


def test_the_first_bytes_of_a_side() -> None:
    assert PLUGIN.begins is not None
    request, response = CODEC.sample(Role.SERVER, "4"), CODEC.sample(Role.CLIENT, "4")
    assert PLUGIN.begins(CLIENT, request[:64], False) is Likeness.SHAPE
    assert PLUGIN.begins(SERVER, response[:64], False) is Likeness.NONE, "that could be anything"
    assert PLUGIN.begins(CLIENT, request[:13], False) is None
    assert PLUGIN.begins(CLIENT, b"\0\0\x10\0" + bytes(60), False) is Likeness.NONE, "no client is named"
    assert PLUGIN.begins(CLIENT, b"*2\r\n$6\r\nCREATE\r\n", False) is Likeness.NONE
    assert PLUGIN.begins(SERVER, b"+OK\r\n", False) is Likeness.NONE
