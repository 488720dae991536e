"""Answers with what no client knows: whole ones, and each message of those that come in parts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from google.protobuf.wrappers_pb2 import BytesValue
from support.clocks import threads_hold
from support.durable import SETTINGS, TEXT, events, running
from support.grpc_service import NAME, Calls
from support.http.client import Answer, HttpClient, serving
from support.kafka import front as kafka
from support.s2.frames import ADVISED, GZIP, FrameReader, append_input, encode_frame
from support.s3p.front import BASIN, store_with_basin
from trio.testing import MockClock

from penstock.net.cutting import CUT_CONNECTION
from penstock.net.http.exchange import Exchange, Handler, HeaderList
from penstock.protocols.durable.front import DurableFront
from penstock.protocols.durable.unknown import IN_EVENTS
from penstock.protocols.s2.front import S2Front, S2Settings
from penstock.protocols.s2.unknown import IN_ANSWERS, in_frames
from penstock.routing.faults.back import FaultyBack
from penstock.routing.faults.exchange import FaultyFront
from penstock.routing.faults.messages import DUE, DueMessages
from penstock.routing.faults.rule import Action, Fault, FaultDirection, MessageKind, MessageSubject
from penstock.routing.faults.rules import Faults
from penstock.routing.faults.unknown import IN_BODIES, AddField
from penstock_codecs.compression import Compression, compress
from penstock_codecs.grpc import MessageReader, frame
from penstock_codecs.http.event_stream import EventParser, RawEvent
from penstock_codecs.kafka import KafkaResponse
from penstock_codecs.kafka.batches import encode_batch
from penstock_codecs.kafka.record_messages import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from penstock_codecs.limits import S2S_MAX_PAYLOAD
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import CreateStream
from penstock_codecs.s2s import frames
from penstock_proto import s2_pb2 as pb

UNKNOWN = Fault(name="unknown", action=Action.UNKNOWN, direction=FaultDirection.OUT)
THROTTLED = Fault(name="slow", action=Action.THROTTLE, direction=FaultDirection.OUT, bytes_per_second=10_000)
FIELD = (3000, b"new")
"""The unknown field of a message of protobuf."""


def unknown_in(message: Message) -> list[tuple[int, object]]:
    """The unknown fields of a message: number and data."""
    return [(one.field_number, one.data) for one in UnknownFieldSet(message)]


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


# ---- whole answers ---------------------------------------------------------------------------------------------------


class Due:
    """A front whose answers are messages that are due for faults."""

    def __init__(self, faults: Faults, handler: Handler) -> None:
        self._faults = faults
        self._handler = handler

    async def handle(self, exchange: Exchange) -> None:
        DUE.set(DueMessages(self._faults, MessageSubject("any", MessageKind.CONTROL)))
        await self._handler(exchange)

    def drain(self) -> None: ...


def faulty(handler: Handler, *rules: Fault, unknown: Mapping[str, AddField] = IN_BODIES) -> Handler:
    """A handler whose answers have faults."""
    faults = Faults(rules or [UNKNOWN])
    return FaultyFront(Due(faults, handler), faults, unknown).handle


async def answer(
    headers: HeaderList, body: bytes, *rules: Fault, unknown: Mapping[str, AddField] = IN_BODIES
) -> Answer:
    """Return this answer as it comes to a client."""
    async with serving(
        faulty(lambda exchange: exchange.respond(200, headers, body), *rules, unknown=unknown), "h2"
    ) as client:
        return await client.ask("GET", "/")


@pytest.mark.parametrize(
    ("media", "body", "others"),
    [("application/json", b'{"a": 1}', {"a": 1}), ("application/json; charset=utf-8", b"{ }", {})],
)
@pytest.mark.parametrize("rules", [(UNKNOWN,), (UNKNOWN, THROTTLED)], ids=["alone", "throttled"])
async def test_an_unknown_field_of_json(
    media: str, body: bytes, others: dict[str, int], rules: tuple[Fault, ...], autojump_clock: MockClock
) -> None:
    came = await answer([("content-type", media)], body, *rules)
    assert came.headers["penstock-unknown"] == "1" and came.headers["content-length"] == str(len(came.body))
    found = json.loads(came.body)
    assert found.pop("penstock_unknown") and found == others


@pytest.mark.parametrize(
    ("headers", "body", "unknown"),
    [
        ([("content-type", "application/json")], b"[1]", IN_BODIES),
        ([("content-type", "application/json")], b"", IN_BODIES),
        ([("content-type", "application/protobuf")], b"", IN_BODIES),
        ([("content-type", "application/json")], b"{}", {}),
        ([("content-type", "application/json"), ("content-encoding", "gzip")], b"{}", IN_BODIES),
        ([("content-type", "text/plain")], b"{}", IN_BODIES),
        ([], b"{}", IN_BODIES),
    ],
)
async def test_bodies_that_get_no_unknown_field(
    headers: HeaderList, body: bytes, unknown: Mapping[str, AddField], autojump_clock: MockClock
) -> None:
    """The answer has the header alone."""
    came = await answer(headers, body, unknown=unknown)
    assert (came.headers["penstock-unknown"], came.body) == ("1", body)


async def test_an_unknown_field_of_protobuf(autojump_clock: MockClock) -> None:
    """A decoder of the message keeps it among the unknown fields."""
    message = pb.AppendAck(start=pb.StreamPosition(seq_num=7)).SerializeToString()
    found = pb.AppendAck.FromString((await answer([("content-type", "application/protobuf")], message)).body)
    assert found.start.seq_num == 7
    assert unknown_in(found) == [FIELD]


@pytest.mark.parametrize("rules", [(UNKNOWN,), (UNKNOWN, THROTTLED)], ids=["alone", "throttled"])
async def test_an_unknown_field_of_a_grpc_message(rules: tuple[Fault, ...], autojump_clock: MockClock) -> None:
    """Its prefix counts it, and the status follows; so it does when the answer comes slowly, and without a message."""
    headers = [("te", "trailers"), ("content-type", "application/grpc")]
    message = BytesValue(value=b"hello").SerializeToString()
    async with serving(faulty(Calls().service().handle, *rules), "h2") as client:
        came = await client.ask("POST", f"/{NAME}/Echo", headers, frame(message))
        refused = await client.ask("POST", f"/{NAME}/None", headers, frame(message))
    assert came.trailers == {"grpc-status": "0"} and "content-length" not in came.headers
    reader = MessageReader(None)
    reader.receive(came.body)
    found = BytesValue.FromString(reader.finish())
    assert (found.value, unknown_in(found)) == (b"hello", [FIELD])
    assert ({**refused.headers, **refused.trailers}["grpc-status"], refused.body) == ("12", b"")


# ---- answers in parts ------------------------------------------------------------------------------------------------


def events_in(body: bytes) -> list[RawEvent]:
    """The events of a whole event stream."""
    parser = EventParser(len(body))
    parser.receive(body)
    found = []
    while (event := parser.next_event()) is not None:
        found.append(event)
    assert parser.unread == 0
    return found


def payloads(body: bytes) -> list[bytes]:
    """The messages of the frames in a whole session."""
    reader = FrameReader()
    found = [one.message for one in reader.feed(body)]
    assert reader.empty
    return found


@asynccontextmanager
async def s2_client(directory: Path, *rules: Fault) -> AsyncIterator[HttpClient]:
    """A client of S2 before a front with faults, which serves a store."""
    CUT_CONNECTION.set(lambda: None)
    faults = Faults(rules or [UNKNOWN])
    async with store_with_basin(directory) as store:
        front = S2Front(FaultyBack(store, faults, "s2", in_sessions=True), S2Settings())
        async with serving(FaultyFront(front, faults, IN_ANSWERS).handle, "h2") as client:
            yield client


PATH = "/v1/streams/orders/records"
BASIN_OF = ("s2-basin", BASIN)


@pytest.mark.parametrize("rules", [(UNKNOWN,), (UNKNOWN, THROTTLED)], ids=["alone", "throttled"])
async def test_an_unknown_field_in_each_frame_of_a_session(
    rules: tuple[Fault, ...], clock: MockClock, tmp_path: Path
) -> None:
    async with s2_client(tmp_path, *rules) as client:
        session = [BASIN_OF, ("content-type", "s2s/proto")]
        inputs = b"".join(encode_frame(append_input(b"%d" % number)) for number in range(2))
        acks = [
            pb.AppendAck.FromString(one) for one in payloads((await client.ask("POST", PATH, session, inputs)).body)
        ]
        read = await client.ask("GET", f"{PATH}?seq_num=0&count=2", session)
        [batch] = [pb.ReadBatch.FromString(one) for one in payloads(read.body)]
    assert [(ack.end.seq_num, unknown_in(ack)) for ack in acks] == [(1, [FIELD]), (2, [FIELD])]
    assert ([record.body for record in batch.records], unknown_in(batch)) == ([b"0", b"1"], [FIELD])


async def test_an_unknown_field_and_line_in_each_event(clock: MockClock, tmp_path: Path) -> None:
    """Readers must pass over a comment and over a line whose field they do not know (HTML Living Standard, 9.2.6)."""
    async with s2_client(tmp_path) as client:
        await client.ask(
            "POST", PATH, [BASIN_OF, ("content-type", "application/json")], b'{"records":[{"body":"one"}]}'
        )
        headers = [BASIN_OF, ("accept", "text/event-stream")]
        came = await client.ask("GET", f"{PATH}?seq_num=0&count=1", headers)
    batch, done = events_in(came.body)
    assert (batch.name, batch.last_event_id, done.data) == ("batch", "0,1,11", b"[DONE]")
    found = json.loads(batch.data)
    assert found.pop("penstock_unknown") and found["records"][0]["body"] == "one"
    assert came.body.startswith(b": ") and b"\npenstock-unknown: 1\n" in came.body


async def test_events_of_a_stream_of_users_bytes(clock: MockClock, tmp_path: Path) -> None:
    """Events `data` are the user's, events `control` the protocol's."""
    CUT_CONNECTION.set(lambda: None)
    faults = Faults([UNKNOWN])
    text = b'{"a": 1}\nevent: control\ndata: {}'
    async with running(tmp_path) as service:
        await service.ask("PUT", "orders", TEXT, body=text)
        through = FaultyBack(service.back, faults, "durable", in_sessions=True)
        front = FaultyFront(DurableFront(through, service.back, SETTINGS, service.wall), faults, IN_EVENTS)
        async with serving(front.handle, "h2") as client:
            stream_id = await client.open("GET", "/v1/stream/orders?offset=-1&live=sse")
            await client.head(stream_id)
            came = await events(client, stream_id, b"upToDate")
    data, control = events_in(came)
    assert (data.name, data.data) == ("data", text)
    found = json.loads(control.data)
    assert control.name == "control" and found["upToDate"] and found["penstock_unknown"]
    assert came.startswith(b": ") and b"\npenstock-unknown: 1\n" in came


def test_frames_keep_their_flags_and_compression() -> None:
    """A terminal frame gets its field in JSON; a payload of the largest size gets none."""
    payload = append_input(b"x" * 3000)
    written = b"".join(
        [
            *frames.encode_frame([compress(Compression.GZIP, payload)], Compression.GZIP, reconnect_advised=True),
            *frames.encode_frame([bytes(S2S_MAX_PAYLOAD)]),
            *frames.encode_terminal(503, b'{"code":"unavailable"}'),
        ]
    )
    reader = FrameReader()
    first, second, last = reader.feed(in_frames(written))
    assert reader.empty and (first.flag, second.flag) == (GZIP | ADVISED, 0)
    found = pb.AppendInput.FromString(first.message)
    assert (found.records[0].body, unknown_in(found)) == (b"x" * 3000, [FIELD])
    assert second.payload == bytes(S2S_MAX_PAYLOAD)
    status, error = last.failure
    assert (status, error["code"]) == (503, "unavailable") and error["penstock_unknown"]


@pytest.mark.parametrize(("version", "fields"), [(8, 0), (9, 2)])
async def test_unknown_tagged_fields_of_a_response(version: int, fields: int, clock: MockClock, tmp_path: Path) -> None:
    """In its header and in its body, where the version is flexible (KIP-482); an older one has no place for them."""
    CUT_CONNECTION.set(lambda: None)
    faults = Faults([UNKNOWN])
    async with store_with_basin(tmp_path) as store:
        await store.perform(CreateStream(StreamRef(BASIN, "t")))
        async with kafka.serving(FaultyBack(store, faults, "kafka")) as (connect, _):
            client = connect()
            partition = ProducePartition(index=0, records=encode_batch(kafka.records(b"one")))
            topic = ProduceTopic(name="t", partitions=[partition])
            await client.send(ProduceRequest(acks=-1, timeout_ms=1000, topics=[topic]), version)
            came = bytes(await client.stream.receive_some(65536))
    assert came.count(b"\xb8\x17") == came.count(b"new") == fields  # the tag, and what it has
    client.codec.receive(came)
    response = client.codec.next_event()
    assert isinstance(response, KafkaResponse) and isinstance(response.message, ProduceResponse)
    assert response.message.topics[0].partitions[0].error_code == 0
    assert faults.rules[0].fired == (1 if fields else 0)
