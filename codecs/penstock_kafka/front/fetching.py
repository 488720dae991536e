"""Fetch: records of several partitions in one response, with a wait for more.

Each partition is a read of its stream, which first delivers what is there. If that is less than the request wants, all
reads go on to follow their streams until it is enough, or the time is over. The partitions are those of the request, or
of its fetch session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import msgspec
import structlog
import trio

from penstock.core.back import Back, ReadSession
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import FromSeqNum, Read
from penstock.model.records import RecordBatch, StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.carrying import encoded_records
from penstock_kafka.codec.kept import KAFKA_BATCHES, kept_in, leading
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from penstock_kafka.front.call import TASKS_AT_ONCE, KafkaCall, KafkaHandlers
from penstock_kafka.front.fetch_sessions import FetchedTopics, FetchOwner, FetchSessions
from penstock_kafka.front.positions import first_left
from penstock_kafka.front.settings import KafkaSettings
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topic_ids import TopicIds, TopicKey
from penstock_kafka.topics import KafkaTopics

__all__ = ["FetchHandlers"]

log = structlog.get_logger()

_FOLLOW_SECONDS: Final = 3600.0
"""Time for which reads follow a stream; the wait ends them before."""
_IDS: Final = 13
"""The first version of Fetch that names topics by their ids."""
_ZSTD: Final = 10
"""The first version of Fetch whose clients know zstd (KIP-110)."""


class _Reading(msgspec.Struct, eq=False):
    """The read of one partition. `limit`: bytes that it may deliver. `next_offset`: the record that comes next. `tail`:
    of the partition, as far as the read knew it when it failed."""

    result: FetchPartitionResult
    next_offset: int
    limit: int
    stream: StreamRef | None = None
    session: ReadSession | None = None
    tail: int = 0
    pieces: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0


class _Fetch:
    """One request in progress. `left`: bytes that the response may still have. `names`: of its topics. `failures`:
    errors of partitions, the first for `first_reason`. `zstd`: the client knows batches compressed with it."""

    def __init__(self, request: FetchRequest, most: int, *, zstd: bool) -> None:
        self.zstd = zstd
        self.readings: list[_Reading] = []
        self.left = max(1, min(request.max_bytes, most))
        self.wanted = min(request.min_bytes, self.left)
        self.size = 0
        self.names: dict[TopicKey, str] = {}
        self.failures: list[KafkaError] = []
        self.first_reason = ""

    @property
    def complete(self) -> bool:
        """True if the response need not wait: it has enough, or an error."""
        return self.size >= self.wanted or bool(self.failures)

    def fail(self, result: FetchPartitionResult, code: KafkaError, reason: str) -> None:
        """Give a partition an error."""
        result.error_code = code
        self.first_reason = self.first_reason or reason
        self.failures.append(code)

    def take(self, reading: _Reading, batch: RecordBatch) -> None:
        """Take records for a partition as far as there is room; the first one of the response always has room.

        It ends before a record that Kafka cannot carry. Raises NOT_REPRESENTABLE if it begins with such a record.
        """
        room = min(reading.limit - reading.size, self.left)
        if (kept := kept_in(batch, zstd=self.zstd)) is not None:
            pieces, count = leading(kept, room, least=0 if self.size else 1)
            self._add(reading, batch, pieces, count, sum(map(len, pieces)))
            return
        count = batch.fitting(room)
        if not count and not self.size:
            count = 1
        if not count:
            reading.limit = reading.size
            return
        some = batch.part(0, count)
        try:
            data = encoded_records(some)
        except OperationFailed as error:
            refused = error.failure.details.get("seq_num", some.first_seq_num)
            assert isinstance(refused, int)
            if refused == some.first_seq_num:
                raise
            count = refused - some.first_seq_num
            some = batch.part(0, count)
            data = encoded_records(some)
        self._add(reading, batch, [data], count, some.metered)

    def _add(self, reading: _Reading, batch: RecordBatch, pieces: list[bytes], count: int, size: int) -> None:
        """Add the first `count` records of a batch, which are `pieces` and count for `size` bytes."""
        reading.pieces += pieces
        reading.next_offset = batch.first_seq_num + count
        reading.size += size
        self.size += size
        self.left -= size
        if count < batch.count:
            reading.limit = reading.size

    def may_go_on(self, reading: _Reading) -> bool:
        """Return whether a partition may deliver more."""
        return reading.session is not None and reading.size < reading.limit and self.left > 0


async def _by_topic(results: AsyncIterator[tuple[TopicKey, FetchPartitionResult]]) -> list[FetchTopicResult]:
    topics: dict[TopicKey, list[FetchPartitionResult]] = {}
    async for topic, result in results:
        topics.setdefault(topic, []).append(result)
    return [
        FetchTopicResult(topic=topic, partitions=topic_results)
        if isinstance(topic, str)
        else FetchTopicResult(topic_id=topic, partitions=topic_results)
        for topic, topic_results in topics.items()
    ]


class FetchHandlers:
    """Handler of Fetch."""

    def __init__(self, back: Back, topics: KafkaTopics, ids: TopicIds, settings: KafkaSettings) -> None:
        self._back = back
        self._topics = topics
        self._ids = ids
        self._settings = settings
        self._sessions = FetchSessions()
        self.handlers: KafkaHandlers = {FetchRequest: self._fetch}

    async def _fetch(self, request: FetchRequest, call: KafkaCall) -> FetchResponse:
        try:
            fetched = await FetchedTopics.of(request, call, by_id=call.version >= _IDS)
            session = self._sessions.session_of(fetched, FetchOwner.of(call.request.client_id or ""))
        except KafkaRefusal as refusal:
            call.refusals += 1
            return FetchResponse(error_code=refusal.code, topics=[])
        await call.link.quota.answer_room()
        fetch = _Fetch(request, self._settings.max_fetch_bytes, zstd=call.version >= _ZSTD)
        seconds = max(0, min(request.max_wait_ms, self._settings.max_fetch_wait_ms)) / 1000
        wanted = [*(fetched.wanted if session is None else session.partitions).items()]
        async with AsyncExitStack() as reads:
            results = [
                (topic, await self._begin(fetch, topic, member.wanted, reads, call))
                async for (topic, _), member in call.each(wanted)
            ]
            if seconds and fetch.readings and not fetch.complete:
                await call.link.while_connected(lambda: self._follow(fetch, call), seconds)
            async for reading in call.each(fetch.readings):
                self._finish(reading)
        if fetch.failures:
            code, count = fetch.failures[0].name, len(fetch.failures)
            log.info("fetch_refused", code=code, reason=fetch.first_reason, partitions=count)
        if session is None:
            return FetchResponse(topics=await _by_topic(call.each(results)))
        news = [result async for result in call.each(results) if session.is_news(*result)]
        return FetchResponse(session_id=session.id, topics=await _by_topic(call.each(news)))

    async def _begin(
        self, fetch: _Fetch, topic: TopicKey, partition: FetchPartition, sessions: AsyncExitStack, call: KafkaCall
    ) -> FetchPartitionResult:
        """Read what there is of a partition."""
        result = FetchPartitionResult(partition_index=partition.partition, records=b"")  # null ends librdkafka's reads
        reading = _Reading(result, partition.fetch_offset, max(1, partition.partition_max_bytes))
        fetch.readings.append(reading)

        async def open_session(stream: StreamRef) -> ReadSession:
            reading.stream = stream
            start = FromSeqNum(reading.next_offset)
            read = Read(
                stream, start, wait=_FOLLOW_SECONDS, create_if_missing=False, encoding=KAFKA_BATCHES, paged=True
            )
            return await sessions.enter_async_context(self._back.read_session(read))

        try:
            if partition.fetch_offset < 0:
                raise fail(FailureCode.RANGE_NOT_SATISFIABLE, f"offset {partition.fetch_offset}")
            if topic not in fetch.names:
                fetch.names[topic] = await self._ids.resolve(topic)
            reading.session = await self._topics.on(fetch.names[topic], partition.partition, open_session)
            while fetch.may_go_on(reading):
                event = await reading.session.next()
                if isinstance(event, RecordBatch):
                    await self._check_kept(reading, event.first_seq_num)
                    fetch.take(reading, event)
                    continue
                if event is not None:
                    await self._pass_gap(reading, event.tail.seq_num)
                break
        except KafkaRefusal as refusal:
            call.refusals += 1
            fetch.fail(result, refusal.code, str(refusal))
        except OperationFailed as error:
            self._fail(fetch, reading, error, call)
        return result

    async def _follow(self, fetch: _Fetch, call: KafkaCall) -> None:
        """Wait for more records of any partition, until there are enough."""
        async with trio.open_nursery() as nursery:

            async def follow(reading: _Reading) -> None:
                assert reading.session is not None
                try:
                    while fetch.may_go_on(reading):
                        event = await reading.session.next()
                        if isinstance(event, RecordBatch):
                            await self._check_kept(reading, event.first_seq_num)
                            fetch.take(reading, event)
                        if event is None or fetch.complete:
                            break
                except OperationFailed as error:
                    self._fail(fetch, reading, error, call)
                if fetch.complete:
                    nursery.cancel_scope.cancel()

            for number, reading in enumerate(fetch.readings):
                if not number % TASKS_AT_ONCE:
                    await trio.lowlevel.checkpoint()
                if fetch.may_go_on(reading):
                    nursery.start_soon(follow, reading)

    async def _check_kept(self, reading: _Reading, first_offset: int) -> None:
        """Raise RANGE_NOT_SATISFIABLE if records from the offset that was asked for up to `first_offset` are gone.

        Where none were, as behind a transaction of a Kafka cluster, clients go on behind the gap.
        """
        if reading.size or first_offset <= reading.next_offset:
            return
        assert reading.stream is not None, "the partition is being read"
        first = await first_left(self._back, reading.stream)
        if reading.next_offset < first:
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, f"the records before {first} are gone")

    async def _pass_gap(self, reading: _Reading, tail: int) -> None:
        """Lead the client to the tail by a batch without records, if there are none up to there."""
        await self._check_kept(reading, tail)
        if reading.next_offset < tail:
            reading.pieces.append(encode_batch(KafkaBatch(base_offset=reading.next_offset, next_offset=tail)))
            reading.next_offset = tail

    def _fail(self, fetch: _Fetch, reading: _Reading, error: OperationFailed, call: KafkaCall) -> None:
        """End the read of a partition. A failure behind records is left to the next request, which meets it again: the
        client still learns the tail, or it would take the last of these records for the end of the partition."""
        if not reading.size:
            fetch.fail(reading.result, call.refused(error.failure), error.failure.message)
        if reading.session is not None:
            reading.tail = reading.session.tail().seq_num
        reading.session = None

    def _finish(self, reading: _Reading) -> None:
        result = reading.result
        if result.error_code:
            return
        tail = reading.tail if reading.session is None else reading.session.tail().seq_num
        result.high_watermark = result.last_stable_offset = max(tail, reading.next_offset)
        result.records = b"".join(reading.pieces)
