"""Clients that talk to the gateway's fronts, in each protocol that can append: the gateway's own backs, and what they
are made of, so that both ends of each connection are the gateway's code.

Each protocol carries some of the calls only. S3P, segments and Durable Streams see no numbers, and no commands: their
answers are checked by the bodies, and segments' by the bytes, that they read. Kafka sees numbers, and no commands.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import trio
from simulation.checker import Call, Done, Lost
from simulation.histories import BASIN, FAILED, LOGS, Client, Follower, Talks

from penstock.core.back import Back
from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.core.native import Native
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo, ReadBytes, Truncate
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.operations import Append
from penstock.model.records import Record, RecordId, StreamRef
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock.wire.compression import Compression
from penstock_durable.back import DurableBackSettings, open_durable
from penstock_durable.back.offsets import OffsetTable
from penstock_durable.back.requests import DurableRequests
from penstock_durable.codec import AppendRequest, spell_offset
from penstock_durable.names import DurableNames
from penstock_kafka.back import KafkaBackSettings, open_kafka
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.record_messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.codec.transaction_messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnTopic,
)
from penstock_kafka.names import KafkaNames, TopicPartition
from penstock_pravega.codec import Dialect, join_events
from penstock_pravega.segment.back import SegmentBackSettings, open_segment
from penstock_s2.back.back import open_s2
from penstock_s2.back.calls import S2Requests
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sse import S2SseBack, open_s2_sse
from penstock_s2.back.unary import records_path
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.json_records import decode_append_ack, encode_append_input
from penstock_s3p.back import S3PBackSettings, open_s3p
from penstock_s3p.names import s3p_names

__all__ = ["FRONTS", "PORTS", "Front"]

HOST: Final = "127.0.0.1"
PORTS: Final = {"s2": 8080, "s3p": 7500, "segment": 12345, "durable": 4437, "kafka": 9092}
RECOVER_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 5.0
_NOT_DECIDED: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
)
"""For the end of a transaction that may be asked for again."""
Clock = Callable[[], int]
Open = Callable[[random.Random, Clock, Back], AbstractAsyncContextManager[Any]]
"""Makes what clients and followers call, with dice, the time of day in ms, and the store for what they keep."""


def _server(protocol: str, name: str = "gateway") -> UpstreamSettings:
    return UpstreamSettings(name=name, host=HOST, port=PORTS[protocol], protocol=protocol)


# ---- S2 --------------------------------------------------------------------------------------------------------------


def _s2_settings(dice: random.Random) -> S2BackSettings:
    return S2BackSettings(
        http=dice.choice((HttpVersion.H1, HttpVersion.H2)),
        delivery=dice.choice((Delivery.EXACTLY_ONCE, Delivery.EXACTLY_ONCE, Delivery.REFUSE)),
        compression=dice.choice((Compression.NONE, Compression.NONE, Compression.ZSTD, Compression.GZIP)),
        recover_seconds=RECOVER_SECONDS,
    )


@asynccontextmanager
async def _s2(dice: random.Random, clock: Clock, _state: Back) -> AsyncIterator[Any]:
    async with open_s2(_s2_settings(dice), Upstream(_server("s2")), clock) as back:
        yield back


class _Json:
    """S2's REST API in JSON, and reads as server-sent events."""

    def __init__(self, back: S2SseBack, calls: S2Requests, data_format: BytesFormat) -> None:
        self.read_session = back.read_session
        self._back = back
        self._calls = calls
        self._format = data_format

    async def perform(self, operation: Any) -> Any:
        if not isinstance(operation, Append):
            return await self._back.perform(operation)
        data_format = BytesFormat.BASE64 if operation.headers else self._format  # a trim command is no text
        body = encode_append_input(operation, data_format)
        headers = [("s2-format", data_format.value)]
        path = records_path(operation.stream)
        answer = await self._calls.json("POST", path, operation.stream.basin, body, headers)
        return answer.read(decode_append_ack)


@asynccontextmanager
async def _json(dice: random.Random, _clock: Clock, _state: Back) -> AsyncIterator[Any]:
    settings = msgspec.structs.replace(_s2_settings(dice), delivery=Delivery.REFUSE, compression=Compression.NONE)
    upstream = Upstream(_server("s2"))
    async with (
        open_s2_sse(settings, upstream) as back,
        HttpClient(upstream, HttpClientSettings(version=settings.http)) as http,
    ):
        yield _Json(back, S2Requests(http, settings), dice.choice(list(BytesFormat)))


# ---- protocols of bodies ---------------------------------------------------------------------------------------------


class _S2Client(Client):
    """A client of S2, with one condition at most: where two fail, a connection that broke may change which is named."""

    def _new_append(self, stream: StreamRef) -> Call:
        call = super()._new_append(stream)
        return call if call.match is None else replace(call, token=None)


class _Bodies(Client):
    """A client that reads bodies, without numbers."""

    view = "bodies"

    def _new_append(self, stream: StreamRef) -> Call:
        return Call("append", 0, 0, Lost, self._bodies(), client=self.name, view=self.view)


class _BodyFollower(Follower):
    """A follower of bodies: it has reached a record when it has read its body."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._cursor = self._new_cursor()

    def _new_cursor(self) -> Any:
        raise NotImplementedError

    async def _read(self) -> None:
        while True:
            for body in await self._cursor.next(WAIT_SECONDS):
                twice = body in self._seen and not self._cursor.begun_again
                assert not twice, f"{self.name} reads {body[:40]!r} of {self.stream} twice"
                self._seen.add(body)
            self._at(self.next + 1)

    async def reach(self, there: Sequence[Record]) -> None:
        if bodies := [record.body for record in there if not record.headers]:
            await self._reach(bodies)


class _Cursor:
    """Reads the bodies of a stream. `begun_again`: from the beginning, since no offset that its back knew is left, as
    amid an answer that broke."""

    begun_again = False


class _S3PCursor(_Cursor):
    """Reads a stream from an identifier on."""

    def __init__(self, native: Native, stream: StreamRef, saw: Callable[[Any, bytes], None]) -> None:
        self._native, self._stream, self._saw = native, stream, saw
        self.at = RecordId(0, 0)

    async def next(self, wait: float = 0.0) -> list[bytes]:
        """Return the next bodies; none if there are none in `wait` seconds."""
        mark = Mark(0, *self.at, 0)
        found = await self._native.scan(self._stream, mark, max_records=1000, max_bytes=MIB, wait=wait)
        assert found.timestamps is not None and found.places is not None
        for identifier, body in zip(zip(found.timestamps, found.places, strict=True), found.bodies, strict=True):
            assert identifier >= self.at, f"{identifier} of {self._stream} after {self.at}"
            self.at = RecordId(identifier[0], identifier[1] + 1)
            self._saw(identifier, body)
        return found.bodies


class _NativeClient(_Bodies):
    """A client by a `Native`, whose appends are those of sessions."""

    async def _append(self, stream: StreamRef) -> None:
        call = self._new_append(stream)
        async with self._calling(stream, call) as answer, self._back.append_session(stream) as session:
            await session.send(self._message(stream, call))
            session.close()
            (ack,) = await session.receive()
            answer.append(self._appended(stream, call, ack))

    def _appended(self, _stream: StreamRef, call: Call, appended: Any) -> Any:
        assert appended.count == len(call.bodies), f"{appended} for {len(call.bodies)} records"
        return Done


class _S3PClient(_NativeClient):
    """A client of S3P. Its records have identifiers, by which it trims."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._known: dict[StreamRef, list[tuple[Any, bytes]]] = {}

    def _appended(self, stream: StreamRef, call: Call, appended: Any) -> Any:
        self._histories.identified(stream, appended.last, call.bodies[-1], self.name)
        return super()._appended(stream, call, appended)

    async def _all(self, stream: StreamRef) -> tuple[Any, ...]:
        known: list[tuple[Any, bytes]] = []

        def saw(identifier: Any, body: bytes) -> None:
            self._histories.identified(stream, identifier, body, self.name)
            known.append((identifier, body))

        cursor = _S3PCursor(self._back, stream, saw)
        while await cursor.next():
            pass
        self._known[stream] = known
        return tuple(body for _, body in known)

    async def _trim(self, stream: StreamRef) -> None:
        if not (known := self._known.get(stream)):
            return
        (ms, place), body = known[max(len(known) - 1 - self._dice.randint(0, 8), 0)]
        async with self._calling(stream, Call("trim", 0, 0, Lost, (body,))) as answer:
            await self._back.trim(stream, Mark(0, ms, place, 0))
            answer.append(Done)


class _S3PFollower(_BodyFollower):
    def _new_cursor(self) -> _S3PCursor:
        return _S3PCursor(self._back, self.stream, self._saw_identified)

    def _saw_identified(self, identifier: Any, body: bytes) -> None:
        self._histories.identified(self.stream, identifier, body, self.name)


@asynccontextmanager
async def _s3p(_dice: random.Random, _clock: Clock, _state: Back) -> AsyncIterator[Any]:
    settings = S3PBackSettings(names=s3p_names("fixed", BASIN), recover_seconds=RECOVER_SECONDS)
    async with open_s3p(Upstream(_server("s3p")), settings) as native:
        yield native


# ---- segments --------------------------------------------------------------------------------------------------------


class _SegmentCursor(_Cursor):
    """Reads a stream from an offset on, in pieces that may end inside an event."""

    def __init__(self, back: Any, stream: StreamRef, size: int, saw: Callable[[int, bytes], None]) -> None:
        """`saw`: told of each event, with its offset."""
        self._back, self._stream, self._size, self._saw = back, stream, size, saw
        self._offset: int | None = None
        self._rest = b""
        self.at_tail = False

    async def next(self, wait: float = 0.0) -> list[bytes]:
        """Return the next bodies; none if there are no whole ones."""
        if self._offset is None:
            self._offset = (await self._back.perform(GetByteStreamInfo(self._stream))).start_offset
        try:
            found = await self._back.perform(ReadBytes(self._stream, self._offset, self._size, wait=wait))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise
            self._offset, self._rest = None, b""
            return []
        self._offset += len(found.data)
        self._rest += found.data
        self.at_tail = found.at_tail or found.end_of_stream
        bodies = []
        while len(self._rest) >= 8 and len(self._rest) >= (end := 8 + int.from_bytes(self._rest[4:8], "big")):
            assert self._rest[:4] == bytes(4), f"{self._rest[:8]!r} of {self._stream} begins no event"
            bodies.append(self._rest[8:end])
            self._saw(self._offset - len(self._rest), bodies[-1])
            self._rest = self._rest[end:]
        return bodies


class _SegmentClient(_Bodies):
    """A client of segments. Its appends and tails are numbers of bytes."""

    view = "bytes"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._calls["match"] = self._append_if
        self._known: dict[StreamRef, list[tuple[int, bytes]]] = {}

    def _message(self, stream: StreamRef, call: Call) -> AppendBytes:
        return AppendBytes(stream, join_events(call.bodies), match_offset=call.match)

    def _appended(self, stream: StreamRef, _call: Call, appended: Any) -> Any:
        if appended.offset is None:
            return Done
        self._tails[stream] = appended.offset
        return appended.offset

    async def _append_if(self, stream: StreamRef) -> None:
        call = replace(self._new_append(stream), match=self._tails[stream])
        async with self._calling(stream, call) as answer:
            answer.append(self._appended(stream, call, await self._back.perform(self._message(stream, call))))

    async def _tail(self, stream: StreamRef) -> None:
        async with self._calling(stream, Call("tail", 0, 0, Lost)) as answer:
            self._tails[stream] = (await self._back.perform(GetByteStreamInfo(stream))).length
            answer.append(self._tails[stream])

    async def _all(self, stream: StreamRef) -> tuple[Any, ...]:
        known: list[tuple[int, bytes]] = []

        def saw(offset: int, body: bytes) -> None:
            self._histories.identified(stream, offset, body, self.name)
            known.append((offset, body))

        cursor = _SegmentCursor(self._back, stream, self._dice.choice((100, 5000, MIB)), saw)
        while not cursor.at_tail:
            await cursor.next()
        self._known[stream] = known
        return tuple(body for _, body in known)

    async def _trim(self, stream: StreamRef) -> None:
        if not (known := self._known.get(stream)):
            return
        offset, body = known[max(len(known) - 1 - self._dice.randint(0, 8), 0)]
        async with self._calling(stream, Call("trim", 0, 0, Lost, (body,))) as answer:
            await self._back.perform(Truncate(stream, offset))
            answer.append(Done)


class _SegmentFollower(_BodyFollower):
    def _new_cursor(self) -> _SegmentCursor:
        return _SegmentCursor(self._back, self.stream, MIB, self._saw_at)

    def _saw_at(self, offset: int, body: bytes) -> None:
        self._histories.identified(self.stream, offset, body, self.name)


def _segment(dialect: Dialect) -> Open:
    @asynccontextmanager
    async def opened(_dice: random.Random, _clock: Clock, _state: Back) -> AsyncIterator[Any]:
        settings = SegmentBackSettings(store=_server("segment"), dialect=dialect, recover_seconds=RECOVER_SECONDS)
        async with open_segment(settings) as back:
            yield back.direct

    return opened


# ---- Durable Streams -------------------------------------------------------------------------------------------------


class _DurableWay:
    """The back of Durable Streams, with the requests that it does not make itself."""

    def __init__(self, native: Native, requests: DurableRequests) -> None:
        self.native = native
        self.append_session = native.append_session
        self._requests = requests

    async def seal(self, stream: StreamRef) -> None:
        """Close a stream."""
        await self._requests.append(stream, AppendRequest(None, True, None, None), b"")


def _cannot_store(error: OperationFailed) -> bool:
    """Return whether a failure is that of a store that cannot write or read, for which the protocol has no code.

    The answer to a HEAD has no body that names it.
    """
    code, message = error.failure.code, error.failure.message
    return code is FailureCode.UPSTREAM_FAULT and ('"code":"storage"' in message or message.endswith(": status 500"))


class _DurableCursor(_Cursor):
    """Reads a stream from its beginning on. What was trimmed is left out."""

    def __init__(self, native: Native, stream: StreamRef) -> None:
        self._native, self._stream = native, stream
        self._at = 0

    async def next(self, wait: float = 0.0) -> list[bytes]:
        """Return the next bodies; none if there are none in `wait` seconds."""
        while True:
            mark = Mark(0, 0, 0, self._at)
            try:
                found = await self._native.scan(self._stream, mark, max_records=1000, max_bytes=MIB, wait=wait)
            except OperationFailed as error:
                if error.failure.code is FailureCode.OFFSET_TRUNCATED:
                    self._at = int(str(error.failure.details["offset"]))
                elif error.failure.code is FailureCode.STREAM_NOT_FOUND:  # it has no offset of what is left
                    self._at = 0
                    self.begun_again = True
                else:
                    raise
                continue
            assert found.offsets is not None
            self._at = found.offsets[-1]
            return found.bodies


class _DurableClient(_NativeClient):
    """A client of Durable Streams. Its streams are of JSON, with one record for each message."""

    async def _all(self, stream: StreamRef) -> tuple[Any, ...]:
        cursor, found = _DurableCursor(self._back.native, stream), list[bytes]()
        while some := await cursor.next():
            found += some
        return tuple(found)

    def _refusal(self, error: OperationFailed) -> Any:
        return FAILED if _cannot_store(error) else super()._refusal(error)

    async def _seal(self, stream: StreamRef) -> None:
        async with self._calling(stream, Call("seal", 0, 0, Lost)) as answer:
            await self._back.seal(stream)
            answer.append(None)


class _DurableFollower(_BodyFollower):
    def _new_cursor(self) -> _DurableCursor:
        return _DurableCursor(self._back.native, self.stream)

    async def _read(self) -> None:
        try:
            await super()._read()
        except OperationFailed as error:
            if not _cannot_store(error):
                raise


@asynccontextmanager
async def _durable(dice: random.Random, _clock: Clock, state: Back) -> AsyncIterator[Any]:
    http = dice.choice((HttpVersion.H1, HttpVersion.H2))
    names = DurableNames("/v1/stream/", BASIN)
    settings = DurableBackSettings(names=names, http=http, recover_seconds=RECOVER_SECONDS)
    upstream = Upstream(_server("durable", f"durable-{dice.getrandbits(64):x}"))  # its positions are its own
    with suppress(OperationFailed):  # a disk may fail
        for log in LOGS:  # as if this client had created them: else it cannot notice that a beginning is gone
            await (await OffsetTable(state, upstream.settings.name).open(log, 1)).note(0, spell_offset(0))
    async with (
        open_durable(upstream, state, settings) as native,
        HttpClient(upstream, HttpClientSettings(version=http)) as client,
    ):
        yield _DurableWay(native, DurableRequests(client, names))


# ---- Kafka -----------------------------------------------------------------------------------------------------------


class _KafkaWay:
    """The back of Kafka, with the requests that it does not make itself."""

    def __init__(self, back: Back, brokers: Brokers) -> None:
        self.perform = back.perform
        self.append_session = back.append_session
        self.read_session = back.read_session
        self._brokers = brokers
        self._unanswered = False  # a request for a producer id has no answer

    async def commits(self, name: str, topic: str, batches: Sequence[Sequence[bytes]]) -> Callable[[], Awaitable[bool]]:
        """Begin a transaction with these batches; return what commits it, and tells whether it was committed.

        An open transaction of this name is aborted first. Raises OperationFailed.
        """
        begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        try:
            begun = await self._brokers.ask_controller(begin, InitProducerIdResponse)
        except OperationFailed:
            self._unanswered = True
            raise
        who = {"transactional_id": name, "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        add = AddPartitionsToTxnRequest(**who, topics=[TxnTopic(name=topic, partitions=[0])])
        partition = TopicPartition(topic, 0, whole=True)
        self._check(partition, begun.error_code)
        added = await self._brokers.ask_controller(add, AddPartitionsToTxnResponse)
        refusal = added.topics[0].partitions[0].error_code
        if refusal == KafkaError.POLICY_VIOLATION:  # this response has no message that says it
            raise OperationFailed(Failure(FailureCode.STREAM_SEALED, f"stream {topic} is sealed"))
        self._check(partition, refusal)
        sequence = 0
        for bodies in batches:
            batch = KafkaBatch(
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
                base_sequence=sequence,
                transactional=True,
                keys=[None] * len(bodies),
                values=bodies,
                timestamps=[-1] * len(bodies),
                offsets=range(len(bodies)),
            )
            sequence += len(bodies)
            part = ProducePartition(index=0, records=encode_batch(batch))
            of_topic = ProduceTopic(name=topic, topic_id=await self._brokers.topic_id(topic), partitions=[part])
            produce = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topics=[of_topic])
            produced = await self._brokers.ask_leader(partition, produce, ProduceResponse)
            self._check(partition, produced.topics[0].partitions[0].error_code)

        async def commit() -> bool:
            ended = await self._brokers.ask_controller(EndTxnRequest(**who, committed=True), EndTxnResponse)
            if ended.error_code in (0, KafkaError.UNKNOWN_PRODUCER_ID, *_NOT_DECIDED):
                return not ended.error_code
            self._check(partition, ended.error_code)
            raise AssertionError(ended)

        return commit

    def _check(self, partition: TopicPartition, code: int) -> None:
        """Raise the failure for an error. A request for a producer id whose connection broke may arrive late, and then
        fences the producer that this client began meanwhile."""
        if self._unanswered and code in (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            raise OperationFailed(Failure(FailureCode.HOT_SERVER, f"fenced by an earlier request: error {code}"))
        self._brokers.check(partition, code)


class _KafkaClient(Client):
    """A client of Kafka: it sees the numbers of records, CreateTime (decision 29), and no commands."""

    view = "data"
    event_times = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._calls["transaction"] = self._transaction

    def _new_append(self, stream: StreamRef) -> Call:
        return replace(super()._new_append(stream), match=None, token=None)

    async def _transaction(self, stream: StreamRef) -> None:
        """Append batches that are all read once they are committed, and never if they are not."""
        batches = [self._bodies() for _ in range(self._dice.choice((1, 1, 2)))]
        try:
            commit = await self._back.commits(f"tx-{self.name}", stream.stream, batches)
        except OperationFailed as error:
            self._refusal(error)
            return
        if self._dice.random() < 0.3:
            return  # the next one aborts it
        calls = [Call("commit", 0, 0, Lost, bodies, client=self.name, view=self.view) for bodies in batches]
        numbers = [self._histories.begin(stream, call) for call in calls]
        committed = False
        try:
            committed = await commit()
        except OperationFailed as error:
            self._refusal(error)
        for number in numbers:
            self._histories.end(number, Done if committed else Lost)


class _KafkaFollower(Follower):
    event_times = True

    async def reach(self, there: Sequence[Record]) -> None:
        if data := [record for record in there if not record.headers]:
            await super().reach(data)


@asynccontextmanager
async def _kafka(_dice: random.Random, clock: Clock, state: Back) -> AsyncIterator[Any]:
    settings = KafkaBackSettings(names=KafkaNames(BASIN), recover_seconds=RECOVER_SECONDS)
    upstream = Upstream(_server("kafka"))
    async with open_kafka([upstream], state, settings, Upstream, clock) as back:
        brokers = Brokers([upstream], settings, Upstream)
        try:
            yield _KafkaWay(back, brokers)
        finally:
            with trio.CancelScope(shield=True):
                await brokers.close()


# ---- all -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Front:
    """A way to talk to the gateway."""

    talks: Talks
    open: Open
    client: type[Client] = Client
    follower: type[Follower] = Follower


FRONTS: Final = (
    Front(Talks("s2", {"append": 6, "session": 6, "fence": 1, "command": 2, "tail": 2, "read": 3}), _s2, _S2Client),
    Front(Talks("json", {"append": 4, "command": 1, "tail": 1, "read": 3}), _json, _S2Client),
    Front(Talks("s3p", {"append": 5, "session": 5, "read": 3, "trim": 2}), _s3p, _S3PClient, _S3PFollower),
    Front(
        Talks(
            "segment",
            {"match": 3, "append": 4, "session": 5, "tail": 2, "read": 3, "trim": 2, "merge": 2, "seal": 0.1},
        ),
        _segment(Dialect.RELEASED),
        _SegmentClient,
        _SegmentFollower,
    ),
    Front(
        Talks("draft", {"append": 4, "session": 5, "tail": 2, "read": 3}),
        _segment(Dialect.DRAFT),
        _SegmentClient,
        _SegmentFollower,
    ),
    Front(
        Talks("durable", {"append": 4, "session": 5, "read": 3, "seal": 0.1}),
        _durable,
        _DurableClient,
        _DurableFollower,
    ),
    Front(
        Talks("kafka", {"append": 4, "session": 5, "tail": 2, "read": 3, "trim": 2, "transaction": 3}),
        _kafka,
        _KafkaClient,
        _KafkaFollower,
    ),
)
