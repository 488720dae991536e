"""The conformance suites of `penstock conform` against servers with planted faults: a relay before a gateway rewrites
what either says, and exactly the cases fail that are about it."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import pytest
from support.process import CONFIG, GatewayProcess, running_gateway
from support.rewriting_relay import Fault, frames, kafka_frames, relayed

from penstock.tools.conforming import CaseOutcome, chosen_cases, reached_server, run_cases
from penstock.tools.target.configuring import TargetOptions
from penstock.tools.target.url import parse_target
from penstock_codecs.kafka import KafkaMessage, KafkaRequest
from penstock_codecs.kafka.batches import NO_PRODUCER, KafkaBatch, encode_batch, read_batches
from penstock_codecs.kafka.cluster_messages import ApiVersionsRequest, MetadataRequest
from penstock_codecs.kafka.conversation import encode_request, encode_response, read_request, read_response
from penstock_codecs.kafka.group_messages import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from penstock_codecs.kafka.record_messages import (
    DeleteRecordsRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from penstock_codecs.kafka.topic_messages import CreateTopicsRequest, DeleteTopicsRequest
from penstock_codecs.kafka.wire import KafkaFault
from penstock_codecs.segment import encode
from penstock_codecs.segment.released import DataAppended, TableEntriesUpdated

KINDS = {"pravega": "controller"}
"""Kinds of listeners by scheme, if their names differ."""
PATIENCE = {"kafka": 5.0}
"""Seconds that cases wait for an answer which a planted fault keeps back; 1.5 by default. Groups begin after three."""

M = TypeVar("M", bound=KafkaMessage)
Faults = Mapping[str, tuple[Fault | Callable[[], Fault], str, set[str]]]
"""By name: a fault, the clauses or cases to run with blanks between them, and the cases that must fail."""


def without_message(type_id: int) -> Fault:
    """Drop messages of the server of one type."""
    return Fault(reply=lambda frame: b"" if type_of(frame) == type_id else frame, cut=frames)


def type_of(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame)[0])


def edited(type_id: int, offset: int, value: int) -> Fault:
    """Put a 64-bit number into messages of the server of one type, at an offset in their body, or from their end."""

    def edit(frame: bytes) -> bytes:
        at = 8 + offset if offset >= 0 else len(frame) + offset
        return frame if type_of(frame) != type_id else frame[:at] + struct.pack(">q", value) + frame[at + 8 :]

    return Fault(reply=edit, cut=frames)


def instead(type_id: int, replacement: bytes) -> Fault:
    """Send another message instead of those of one type."""
    return Fault(reply=lambda frame: replacement if type_of(frame) == type_id else frame, cut=frames)


def replaced(old: bytes, new: bytes) -> Fault:
    return Fault(request=partial(_replace, old, new))


def replied(old: bytes, new: bytes) -> Fault:
    return Fault(reply=partial(_replace, old, new))


def _replace(old: bytes, new: bytes, data: bytes) -> bytes:
    return data.replace(old, new)


def respelled(pattern: bytes, new: bytes) -> Fault:
    """Replace what a pattern finds in a piece of the server."""
    return Fault(reply=partial(re.sub, pattern, new))


def later(old: bytes, new: bytes) -> Fault:
    """Replace bytes in what the server says, but not where they come first."""
    before = itertools.count()
    return Fault(reply=lambda data: data.replace(old, new) if old in data and next(before) else data)


DURABLE: Faults = {
    "conflicts are agreed to": (
        replied(b"HTTP/1.1 409", b"HTTP/1.1 200"),
        "5.1 5.2 5.2.1 closing",
        {"create-again", "append-of-another-type", "writer-sequence", "producer-with-a-gap", "append-after-the-close"},
    ),
    "bad requests are agreed to": (
        replied(b"HTTP/1.1 400", b"HTTP/1.1 200"),
        "5 7.1",
        {
            *("invalid-time-to-live", "invalid-expiry", "append-without-a-type", "append-of-nothing"),
            *("epoch-that-begins-late", "invalid-producer", "malformed-offset", "live-without-an-offset"),
            *("append-of-no-messages", "append-that-is-not-json"),
        },
    ),
    "unknown streams are known": (
        replied(b"HTTP/1.1 404", b"HTTP/1.1 200"),
        "5",
        {
            *("expiry", "append-to-an-unknown-stream", "delete", "metadata-of-an-unknown-stream"),
            *("read-of-an-unknown-stream",),
        },
    ),
    "a new stream was there already": (replied(b"HTTP/1.1 201", b"HTTP/1.1 200"), "create", {"create"}),
    "content gets lost": (
        respelled(rb"\r\n\r\n(onetwo|begun|xy)\Z", rb"\r\n\r\n"),
        "create-with-content append append-in-pieces close-with-the-last-bytes",
        {"create-with-content", "append", "append-in-pieces", "close-with-the-last-bytes"},
    ),
    "producers are not known": (
        replaced(b"producer-", b"pxoducer-"),
        "5.2.1",
        {
            *("producer-that-repeats", "producer-with-a-gap", "producer-that-was-replaced", "epoch-that-begins-late"),
            *("producers-apart", "invalid-producer"),
        },
    ),
    "the content type is always another": (
        replied(b"content-type: text/plain", b"content-type: text/xhtml"),
        "create metadata",
        {"create", "metadata"},
    ),
    "reads begin with the tail": (
        replaced(b"offset=-1", b"offset=now"),
        "5.5 5.6 5.7",
        {
            *("read-from-the-beginning", "read-of-another-type", "poll-for-what-is-there"),
            *("events-of-what-is-there", "events-of-lines", "events-of-json"),
        },
    ),
    "reads never reach the tail": (
        replied(b"stream-up-to-date: true", b"stream-up-to-date: nope"),
        "5.5 6",
        {
            *("read-from-the-beginning", "read-from-an-offset", "read-at-the-tail", "read-of-another-type"),
            *("offsets-stay", "read-from-now"),
        },
    ),
    "long polls do not wait": (
        replaced(b"live=long-poll", b"leve=long-poll"),
        "5.6 6 8.1 closing",
        {
            *("poll-for-what-is-there", "poll-for-what-comes", "live-without-an-offset", "poll-from-now"),
            *("cursors-rise", "close-ends-reads"),
        },
    ),
    "events are no events": (
        replaced(b"live=sse", b"leve=sse"),
        "5.7 6 closing",
        {
            *("events-of-what-is-there", "events-of-what-comes", "events-of-lines", "events-of-json"),
            *("events-from-now", "close-ends-reads"),
        },
    ),
    "all offsets are the same": (
        respelled(rb"stream-next-offset: [0-9]+_", rb"stream-next-offset: 0000000000000000_"),
        "5.5 6 7.1",
        {
            *("read-from-an-offset", "read-at-the-tail", "offsets-rise", "offsets-stay", "events-from-now"),
            *("read-within-messages",),
        },
    ),
    "arrays are not taken apart": (
        replied(b'{"b":2},"c"', b'[{"b":2},"c"'),
        "messages-of-arrays",
        {"messages-of-arrays"},
    ),
    "entity tags never match": (respelled(rb"etag: ", rb"etax: "), "8.1", {"entity-tag"}),
    "a closed stream cannot be closed again": (later(b"HTTP/1.1 204", b"HTTP/1.1 409"), "close-again", {"close-again"}),
    "a read does not tell that the stream is closed": (
        respelled(rb"(?s)\A(?=.*\r\netag: )(.*\r\n)stream-closed", rb"\1stream-clogged"),
        "closing",
        {"end-of-a-closed-stream"},
    ),
}


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
        "Fetch",
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
CONTROLLER: Faults = {
    "yes is no": (
        replied(b"\0\0\0\0\2\x08\1", b"\0\0\0\0\2\x08\0"),
        "scopes streams segments transactions",
        {
            *("create-a-scope", "create-a-stream", "valid-segments", "valid-cuts"),
            *("commit-a-transaction", "abort-a-transaction", "ping-a-transaction"),
        },
    ),
    "known and unknown names fail": (
        replied(b"\0\0\0\0\2\x08\2", b"\0\0\0\0\2\x08\1"),
        "scopes streams",
        {
            *("create-a-scope", "delete-a-scope", "create-a-stream", "delete-a-stream"),
            *("update-an-unknown-stream",),
        },
    ),
    "a state that does not fit is only a failure": (
        replied(b"\0\0\0\0\2\x08\3", b"\0\0\0\0\2\x08\1"),
        "scopes streams transactions",
        {
            *("scope-of-an-invalid-name", "delete-a-scope", "stream-in-an-unknown-scope", "delete-a-stream"),
            *("commit-a-transaction", "unknown-transaction"),
        },
    ),
    "names of streams are not checked": (
        replied(b"\0\0\0\0\2\x08\4", b"\0\0\0\0\2\x08\0"),
        "streams",
        {"stream-of-an-invalid-name"},
    ),
    "other names are listed": (replied(b"conform-", b"conferm-"), "scopes streams", {"list-scopes", "list-streams"}),
    "policies and tags are lost": (
        replaced(b"\x20\2", b"\x20\1"),
        "streams segments",
        {"configuration-of-a-stream", "head-of-a-stream", "valid-cuts"},
    ),
    "keys are missing": (
        replied(struct.pack("<d", 1.0), struct.pack("<d", 0.75)),
        "segments scaling",
        {"segments-of-a-stream", "split-a-segment"},
    ),
    "segments have no store": (replied(b"\x0a\x09127", b"\x1a\x09127"), "segments", {"store-of-a-segment"}),
}
S2: Faults = {
    "a mismatch tells another position": (
        replied(b'"seq_num_mismatch":1', b'"seq_num_mismatch":9'),
        "append",
        {"append-at-a-position"},
    ),
    "a terminal frame tells another position": (
        replied(b'"seq_num_mismatch":1', b'"seq_num_mismatch":9'),
        "append-session",
        {"condition-in-a-session"},
    ),
    "a read at the tail is not found": (
        replied(b"HTTP/1.1 416", b"HTTP/1.1 404"),
        "read",
        {"read-at-the-tail", "read-from-a-time", "read-as-protobuf"},
    ),
    "events have no id": (
        replied(b"\nid: ", b"\nxx: "),
        "events",
        {"events-of-records", "events-at-the-tail"},
    ),
    "a session that begins beyond the tail is begun": (
        replied(b"HTTP/1.1 416", b"HTTP/1.1 200"),
        "read-session",
        {"session-beyond-the-tail"},
    ),
}
S3P: Faults = {
    "commands are case-sensitive": (replaced(b"CrEaTe", b"??????"), "10", {"command-names-of-any-case"}),
    "unrecoverable errors leave the connection open": (
        Fault(holds_open=True),
        "14",
        {"unknown-command", "command-of-redis"},
    ),
    "errors quote names as they are": (
        replied(b"-ERR_UNKNOWN_STREAM ", b"-ERR_UNKNOWN_STREAM \r\n"),
        "9",
        {"errors-of-one-line"},
    ),
    "MIN_ID is exclusive": (replaced(b"$5\r\n100-1\r\n", b"$5\r\n100-2\r\n"), "read-from-an-id", {"read-from-an-id"}),
    "COUNT counts elements": (replaced(b"COUNT\r\n$1\r\n3", b"COUNT\r\n$1\r\n1"), "read-at-most", {"read-at-most"}),
    "BLOCK does not wait": (
        replaced(b"BLOCK\r\n$3\r\n400", b"BLOCK\r\n$1\r\n0"),
        "8.3",
        {"read-that-waits-in-vain", "read-that-waits-for-an-id"},
    ),
    "identifiers fall after a trim": (
        replied(b"100-1", b"100-0"),
        "trim-keeps-the-last-id",
        {"trim-keeps-the-last-id"},
    ),
    "a known stream is said to be unknown": (
        replied(b"-ERR_STREAM_EXISTS", b"-ERR_UNKNOWN_STREAM"),
        "8.1",
        {"create-again"},
    ),
}
DRAFT: Faults = {
    "connection ids are forgotten": (edited(2, -8, 0), "setup", {"setup-after-a-reconnect"}),
    "violations leave the connection open": (
        Fault(holds_open=True, cut=frames),
        "partial",
        {"begin-within-a-partial", "middle-without-a-begin", "unknown-part"},
    ),
}
SEGMENT: Faults = {
    "KeepAlive is not answered": (without_message(100), "1.2", {"keep-alive"}),
    "replies lose the request's id": (edited(12, 0, 7), "1.2", {"hello-with-a-request", "request-ids"}),
    "the event before the last is forgotten": (
        edited(7, 24, -1),
        "1.4",
        {"append", "appends-in-flight", "writer-that-reconnects"},
    ),
    "violations leave the connection open": (
        Fault(holds_open=True, cut=frames),
        "1.1",
        {"unknown-type", "negative-length", "length-beyond-the-limit", "short-body"},
    ),
    "a condition that fails is ignored": (
        instead(8, b"".join(encode(DataAppended(UUID(int=1), 1, -1, 1, 1)))),
        "1.4",
        {"conditional-append", "conditional-block"},
    ),
    "versions of keys are not compared": (
        instead(82, b"".join(encode(TableEntriesUpdated(1, ())))),
        "1.3",
        {"conditional-updates-of-a-table", "remove-keys-of-a-table"},
    ),
    "the end of a sealed segment is not told": (
        Fault(reply=lambda frame: _open_ended(frame), cut=frames),
        "1.5",
        {"seal-ends-a-waiting-read", "end-of-a-sealed-segment"},
    ),
}


def _open_ended(frame: bytes) -> bytes:
    """Clear `end_of_segment` of a SegmentRead, behind its segment, offset and `at_tail`."""
    if type_of(frame) != 10:
        return frame
    at = 8 + 2 + struct.unpack_from(">H", frame, 8)[0] + 8 + 1
    return frame[:at] + b"\0" + frame[at + 1 :]


FAULTS = {
    "durable": DURABLE,
    "kafka": KAFKA,
    "pravega": CONTROLLER,
    "s2": S2,
    "s3p": S3P,
    "segment": SEGMENT,
    "segment+draft": DRAFT,
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """A gateway whose groups do not wait for more members."""
    with running_gateway(CONFIG.replace("[listeners.kafka]", "[listeners.kafka]\nfirst_rebalance_seconds = 0")) as one:
        yield one


def port_of(gateway: GatewayProcess, protocol: str) -> int:
    return int(getattr(gateway, f"{KINDS.get(protocol, protocol).partition('+')[0]}_port"))


def planted() -> Iterator[object]:
    for protocol, faults in FAULTS.items():
        for name, (fault, only, cases) in faults.items():
            yield pytest.param(protocol, fault, only, cases, id=f"{protocol}: {name}")


@pytest.mark.parametrize("protocol", ["durable", "kafka"])
def test_each_case_finds_a_planted_fault(protocol: str) -> None:
    server = parse_target(f"{protocol}://127.0.0.1:1")
    suite = server.kind.suite(server)
    assert suite is not None
    found = set[str]().union(*(cases for _, _, cases in FAULTS[protocol].values()))
    assert {case.name for case in suite.cases} == found


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "fault", "only", "cases"), list(planted()))
async def test_a_planted_fault_is_found(
    protocol: str, fault: Fault, only: str, cases: set[str], gateway: GatewayProcess
) -> None:
    """Exactly the cases fail that are about it."""
    async with relayed(port_of(gateway, protocol), fault) as port:
        server = parse_target(f"{protocol}://127.0.0.1:{port}")
        suite = server.kind.suite(server)
        assert suite is not None
        tested = reached_server(server, TargetOptions(), PATIENCE.get(protocol, 1.5))
        results = [one async for one in run_cases(suite, tested, chosen_cases(suite, only.split()))]
    assert {one.case.name for one in results if one.outcome is CaseOutcome.FAIL} == cases
