"""Planted faults for the suite of Kafka: messages of both sides are decoded, edited, and encoded again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from conformance.planted.faults import Faults
from support.rewriting_relay import Fault, kafka_frames

from penstock_kafka.codec import KafkaMessage, KafkaRequest
from penstock_kafka.codec.batches import NO_PRODUCER, KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.cluster_messages import ApiVersionsRequest, MetadataRequest
from penstock_kafka.codec.conversation import encode_request, encode_response, read_request, read_response
from penstock_kafka.codec.group_messages import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from penstock_kafka.codec.record_messages import (
    DeleteRecordsRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from penstock_kafka.codec.topic_messages import CreateTopicsRequest, DeleteTopicsRequest
from penstock_kafka.codec.wire import KafkaFault

__all__ = ["KAFKA"]

M = TypeVar("M", bound=KafkaMessage)


def asking(kind: type[M], edit: Callable[[M], object]) -> Callable[[], Fault]:
    """Edit requests to a broker of one kind; those for which `edit` returns False are not sent."""

    def request(frame: bytes) -> bytes:
        try:
            asked = read_request(frame[4:])
        except KafkaFault:
            return frame
        if not isinstance(asked.message, kind):
            return frame
        return b"" if edit(asked.message) is False else b"".join(encode_request(asked))

    return lambda: Fault(request=request, cut=kafka_frames)


def answering(kind: type[KafkaMessage], edit: Callable[[Any], object]) -> Callable[[], Fault]:
    """Edit the responses of a broker to requests of one kind."""

    def edited(asked: KafkaRequest, frame: bytes) -> bytes:
        message = read_response(asked, frame[4:])
        edit(message)
        return b"".join(encode_response(asked.api, asked.version, asked.correlation_id, message))

    return answering_frames(kind, edited)


def answering_frames(kind: type[KafkaMessage], edit: Callable[[KafkaRequest, bytes], bytes]) -> Callable[[], Fault]:
    """Edit the responses of a broker to requests of one kind, as bytes."""

    def connected() -> Fault:
        sent: dict[int, KafkaRequest] = {}

        def request(frame: bytes) -> bytes:
            with suppress(KafkaFault):
                asked = read_request(frame[4:])
                sent[asked.correlation_id] = asked
            return frame

        def reply(frame: bytes) -> bytes:
            asked = sent.get(int.from_bytes(frame[4:8], "big", signed=True))
            return edit(asked, frame) if asked is not None and isinstance(asked.message, kind) else frame

        return Fault(request=request, reply=reply, cut=kafka_frames)

    return connected


def outcomes(message: Any) -> Iterator[Any]:
    """Yield what a response says about each partition, topic or group."""
    for topic in message.topics:
        yield from getattr(topic, "partitions", [topic])


def agreed(message: Any) -> None:
    """Clear the error of a response, or those of its parts."""
    for one in getattr(message, "responses", None) or getattr(message, "results", None) or [message]:
        one.error_code = 0


def all_agreed(message: Any) -> None:
    """Clear the errors of all partitions or topics."""
    for one in outcomes(message):
        one.error_code = 0


def with_outcomes(**fields: Any) -> Callable[[Any], None]:
    """Return an edit that sets fields of what a response says about each partition."""

    def edit(message: Any) -> None:
        for one in outcomes(message):
            for name, value in fields.items():
                setattr(one, name, value(getattr(one, name)) if callable(value) else value)

    return edit


def with_fields(**fields: Any) -> Callable[[Any], None]:
    """Return an edit that sets fields of a message."""

    def edit(message: Any) -> None:
        for name, value in fields.items():
            setattr(message, name, value(getattr(message, name)) if callable(value) else value)

    return edit


def batches_edited(records: bytes | None, edit: Callable[[KafkaBatch], KafkaBatch]) -> bytes:
    """Return batches, each edited."""
    return b"".join(encode_batch(edit(batch)) for batch in read_batches(records or b""))


def without_keys(records: bytes | None) -> bytes:
    return batches_edited(records, lambda batch: replace(batch, keys=[None] * len(batch)))


def without_producer(records: bytes) -> bytes:
    return batches_edited(records, lambda batch: replace(batch, producer_id=NO_PRODUCER))


def damaged(request: ProduceRequest) -> None:
    """Damage compressed batches."""
    for part in outcomes(request):
        if part.records[22] & 7:
            part.records = part.records[:-1] + bytes([part.records[-1] ^ 1])


KAFKA: Faults = {
    "responses to Metadata have no number": (
        answering_frames(MetadataRequest, lambda _, frame: frame[:4] + b"\0\0\0\0" + frame[8:]),
        "framing",
        {"requests-in-flight", "request-in-pieces", "request-without-a-client"},
    ),
    "violations leave the connection open": (
        Fault(holds_open=True),
        "framing",
        {"unknown-request", "unknown-version", "length-out-of-range"},
    ),
    "there is no API to read": (
        answering(ApiVersionsRequest, with_fields(api_keys=lambda keys: [one for one in keys if one.api_key != 1])),
        "ApiVersions",
        {"versions-of-all-apis"},
    ),
    "an unknown version is no error": (
        answering(ApiVersionsRequest, agreed),
        "ApiVersions",
        {"versions-in-an-unknown-version"},
    ),
    "topics are not told": (
        answering(MetadataRequest, with_fields(topics=[])),
        "Metadata",
        {"metadata-of-a-topic", "metadata-by-the-id", "metadata-of-all-topics", "metadata-of-an-unknown-topic"},
    ),
    "topics are always created": (
        answering(CreateTopicsRequest, all_agreed),
        "topics",
        {"create-a-topic-again", "invalid-topics"},
    ),
    "topics are created at once": (
        asking(CreateTopicsRequest, with_fields(validate_only=False)),
        "topics",
        {"validate-a-topic"},
    ),
    "topics are always deleted": (answering(DeleteTopicsRequest, agreed), "topics", {"delete-a-topic"}),
    "there is one partition": (
        asking(ProduceRequest, with_outcomes(index=0)),
        "topics",
        {"partitions-apart"},
    ),
    "records are not deleted": (asking(DeleteRecordsRequest, with_outcomes(offset=0)), "topics", {"delete-records"}),
    "offsets are too low": (
        answering(ProduceRequest, with_outcomes(base_offset=lambda offset: offset - 1)),
        "Produce producers",
        {"produce", "producer-that-repeats"},
    ),
    "appends always succeed": (
        answering(ProduceRequest, all_agreed),
        "Produce producers",
        {
            *("produce-with-invalid-acks", "produce-to-unknown-partitions", "produce-of-a-damaged-batch"),
            *("producer-with-a-gap", "producer-of-an-old-epoch"),
        },
    ),
    "batches without acks are lost": (
        asking(ProduceRequest, lambda request: request.acks != 0),
        "Produce",
        {"produce-without-acks"},
    ),
    "compressed batches are damaged": (
        asking(ProduceRequest, damaged),
        "Produce",
        {"produce-compressed"},
    ),
    "keys get lost": (
        answering(FetchRequest, with_outcomes(records=without_keys)),
        "Produce",
        {"parts-of-records"},
    ),
    "records are lost": (
        answering(FetchRequest, with_outcomes(records=None)),
        "Fetch",
        {"fetch", "fetch-at-least-one-batch", "fetch-that-waits", "fetch-session"},
    ),
    "reads do not wait": (
        asking(FetchRequest, with_fields(max_wait_ms=0)),
        "fetch fetch-that-waits-in-vain fetch-that-waits",
        {"fetch-that-waits-in-vain", "fetch-that-waits"},
    ),
    "reads always succeed": (
        answering(FetchRequest, all_agreed),
        "Fetch",
        {"fetch-out-of-range", "fetch-of-an-unknown-partition"},
    ),
    "all offsets are 0": (
        answering(ListOffsetsRequest, with_outcomes(offset=0)),
        "ListOffsets",
        {"ends-of-a-partition", "offset-of-a-time"},
    ),
    "all partitions have offsets": (
        answering(ListOffsetsRequest, all_agreed),
        "ListOffsets",
        {"offset-in-an-unknown-partition"},
    ),
    "producers are not known": (
        asking(ProduceRequest, with_outcomes(records=without_producer)),
        "producers",
        {"producer-that-repeats", "producer-with-a-gap", "producer-of-an-old-epoch"},
    ),
    "all producers are one": (
        answering(InitProducerIdRequest, with_fields(producer_id=1)),
        "producers",
        {"producers-apart"},
    ),
    "assignments are lost": (
        answering(SyncGroupRequest, with_fields(assignment=b"")),
        "groups",
        {"first-member", "second-member"},
    ),
    "heartbeats always succeed": (
        answering(HeartbeatRequest, agreed),
        "groups",
        {"second-member", "member-that-leaves", "heartbeats-of-others"},
    ),
    "refusals have no reason": (
        answering(JoinGroupRequest, with_fields(error_code=lambda code: -1 if code in (23, 26) else code)),
        "groups",
        {"member-of-another-protocol", "session-out-of-range"},
    ),
    "groups are always deleted": (answering(DeleteGroupsRequest, agreed), "groups", {"delete-a-group"}),
    "commits always succeed": (
        answering(OffsetCommitRequest, all_agreed),
        "offsets",
        {"commit-of-another-generation"},
    ),
    "commits are forgotten": (
        asking(OffsetCommitRequest, with_outcomes(committed_offset=0)),
        "offsets",
        {"commit-an-offset", "commit-without-a-group"},
    ),
}
