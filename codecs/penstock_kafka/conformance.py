"""Conformance cases of Kafka, from its protocol guide, its message definitions, and the KIPs that cases name.

The clauses are the requests of the protocol. Messages are spelled by the codec, in the newest version that both sides
know unless a case says otherwise; frames that break the protocol are spelled here. The server must be the only broker
of its cluster, since a case talks to no other one.
"""

from __future__ import annotations

import itertools
import struct
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeVar

import trio
from msgspec.structs import replace

from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.protocols.conformance import (
    Cases,
    Deviation,
    NotApplicable,
    Suite,
    TestedServer,
    closed_in_time,
    require,
    require_equal,
    until,
)
from penstock.wire.codec import NEED_DATA
from penstock_kafka.codec import API_OF, API_VERSIONS, KafkaApi, KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse
from penstock_kafka.codec import KafkaError as Code
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.conversation import encode_request, read_response
from penstock_kafka.codec.group_messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupProtocol,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsToCommit,
    OffsetToCommit,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
    WantedGroup,
    WantedOffsets,
)
from penstock_kafka.codec.record_messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.codec.topic_messages import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock_kafka.codec.wire import KafkaFault

__all__ = ["SUITE"]

M = TypeVar("M", bound=KafkaMessage)

_CLIENT: Final = "conform"
_ALL: Final = -1
"""Acks: of all replicas. Time: the end of a partition."""
_EARLIEST: Final = -2
"""Time: the beginning of a partition."""
_FIRST_OF_FORMAT_2: Final = 3
"""The first version of Produce whose batches have format 2."""
_NOT_READY: Final = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
_FIRST_BY_ID: Final = 12
"""The first version of Metadata in which a topic may be asked for by its id."""
_SESSION_MS: Final = 10_000
_REBALANCE_MS: Final = 6_000
_WAIT_MS: Final = 400
"""Time that a Fetch waits in vain."""
_SLACK_MS: Final = 100
"""Clocks of client and server may differ by this in a wait."""
_TIMESTAMP: Final = 1_700_000_000_000


class KafkaTestLine:
    """One connection to the server."""

    def __init__(self, stream: trio.abc.Stream, patience: float) -> None:
        """`patience`: seconds to wait for a response."""
        self._stream = stream
        self._patience = patience
        self._codec = KafkaClient()
        self._held = b""
        self._numbers = itertools.count(100)
        self._offered: dict[int, tuple[int, int]] = {}

    async def begin(self) -> None:
        """Ask for the versions of the server."""
        offered = await self.call(ApiVersionsRequest(), ApiVersionsResponse, version=0)
        self._offered = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in offered.api_keys}

    def versions(self, api: KafkaApi) -> range:
        """Return the versions that both sides know. Raises NotApplicable if there are none."""
        oldest, newest = self._offered.get(api.key, (0, -1))
        common = range(max(oldest, api.oldest), min(newest, api.newest) + 1)
        if not common:
            raise NotApplicable(f"the server has no version of {api.name} from {api.oldest} to {api.newest}")
        return common

    def request(self, message: KafkaMessage, version: int | None = None) -> KafkaRequest:
        """Return a request, in a version or the newest one."""
        api = API_OF[type(message)]
        version_sent = self.versions(api)[-1] if version is None else version
        return KafkaRequest(api, version_sent, next(self._numbers), _CLIENT, message)

    async def send(self, message: KafkaMessage, version: int | None = None, *, answered: bool = True) -> None:
        """Send a request."""
        await self.send_bytes(b"".join(self._codec.send(self.request(message, version), answered=answered)))

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes that the codec need not know."""
        await self._stream.send_all(data)

    async def response(self, kind: type[M]) -> M:
        """Return the response to the oldest request without one, which must be of this kind."""
        while (event := self._codec.next_event()) is NEED_DATA:
            self._codec.receive(await self._read())
        require(isinstance(event, KafkaResponse), f"a response {kind.__name__}", event)
        assert isinstance(event, KafkaResponse) and isinstance(event.message, kind)
        return event.message

    async def call(self, message: KafkaMessage, kind: type[M], version: int | None = None) -> M:
        """Send a request and return its response."""
        await self.send(message, version)
        return await self.response(kind)

    async def coordinated(self, message: KafkaMessage, kind: type[M]) -> M:
        """Send a request to a coordinator, again while that is not ready yet, and return its response."""
        response = await self.call(message, kind)

        async def ready() -> bool:
            nonlocal response
            if getattr(response, "error_code", Code.NONE) in _NOT_READY:
                response = await self.call(message, kind)
            return getattr(response, "error_code", Code.NONE) not in _NOT_READY

        await until(ready, self._patience, "a coordinator")
        return response

    async def frame(self) -> bytes:
        """Return the next response as bytes, without its length. For requests that were sent as bytes."""
        while len(self._held) < 4 or len(self._held) < 4 + int.from_bytes(self._held[:4], "big"):
            piece = await self._read()
            require(bool(piece), "a response", "the end of the connection")
            self._held += piece
        end = 4 + int.from_bytes(self._held[:4], "big")
        frame, self._held = self._held[4:end], self._held[end:]
        return frame

    async def answer(self, request: KafkaRequest) -> KafkaMessage:
        """Return the response to a request that was sent as bytes. Raises Deviation for one that cannot be read."""
        try:
            return read_response(request, await self.frame())
        except KafkaFault as fault:
            raise Deviation(f"expected a response to {request.api.name} version {request.version}: {fault}") from None

    async def ended(self) -> None:
        """Expect the end of the connection, without another response."""
        require_equal(await self._read(), b"")

    async def _read(self) -> bytes:
        with trio.move_on_after(self._patience):
            with suppress(trio.BrokenResourceError):
                return bytes(await self._stream.receive_some())
            return b""
        raise Deviation(f"expected a response within {self._patience:g} s, got none")


class KafkaTestSession:
    """A case's connections, its topic and its group."""

    def __init__(self, server: TestedServer) -> None:
        self.topic = server.new_name()
        self.group = server.new_name()
        self.patience = server.patience
        self._server = server
        self._streams: list[trio.abc.Stream] = []
        self._created = False
        self.topic_id = NO_UUID  # which newer versions have in place of the name

    async def line(self) -> KafkaTestLine:
        """Open a connection."""
        self._streams.append(await self._server.connect())
        line = KafkaTestLine(self._streams[-1], self._server.patience)
        await line.begin()
        return line

    async def created(self, *values: bytes, partitions: int = 1) -> KafkaTestLine:
        """Create the topic, with these records, and wait until it has a leader. Return a connection."""
        line = await self.line()
        require_equal(await self.create(line, partitions), Code.NONE)

        async def led() -> bool:
            ends = [(await self.position(line, _ALL, partition=number)).error_code for number in range(partitions)]
            return not any(ends)

        await until(led, self._server.patience, "a leader of the topic")
        self.topic_id = (await self.described(line)).topic_id
        for value in values:
            await self.append(line, _batch(value))
        return line

    async def create(self, line: KafkaTestLine, partitions: int = 1, replicas: int = 1, **more: Any) -> int:
        """Create the topic; return the error."""
        self._created = True
        topic = CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=replicas)
        response = await line.call(CreateTopicsRequest(topics=[topic], **more), CreateTopicsResponse)
        return response.topics[0].error_code

    async def delete(self, line: KafkaTestLine) -> int:
        """Delete the topic; return the error."""
        topics = [DeleteTopicState(name=self.topic)]
        request = DeleteTopicsRequest(topics=topics, topic_names=[self.topic], timeout_ms=10_000)
        return (await line.call(request, DeleteTopicsResponse)).responses[0].error_code

    async def described(self, line: KafkaTestLine) -> MetadataTopic:
        """Return the topic's metadata."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        topics = (await line.call(request, MetadataResponse)).topics
        require_equal([topic.name for topic in topics], [self.topic])
        return topics[0]

    def produce(self, batch: bytes, partition: int = 0, acks: int = _ALL) -> ProduceRequest:
        """Return a request that appends a batch to the topic."""
        partition_data = ProducePartition(index=partition, records=batch)
        topic = ProduceTopic(name=self.topic, topic_id=self.topic_id, partitions=[partition_data])
        return ProduceRequest(acks=acks, timeout_ms=10_000, topics=[topic])

    async def produced(self, line: KafkaTestLine, batch: bytes, **request: Any) -> ProducePartitionResult:
        """Append; return the outcome."""
        response = await line.call(self.produce(batch, **request), ProduceResponse)
        return response.topics[0].partitions[0]

    async def append(self, line: KafkaTestLine, batch: bytes, **request: Any) -> int:
        """Append; return the offset. Raises Deviation for an error."""
        outcome = await self.produced(line, batch, **request)
        require_equal(outcome.error_code, Code.NONE)
        return outcome.base_offset

    def fetch(self, offset: int, partition: int = 0, most: int = MIB, **more: Any) -> FetchRequest:
        """Return a request that reads the topic."""
        request = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
        topics = [FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=[request])]
        return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 0, "max_bytes": most, "topics": topics, **more})

    async def fetched(
        self, line: KafkaTestLine, offset: int, *, version: int | None = None, **more: Any
    ) -> FetchPartitionResult:
        """Read once."""
        return _partition(await line.call(self.fetch(offset, **more), FetchResponse, version))

    async def holds(self, line: KafkaTestLine, *values: bytes, offset: int = 0, partition: int = 0) -> None:
        """Expect these records, and no more, from an offset on."""
        received: list[bytes | None] = []
        end = offset
        while True:
            result = await self.fetched(line, end, partition=partition)
            require_equal(result.error_code, Code.NONE)
            records = [(at, value) for at, value in _records(result) if at >= end]
            received += [value for _, value in records]
            if not records or records[-1][0] + 1 >= result.high_watermark:
                break
            end = records[-1][0] + 1
        require_equal(received, list(values))

    async def position(
        self, line: KafkaTestLine, time: int, *, partition: int = 0, version: int | None = None
    ) -> ListOffsetsPartitionResult:
        """Look up an offset by time."""
        request = ListOffsetsPartition(partition_index=partition, timestamp=time)
        topics = [ListOffsetsTopic(name=self.topic, partitions=[request])]
        response = await line.call(ListOffsetsRequest(topics=topics), ListOffsetsResponse, version)
        return response.topics[0].partitions[0]

    async def coordinated(self) -> KafkaTestLine:
        """Wait until the group has a coordinator, and return a connection to it."""
        line = await self.line()

        async def coordinated() -> bool:
            return await _has_coordinator(line, self.group)

        await until(coordinated, self._server.patience, "a coordinator")
        return line

    async def close(self) -> None:
        """Delete the topic, and close the connections."""
        try:
            with suppress(OSError, trio.BrokenResourceError, Deviation, NotApplicable, RemoteProtocolError):
                if self._created:
                    await self.delete(await self.line())
        finally:
            for stream in self._streams:
                await trio.aclose_forcefully(stream)


async def _has_coordinator(line: KafkaTestLine, group: str) -> bool:
    response = await line.call(FindCoordinatorRequest(key=group, coordinator_keys=[group]), FindCoordinatorResponse)
    error = response.coordinators[0].error_code if response.coordinators else response.error_code
    require(error in (Code.NONE, *_NOT_READY), "a coordinator", error)
    return error == Code.NONE


def _partition(response: FetchResponse) -> FetchPartitionResult:
    require_equal(response.error_code, Code.NONE)
    require(len(response.topics) == 1 and len(response.topics[0].partitions) == 1, "one partition", response.topics)
    return response.topics[0].partitions[0]


def _batches(result: FetchPartitionResult) -> list[KafkaBatch]:
    """Return the batches that were read. Raises Deviation for damaged ones."""
    try:
        return [batch for batch in read_batches(result.records or b"") if not batch.control]
    except OperationFailed as error:
        raise Deviation(f"expected record batches, got {error.failure.message}") from None


def _records(result: FetchPartitionResult) -> list[tuple[int, bytes | None]]:
    return [pair for batch in _batches(result) for pair in zip(batch.offsets, batch.values, strict=True)]


def _batch(*values: bytes, **more: Any) -> bytes:
    """Return a batch. `more`: fields of `KafkaBatch`."""
    count = len(values)
    columns = {"keys": [None] * count, "timestamps": [_TIMESTAMP] * count, "offsets": range(count)}
    return encode_batch(KafkaBatch(values=values, **{**columns, **more}))


def _session(server: TestedServer) -> AbstractAsyncContextManager[KafkaTestSession]:
    return closed_in_time(KafkaTestSession(server), server.patience)


_CASES: Final = Cases[KafkaTestSession]()


def _asked(api: int, version: int) -> bytes:
    """Return a request that the codec does not know, without a client and a body."""
    return struct.pack(">ihhih", 10, api, version, 1, -1)


# ---- framing ---------------------------------------------------------------------------------------------------------


@_CASES.case("framing")
async def requests_in_flight(session: KafkaTestSession) -> None:
    """Requests in flight are answered in their order, each with its correlation id."""
    line = await session.line()
    requests = [line.request(MetadataRequest(topics=[])), line.request(ApiVersionsRequest())]
    numbers = (7, -3, 2, 1 << 30, -1, 0)
    requests = [
        replace(pending_request, correlation_id=number)
        for pending_request, number in zip(requests * 3, numbers, strict=True)
    ]
    await line.send_bytes(b"".join(piece for pending_request in requests for piece in encode_request(pending_request)))
    for pending_request in requests:
        await line.answer(pending_request)


@_CASES.case("framing")
async def request_in_pieces(session: KafkaTestSession) -> None:
    """A request may come byte by byte."""
    line = await session.line()
    request = line.request(MetadataRequest(topics=[]))
    for byte in b"".join(encode_request(request)):
        await line.send_bytes(bytes([byte]))
    await line.answer(request)


@_CASES.case("framing")
async def request_without_a_client(session: KafkaTestSession) -> None:
    """The client's name in the header may be null."""
    line = await session.line()
    request = replace(line.request(MetadataRequest(topics=[])), client_id=None)
    await line.send_bytes(b"".join(encode_request(request)))
    await line.answer(request)


@_CASES.case("framing")
async def unknown_request(session: KafkaTestSession) -> None:
    """A request of an unknown API ends the connection."""
    line = await session.line()
    await line.send_bytes(_asked(9999, 0))
    await line.ended()


@_CASES.case("framing")
async def unknown_version(session: KafkaTestSession) -> None:
    """A request in a version that the server does not offer ends the connection."""
    line = await session.line()
    await line.send_bytes(_asked(3, 999))
    await line.ended()


@_CASES.case("framing")
async def length_out_of_range(session: KafkaTestSession) -> None:
    """A negative length, and one beyond any limit, ends the connection."""
    for length in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        line = await session.line()
        await line.send_bytes(length)
        await line.ended()


# ---- ApiVersions, Metadata -------------------------------------------------------------------------------------------


@_CASES.case("ApiVersions")
async def versions_of_all_apis(session: KafkaTestSession) -> None:
    """The answer has each API once, with a range of versions; it is the same in all versions of the request."""
    line = await session.line()
    request = ApiVersionsRequest(client_software_name=_CLIENT, client_software_version="1")
    responses = [await line.call(request, ApiVersionsResponse, version) for version in line.versions(API_VERSIONS)]
    for response in responses:
        require_equal(response.error_code, Code.NONE)
        keys = [api_key.api_key for api_key in response.api_keys]
        require(len(set(keys)) == len(keys), "each API once", keys)
        require({0, 1, 2, 3, 18} <= set(keys), "the APIs that all clients need", keys)
        require(
            all(0 <= api_key.min_version <= api_key.max_version for api_key in response.api_keys),
            "ranges",
            response.api_keys,
        )
        require_equal(sorted(keys), sorted(api_key.api_key for api_key in responses[0].api_keys))


@_CASES.case("ApiVersions")
async def versions_in_an_unknown_version(session: KafkaTestSession) -> None:
    """In an unknown version, ApiVersions is answered in version 0 with UNSUPPORTED_VERSION and its own range, and the
    connection stays (KIP-511)."""
    line = await session.line()
    message = ApiVersionsRequest(client_software_name=_CLIENT, client_software_version="1")
    request = line.request(message, API_VERSIONS.newest)
    length, rest = (data := b"".join(encode_request(request)))[:6], data[8:]
    await line.send_bytes(length + (999).to_bytes(2, "big") + rest)
    response = await line.answer(replace(request, version=0))
    assert isinstance(response, ApiVersionsResponse)
    require_equal(response.error_code, Code.UNSUPPORTED_VERSION)
    require(
        API_VERSIONS.key in [api_key.api_key for api_key in response.api_keys], "the versions of ApiVersions", response
    )
    await line.begin()


@_CASES.case("Metadata")
async def metadata_of_a_topic(session: KafkaTestSession) -> None:
    """Metadata names the topic, its partitions, and a leader among the brokers, in every version."""
    line = await session.created(partitions=2)
    for version in line.versions(API_OF[MetadataRequest]):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=session.topic)])
        response = await line.call(request, MetadataResponse, version)
        brokers = {broker.node_id for broker in response.brokers}
        for topic in response.topics:
            require_equal((topic.name, topic.error_code), (session.topic, Code.NONE))
            require_equal(sorted(partition.partition_index for partition in topic.partitions), [0, 1])
            require(
                {partition.leader_id for partition in topic.partitions} <= brokers, f"leaders among {brokers}", topic
            )
        require_equal(len(response.topics), 1)


@_CASES.case("Metadata")
async def metadata_by_the_id(session: KafkaTestSession) -> None:
    """A topic may be asked for by its id alone (KIP-516)."""
    line = await session.created()
    if line.versions(API_OF[MetadataRequest])[-1] < _FIRST_BY_ID:
        raise NotApplicable("the server has no ids of topics")
    described = await session.described(line)
    require(described.topic_id != NO_UUID, "the id of the topic", described)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=described.topic_id)], allow_auto_topic_creation=False
    )
    response = await line.call(request, MetadataResponse)
    require_equal([(topic.error_code, topic.name) for topic in response.topics], [(Code.NONE, session.topic)])


@_CASES.case("Metadata")
async def metadata_of_all_topics(session: KafkaTestSession) -> None:
    """Null asks for all topics, and an empty list for none."""
    line = await session.created()
    everything = await line.call(MetadataRequest(topics=None), MetadataResponse)
    require(session.topic in [topic.name for topic in everything.topics], session.topic, everything.topics)
    require_equal((await line.call(MetadataRequest(topics=()), MetadataResponse)).topics, ())


@_CASES.case("Metadata")
async def metadata_of_an_unknown_topic(session: KafkaTestSession) -> None:
    """An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, and is not created unless the request allows it."""
    line = await session.line()
    for _ in range(2):
        require_equal((await session.described(line)).error_code, Code.UNKNOWN_TOPIC_OR_PARTITION)


# ---- CreateTopics and others -----------------------------------------------------------------------------------------


@_CASES.case("topics")
async def create_a_topic_again(session: KafkaTestSession) -> None:
    """CreateTopics of a topic that exists is TOPIC_ALREADY_EXISTS."""
    line = await session.created()
    require_equal(await session.create(line), Code.TOPIC_ALREADY_EXISTS)


@_CASES.case("topics")
async def validate_a_topic(session: KafkaTestSession) -> None:
    """CreateTopics that only validates creates nothing."""
    line = await session.line()
    require_equal(await session.create(line, validate_only=True), Code.NONE)
    require_equal((await session.described(line)).error_code, Code.UNKNOWN_TOPIC_OR_PARTITION)


@_CASES.case("topics")
async def invalid_topics(session: KafkaTestSession) -> None:
    """No partitions are INVALID_PARTITIONS, and more replicas than brokers INVALID_REPLICATION_FACTOR."""
    line = await session.line()
    require_equal(await session.create(line, partitions=0), Code.INVALID_PARTITIONS)
    require_equal(await session.create(line, replicas=99), Code.INVALID_REPLICATION_FACTOR)


@_CASES.case("topics")
async def delete_a_topic(session: KafkaTestSession) -> None:
    """After DeleteTopics the topic is UNKNOWN_TOPIC_OR_PARTITION, also for another DeleteTopics."""
    line = await session.created(b"x")
    require_equal(await session.delete(line), Code.NONE)
    require_equal((await session.described(line)).error_code, Code.UNKNOWN_TOPIC_OR_PARTITION)
    require_equal(await session.delete(line), Code.UNKNOWN_TOPIC_OR_PARTITION)


@_CASES.case("topics")
async def partitions_apart(session: KafkaTestSession) -> None:
    """Each partition has its own records and offsets."""
    line = await session.created(partitions=2)
    for partition, value in ((0, b"a"), (1, b"b"), (1, b"c")):
        await session.append(line, _batch(value), partition=partition)
    await session.holds(line, b"a")
    await session.holds(line, b"b", b"c", partition=1)


@_CASES.case("topics")
async def delete_records(session: KafkaTestSession) -> None:
    """DeleteRecords removes what is before an offset: reads from there begin with it, and reads below are
    OFFSET_OUT_OF_RANGE."""
    line = await session.created(b"a", b"b", b"c")
    request = DeleteRecordsTopic(name=session.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    response = await line.call(DeleteRecordsRequest(topics=[request], timeout_ms=10_000), DeleteRecordsResponse)
    outcome = response.topics[0].partitions[0]
    require_equal((outcome.error_code, outcome.low_watermark), (Code.NONE, 2))
    require_equal((await session.position(line, _EARLIEST)).offset, 2)
    require_equal((await session.fetched(line, 0)).error_code, Code.OFFSET_OUT_OF_RANGE)
    await session.holds(line, b"c", offset=2)


# ---- Produce ---------------------------------------------------------------------------------------------------------


@_CASES.case("Produce")
async def produce(session: KafkaTestSession) -> None:
    """Each batch gets the offset behind the last record, in every version since 3, by acks of one or of all."""
    line = await session.created()
    values: list[bytes] = []
    for version in line.versions(API_OF[ProduceRequest]):
        if version >= _FIRST_OF_FORMAT_2:
            for acks in (1, _ALL):
                request = session.produce(_batch(b"a", b"%d" % version), acks=acks)
                response = await line.call(request, ProduceResponse, version)
                outcome = response.topics[0].partitions[0]
                require_equal((outcome.error_code, outcome.base_offset), (Code.NONE, len(values)))
                values += [b"a", b"%d" % version]
    await session.holds(line, *values)


@_CASES.case("Produce")
async def produce_without_acks(session: KafkaTestSession) -> None:
    """Produce with acks 0 has no response, and is stored."""
    line = await session.created()
    await line.send(session.produce(_batch(b"x"), acks=0), answered=False)
    await session.append(line, _batch(b"y"))
    await session.holds(line, b"x", b"y")


@_CASES.case("Produce")
async def produce_with_invalid_acks(session: KafkaTestSession) -> None:
    """Acks other than 0, 1 and -1 are INVALID_REQUIRED_ACKS, and nothing is stored."""
    line = await session.created()
    require_equal((await session.produced(line, _batch(b"x"), acks=2)).error_code, Code.INVALID_REQUIRED_ACKS)
    await session.holds(line)


@_CASES.case("Produce")
async def produce_to_unknown_partitions(session: KafkaTestSession) -> None:
    """An unknown partition, and soon after its deletion a topic, is UNKNOWN_TOPIC_OR_PARTITION; where the request has
    the topic's id, UNKNOWN_TOPIC_ID."""
    line = await session.created()
    unknown = await session.produced(line, _batch(b"x"), partition=9)
    require_equal(unknown.error_code, Code.UNKNOWN_TOPIC_OR_PARTITION)
    await session.delete(line)

    async def refused() -> bool:
        error = (await session.produced(line, _batch(b"x"))).error_code
        return error in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID)

    await until(refused, session.patience, "UNKNOWN_TOPIC_OR_PARTITION")


@_CASES.case("Produce")
async def produce_of_a_damaged_batch(session: KafkaTestSession) -> None:
    """A batch whose checksum does not match is CORRUPT_MESSAGE, and nothing is stored."""
    line = await session.created(b"x")
    batch = bytearray(_batch(b"yyyy"))
    batch[-3] ^= 1
    require_equal((await session.produced(line, bytes(batch))).error_code, Code.CORRUPT_MESSAGE)
    await session.holds(line, b"x")


@_CASES.case("Produce")
async def produce_compressed(session: KafkaTestSession) -> None:
    """Batches may be compressed by gzip, Snappy, LZ4 and Zstandard."""
    line = await session.created()
    values = [b"%s %d" % (b"compressible" * 20, number) for number in range(5)]
    for codec in KafkaCompression:
        outcome = await session.produced(line, _batch(*values, compression=codec))
        require_equal((codec.name, Code(outcome.error_code).name), (codec.name, Code.NONE.name))
    await session.holds(line, *values * len(KafkaCompression))


@_CASES.case("Produce")
async def parts_of_records(session: KafkaTestSession) -> None:
    """Keys, values, headers and timestamps are read as they were sent; keys, values and those of headers may be null or
    empty."""
    line = await session.created()
    columns: dict[str, Any] = {
        "keys": [b"k", None, b"", b"k"],
        "values": [b"v", b"", None, b"v"],
        "timestamps": [_TIMESTAMP + number for number in range(4)],
        "headers": {0: ((b"h", b"1"), (b"h", None), (b"g", b"")), 3: ((b"h", b"2"),)},
    }
    await session.append(line, encode_batch(KafkaBatch(offsets=range(4), **columns)))
    batches = _batches(await session.fetched(line, 0))
    columns_read = {
        name: [value for batch in batches for value in getattr(batch, name)]
        for name in ("keys", "values", "timestamps")
    }
    require_equal(columns_read, {name: columns[name] for name in columns_read})
    require_equal([len(batch) for batch in batches], [4])
    require_equal(dict(batches[0].headers), columns["headers"])


# ---- Fetch -----------------------------------------------------------------------------------------------------------


@_CASES.case("Fetch")
async def fetch(session: KafkaTestSession) -> None:
    """A read has the records from an offset on, whole batches, and the end of the partition, in every version."""
    line = await session.created(b"a", b"b")
    await session.append(line, _batch(b"c", b"d", b"e"))
    for version in line.versions(API_OF[FetchRequest]):
        result = await session.fetched(line, 3, version=version)
        require_equal((result.error_code, result.high_watermark), (Code.NONE, 5))
        records = [(at, value) for at, value in _records(result) if at >= 3]
        require_equal(records, [(3, b"d"), (4, b"e")])


@_CASES.case("Fetch")
async def fetch_at_least_one_batch(session: KafkaTestSession) -> None:
    """A read has its first batch, also if that exceeds the bounds."""
    line = await session.created(b"a" * 5000, b"b")
    require_equal(_records(await session.fetched(line, 0, most=1))[:1], [(0, b"a" * 5000)])


@_CASES.case("Fetch")
async def fetch_that_waits_in_vain(session: KafkaTestSession) -> None:
    """A read at the end waits for records as long as it says, and then has none."""
    line = await session.created(b"x")
    began = trio.current_time()
    result = await session.fetched(line, 1, max_wait_ms=_WAIT_MS, min_bytes=1)
    require_equal((result.error_code, _records(result)), (Code.NONE, []))
    waited = (trio.current_time() - began) * 1000
    require(waited >= _WAIT_MS - _SLACK_MS, f"a wait of {_WAIT_MS} ms", f"{waited:.0f} ms")


@_CASES.case("Fetch")
async def fetch_that_waits(session: KafkaTestSession) -> None:
    """A read that waits is answered when records come."""
    line, other = await session.created(b"x"), await session.line()
    began = trio.current_time()
    await line.send(session.fetch(1, max_wait_ms=30_000, min_bytes=1))
    await session.append(other, _batch(b"y"))
    require_equal(_records(_partition(await line.response(FetchResponse))), [(1, b"y")])
    require(trio.current_time() - began < 30, "an answer before the wait is over", trio.current_time() - began)


@_CASES.case("Fetch")
async def fetch_out_of_range(session: KafkaTestSession) -> None:
    """An offset beyond the end is OFFSET_OUT_OF_RANGE."""
    line = await session.created(b"x")
    require_equal((await session.fetched(line, 2)).error_code, Code.OFFSET_OUT_OF_RANGE)
    require_equal((await session.fetched(line, 1)).error_code, Code.NONE)


@_CASES.case("Fetch")
async def fetch_of_an_unknown_partition(session: KafkaTestSession) -> None:
    """An unknown partition is UNKNOWN_TOPIC_OR_PARTITION."""
    line = await session.created(b"x")
    require_equal((await session.fetched(line, 0, partition=9)).error_code, Code.UNKNOWN_TOPIC_OR_PARTITION)


@_CASES.case("Fetch")
async def fetch_session(session: KafkaTestSession) -> None:
    """A fetch session remembers its partitions, so that later requests need not name them (KIP-227); an unknown session
    is FETCH_SESSION_ID_NOT_FOUND."""
    line = await session.created(b"x")
    first = await line.call(session.fetch(0, session_epoch=0), FetchResponse)
    if not first.session_id:
        raise NotApplicable("the server keeps no fetch sessions")
    require_equal(_records(_partition(first)), [(0, b"x")])
    again = session.fetch(0, session_id=first.session_id, session_epoch=1, topics=[])
    require_equal(_records(_partition(await line.call(again, FetchResponse))), [(0, b"x")])
    unknown = session.fetch(0, session_id=first.session_id ^ 0x55555, session_epoch=1, topics=[])
    require_equal((await line.call(unknown, FetchResponse)).error_code, Code.FETCH_SESSION_ID_NOT_FOUND)


# ---- ListOffsets -----------------------------------------------------------------------------------------------------


@_CASES.case("ListOffsets")
async def ends_of_a_partition(session: KafkaTestSession) -> None:
    """-1 is the offset behind the last record, and -2 that of the first, in every version."""
    line = await session.created(b"a", b"b")
    for version in line.versions(API_OF[ListOffsetsRequest]):
        ends = [await session.position(line, time, version=version) for time in (_ALL, _EARLIEST)]
        require_equal([(end.error_code, end.offset) for end in ends], [(Code.NONE, 2), (Code.NONE, 0)])


@_CASES.case("ListOffsets")
async def offset_of_a_time(session: KafkaTestSession) -> None:
    """A time is answered with the first record that is not older, with its timestamp, and -1 if there is none."""
    line = await session.created()
    times = [_TIMESTAMP + 10 * number for number in range(3)]
    await session.append(line, _batch(b"a", b"b", b"c", timestamps=times))
    for time, expected in ((times[0] - 5, 0), (times[1], 1), (times[1] + 1, 2)):
        position = await session.position(line, time)
        require_equal(
            (position.error_code, position.offset, position.timestamp), (Code.NONE, expected, times[expected])
        )
    require_equal((await session.position(line, times[2] + 1)).offset, -1)


@_CASES.case("ListOffsets")
async def offset_in_an_unknown_partition(session: KafkaTestSession) -> None:
    """An unknown partition is UNKNOWN_TOPIC_OR_PARTITION."""
    line = await session.created()
    require_equal((await session.position(line, _ALL, partition=9)).error_code, Code.UNKNOWN_TOPIC_OR_PARTITION)


# ---- idempotent producers --------------------------------------------------------------------------------------------


async def _producer(line: KafkaTestLine) -> dict[str, int]:
    response = await line.coordinated(InitProducerIdRequest(), InitProducerIdResponse)
    require_equal((response.error_code, response.producer_epoch), (Code.NONE, 0))
    require(response.producer_id >= 0, "a producer id", response)
    return {"producer_id": response.producer_id, "producer_epoch": 0}


@_CASES.case("producers")
async def producer_that_repeats(session: KafkaTestSession) -> None:
    """A batch that a producer sends again gets the same offset, and is stored once (KIP-98)."""
    line = await session.created(b"x")
    producer = await _producer(line)
    for sequence, offset in ((0, 1), (0, 1), (2, 3), (0, 1), (2, 3)):
        batch = _batch(b"a", b"b", base_sequence=sequence, **producer)
        require_equal(await session.append(line, batch), offset)
    await session.holds(line, b"x", b"a", b"b", b"a", b"b")


@_CASES.case("producers")
async def producer_with_a_gap(session: KafkaTestSession) -> None:
    """A sequence number beyond the next one is OUT_OF_ORDER_SEQUENCE_NUMBER, and nothing is stored."""
    line = await session.created()
    producer = await _producer(line)
    await session.append(line, _batch(b"a", base_sequence=0, **producer))
    outcome = await session.produced(line, _batch(b"c", base_sequence=2, **producer))
    require_equal(outcome.error_code, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    await session.holds(line, b"a")


@_CASES.case("producers")
async def producer_of_an_old_epoch(session: KafkaTestSession) -> None:
    """An epoch below the producer's newest is INVALID_PRODUCER_EPOCH, and nothing is stored."""
    line = await session.created()
    producer = await _producer(line)
    for epoch in (0, 1):
        await session.append(line, _batch(b"a", base_sequence=0, **{**producer, "producer_epoch": epoch}))
    outcome = await session.produced(line, _batch(b"b", base_sequence=1, **producer))
    require_equal(outcome.error_code, Code.INVALID_PRODUCER_EPOCH)
    await session.holds(line, b"a", b"a")


@_CASES.case("producers")
async def producers_apart(session: KafkaTestSession) -> None:
    """Each producer gets an id of its own, and has its own numbers."""
    line = await session.created()
    producers = [await _producer(line) for _ in range(2)]
    require(producers[0] != producers[1], "two ids", producers)
    for producer in producers:
        await session.append(line, _batch(b"a", base_sequence=0, **producer))
    await session.holds(line, b"a", b"a")


# ---- groups ----------------------------------------------------------------------------------------------------------


class _Member:
    """A member of the case's group, on a connection of its own."""

    def __init__(self, session: KafkaTestSession, line: KafkaTestLine) -> None:
        self._session = session
        self.line = line
        self.id = ""
        self.generation = -1

    def joining(self, protocol: str = "range", session_ms: int = _SESSION_MS) -> JoinGroupRequest:
        """Return the request to join."""
        return JoinGroupRequest(
            group_id=self._session.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[GroupProtocol(name=protocol, metadata=b"wants")],
        )

    async def take_id(self) -> None:
        """Join without an id, which gives one."""
        response = await self.line.coordinated(self.joining(), JoinGroupResponse)
        require_equal(response.error_code, Code.MEMBER_ID_REQUIRED)
        require(bool(response.member_id), "the id of the member", response)
        self.id = response.member_id

    async def join(self) -> JoinGroupResponse:
        """Join, and wait for the generation."""
        await self.line.send(self.joining())
        return await self.joined()

    async def joined(self) -> JoinGroupResponse:
        """Receive the answer to the request to join."""
        response = await self.line.response(JoinGroupResponse)
        require_equal((response.error_code, response.member_id), (Code.NONE, self.id))
        self.generation = response.generation_id
        return response

    async def sync(self, **assignments: bytes) -> bytes:
        """Send the assignments, of the leader, and return the member's own."""
        request = SyncGroupRequest(
            group_id=self._session.group,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupAssignment(member_id=name, assignment=assignment) for name, assignment in assignments.items()
            ],
        )
        response = await self.line.call(request, SyncGroupResponse)
        require_equal(response.error_code, Code.NONE)
        return response.assignment

    async def heartbeat(self, generation: int | None = None, id: str | None = None) -> int:
        """Send a heartbeat; return the error."""
        request = HeartbeatRequest(
            group_id=self._session.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id if id is None else id,
        )
        return (await self.line.call(request, HeartbeatResponse)).error_code

    async def leave(self) -> int:
        """Leave; return the error of the member."""
        request = LeaveGroupRequest(
            group_id=self._session.group, member_id=self.id, members=[LeaveGroupMember(member_id=self.id)]
        )
        response = await self.line.call(request, LeaveGroupResponse)
        return response.error_code or (response.members[0].error_code if response.members else 0)

    async def commit(self, offset: int, generation: int | None = None) -> int:
        """Commit an offset of partition 0; return the error."""
        request = OffsetCommitRequest(
            group_id=self._session.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            topics=[
                OffsetsToCommit(
                    name=self._session.topic,
                    topic_id=self._session.topic_id,
                    partitions=[OffsetToCommit(partition_index=0, committed_offset=offset)],
                )
            ],
        )
        return (await self.line.call(request, OffsetCommitResponse)).topics[0].partitions[0].error_code

    async def committed(self) -> tuple[int, int]:
        """Return the error, and the committed offset of partition 0."""
        topics = [WantedOffsets(name=self._session.topic, topic_id=self._session.topic_id, partition_indexes=[0])]
        group = WantedGroup(group_id=self._session.group, topics=topics)
        request = OffsetFetchRequest(group_id=self._session.group, topics=topics, groups=[group])
        response = await self.line.call(request, OffsetFetchResponse)
        group_topics = response.groups[0].topics if response.groups else response.topics
        return group_topics[0].partitions[0].error_code, group_topics[0].partitions[0].committed_offset


async def _member(session: KafkaTestSession) -> _Member:
    """Return a member with an id that has not joined yet."""
    member = _Member(session, await session.coordinated())
    await member.take_id()
    return member


async def _alone(session: KafkaTestSession) -> _Member:
    """Return the only member of the group, in its first generation."""
    member = await _member(session)
    await member.join()
    await member.sync(**{member.id: b"all"})
    return member


@_CASES.case("groups")
async def first_member(session: KafkaTestSession) -> None:
    """The first member leads, gets the list of members and their metadata, and the assignment that it sends."""
    member = await _member(session)
    response = await member.join()
    require_equal((response.leader, response.protocol_name), (member.id, "range"))
    require_equal(
        [(group_member.member_id, group_member.metadata) for group_member in response.members], [(member.id, b"wants")]
    )
    require_equal(await member.sync(**{member.id: b"all"}), b"all")
    require_equal(await member.heartbeat(), Code.NONE)


@_CASES.case("groups")
async def second_member(session: KafkaTestSession) -> None:
    """A heartbeat is answered with REBALANCE_IN_PROGRESS after another member has joined; both join the next
    generation, and each gets the assignment that the leader sends for it."""
    first = await _alone(session)
    generation, second = first.generation, await _member(session)
    await second.line.send(second.joining())

    async def rebalancing() -> bool:
        error = await first.heartbeat()
        require(error in (Code.NONE, Code.REBALANCE_IN_PROGRESS), "REBALANCE_IN_PROGRESS", error)
        return error == Code.REBALANCE_IN_PROGRESS

    await until(rebalancing, _REBALANCE_MS / 1000, "REBALANCE_IN_PROGRESS")
    await first.line.send(first.joining())
    answers = [await first.joined(), await second.joined()]
    require(answers[0].generation_id == answers[1].generation_id > generation, "the next generation", answers)
    leader, other = (first, second) if answers[0].leader == first.id else (second, first)
    async with trio.open_nursery() as nursery:
        synced: dict[str, bytes] = {}

        async def sync(member: _Member, **assignments: bytes) -> None:
            synced[member.id] = await member.sync(**assignments)

        nursery.start_soon(sync, other)
        nursery.start_soon(lambda: sync(leader, **{leader.id: b"one", other.id: b"two"}))
    require_equal(synced, {leader.id: b"one", other.id: b"two"})


@_CASES.case("groups")
async def member_that_leaves(session: KafkaTestSession) -> None:
    """A member that has left is UNKNOWN_MEMBER_ID."""
    member = await _alone(session)
    require_equal(await member.leave(), Code.NONE)
    require_equal(await member.heartbeat(), Code.UNKNOWN_MEMBER_ID)
    require_equal(await member.leave(), Code.UNKNOWN_MEMBER_ID)


@_CASES.case("groups")
async def heartbeats_of_others(session: KafkaTestSession) -> None:
    """A heartbeat of an unknown member is UNKNOWN_MEMBER_ID, and one of another generation ILLEGAL_GENERATION."""
    member = await _alone(session)
    require_equal(await member.heartbeat(id="unknown"), Code.UNKNOWN_MEMBER_ID)
    require_equal(await member.heartbeat(generation=member.generation + 7), Code.ILLEGAL_GENERATION)
    require_equal(await member.heartbeat(), Code.NONE)


@_CASES.case("groups")
async def member_of_another_protocol(session: KafkaTestSession) -> None:
    """A member without a protocol that the others know is INCONSISTENT_GROUP_PROTOCOL."""
    await _alone(session)
    other = _Member(session, await session.coordinated())
    for _ in range(2):
        response = await other.line.call(other.joining("another"), JoinGroupResponse)
        if response.error_code != Code.MEMBER_ID_REQUIRED:
            break
        other.id = response.member_id
    require_equal(response.error_code, Code.INCONSISTENT_GROUP_PROTOCOL)


@_CASES.case("groups")
async def session_out_of_range(session: KafkaTestSession) -> None:
    """A session shorter than the server allows is INVALID_SESSION_TIMEOUT."""
    member = _Member(session, await session.coordinated())
    response = await member.line.call(member.joining(session_ms=1), JoinGroupResponse)
    require_equal(response.error_code, Code.INVALID_SESSION_TIMEOUT)


@_CASES.case("groups")
async def delete_a_group(session: KafkaTestSession) -> None:
    """DeleteGroups of a group with members is NON_EMPTY_GROUP, of one without it succeeds, and then the group is
    GROUP_ID_NOT_FOUND."""
    member = await _alone(session)

    async def delete() -> int:
        request = DeleteGroupsRequest(groups_names=[session.group])
        return (await member.line.call(request, DeleteGroupsResponse)).results[0].error_code

    require_equal(await delete(), Code.NON_EMPTY_GROUP)
    await member.leave()
    require_equal([await delete(), await delete()], [Code.NONE, Code.GROUP_ID_NOT_FOUND])


# ---- committed offsets -----------------------------------------------------------------------------------------------


@_CASES.case("offsets")
async def commit_an_offset(session: KafkaTestSession) -> None:
    """OffsetFetch has what the member committed last; -1 before that."""
    await session.created(b"a", b"b")
    member = await _alone(session)
    require_equal(await member.committed(), (Code.NONE, -1))
    for offset in (2, 1):
        require_equal(await member.commit(offset), Code.NONE)
        require_equal(await member.committed(), (Code.NONE, offset))


@_CASES.case("offsets")
async def commit_without_a_group(session: KafkaTestSession) -> None:
    """A client that is no member commits with generation -1, as long as the group has no members."""
    await session.created(b"a")
    client = _Member(session, await session.coordinated())
    require_equal(await client.commit(1), Code.NONE)
    require_equal(await client.committed(), (Code.NONE, 1))


@_CASES.case("offsets")
async def commit_of_another_generation(session: KafkaTestSession) -> None:
    """A commit of another generation is ILLEGAL_GENERATION, and changes nothing."""
    await session.created(b"a")
    member = await _alone(session)
    require_equal(await member.commit(1, member.generation + 7), Code.ILLEGAL_GENERATION)
    require_equal(await member.committed(), (Code.NONE, -1))


SUITE: Final = Suite(
    title="Kafka",
    source="the requests of its protocol",
    clauses={
        "framing": "Frames and headers",
        "ApiVersions": "Versions",
        "Metadata": "Brokers and topics",
        "topics": "Create, trim and delete topics",
        "Produce": "Append",
        "producers": "Idempotent producers",
        "Fetch": "Read",
        "ListOffsets": "Find offsets",
        "groups": "Groups, by the classic protocol",
        "offsets": "Committed offsets",
    },
    cases=tuple(_CASES.found),
    session=_session,
)
