"""A compacted topic as the log of the gateway's state (`penstock.backends.logged_tables`).

A batch must come directly behind the one that its gateway has read last. Brokers have that condition for idempotent
producers (KIP-98): the first sequence number of a batch must follow the last one of its producer. So all gateways are
one producer, with a fixed id, and learn its epoch and sequence from the batches that they read. Of two gateways that
send a batch for the same place the leader stores one; it refuses the other, or takes it for a repetition and answers
with the place of the first. Each looks for its own batch in the log, so either answer will do.

A leader that has not had a batch for a day (`producer.id.expiration.ms`) forgets the producer, and takes the next batch
whatever its number. That harms nothing: a gateway appends only once it has read the topic to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import structlog
import trio

from penstock.backends.logged_tables import ChangeLog, LoggedBatch, LogLost, LogNews, TableChange, TableState
from penstock.backends.trim_points import TrimPoints
from penstock.core.clock import Clock, wall_clock
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.positions import KafkaPositions
from penstock_kafka.back.topics import ClusterTopics
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.client_errors import UNKNOWN_PRODUCER
from penstock_kafka.codec.record_messages import FetchResponse
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.names import TopicPartition

__all__ = ["MAX_STATE_BATCH_BYTES", "WATCH_SECONDS", "StateTopic"]

log = structlog.get_logger()

MAX_STATE_BATCH_BYTES: Final = 8 * MIB
"""`max.message.bytes` of the topic."""
_SETTINGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_STATE_BATCH_BYTES)}
_WISHED: Final = {"segment.bytes": str(64 * MIB), "min.cleanable.dirty.ratio": "0.2"}
"""A gateway reads the newest segment uncompacted when it starts."""
_POLICY: Final = "cleanup.policy"
WATCH_SECONDS: Final = 15.0
"""Seconds between looks at the topic's settings."""
_LOOK_SECONDS: Final = 2.0
"""Longest time of such a look, during which the topic is not read."""
_PRODUCER: Final = int.from_bytes(b"penstock")
"""The id of the producer that all gateways are; ids that clusters give out count from 0."""
_AUTHOR: Final = b"author"
_MOST_RECORDS: Final = 1_000_000
"""Records in one answer, of which the smallest has some 20 bytes."""
_SEQUENCES: Final = 1 << 31
_UNCOMMITTED: Final = 0
"""The isolation level: all records, since the gateways' producer has no transactions."""


class StateTopic(ChangeLog):
    """The topic of a cluster's `settings.state_topic`, which is created if it is missing."""

    def __init__(self, brokers: Brokers, clock: Clock = wall_clock) -> None:
        settings = brokers.settings
        assert settings.state_topic is not None, "the topic is configured"
        self.where = f"{brokers.where}, topic {settings.state_topic}"
        self.recover_seconds = settings.recover_seconds
        self.max_bytes = MAX_STATE_BATCH_BYTES - MIB
        self._brokers = brokers
        self._clock = clock
        self._positions = KafkaPositions(brokers, TrimPoints())
        self._topics = ClusterTopics(brokers)
        self._partition = TopicPartition(settings.state_topic, 0, whole=True)
        self._topic_id: bytes | None = None
        self._next: int | None = None
        self._lost: LogLost | None = None  # for good: another topic, or one without records that were read
        self._watched = 0.0
        self._epoch = self._sequence = 0

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def read(self) -> LogNews:
        start, restarted = self._next, self._next is None
        if start is None:
            start = await self._begin()
        else:
            await self._watch()
        try:
            batches_read = await self._fetch(start, 0.0 if restarted else self._brokers.settings.poll_seconds)
        except OperationFailed as error:
            if error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE and not restarted:
                await self._check_range(start)
            raise
        batches = [self._taken(batch) for batch in batches_read if batch.producer_id == _PRODUCER]
        self._next = batches_read[-1].next_offset if batches_read else start
        return LogNews(batches, self._next, restarted)

    async def _begin(self) -> int:
        """Return the offset at which the topic begins; create it if it is missing. Raises STORAGE for one that loses
        state, or has lost some."""
        if await self._topics.create_topic(self._partition, _SETTINGS, _WISHED):
            log.warning("state_created", where=self.where)
        elif (reason := await self._unfit()) is not None:
            raise fail(FailureCode.STORAGE, f"{self.where}: {reason}")
        self._topic_id = await self._brokers.topic_id(self._partition.topic)
        self._epoch = self._sequence = 0
        self._watched = trio.current_time()
        return 0

    async def _unfit(self) -> str | None:
        """Return the reason why the topic loses state, or has lost some; None if there is none."""
        policy = (await self._topics.settings(self._partition, [_POLICY])).get(_POLICY)
        count = len((await self._brokers.topic(self._partition.topic)).partitions)
        if policy != "compact" or count != 1:
            return f"it has cleanup.policy={policy} and {count} partitions, and needs compact and 1"
        first = await self._positions.beginning(self._partition)
        return f"its records before offset {first} were deleted, which compaction does not do" if first else None

    async def _watch(self) -> None:
        """Look again and again whether the topic is the one that was read, and fit for state. Raises LogLost."""
        if self._lost is not None:
            raise self._lost
        now, topic = trio.current_time(), self._partition.topic
        due = now >= self._watched + WATCH_SECONDS
        if due:
            self._brokers.forget(topic)
        try:
            topic_id = await self._brokers.topic_id(topic)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            raise self._loss("it was deleted", final=self._topic_id == NO_UUID) from None
        if topic_id != self._topic_id:
            raise self._loss("it was deleted, and created again")
        if due:
            self._watched = now
            with trio.move_on_after(_LOOK_SECONDS), suppress(OperationFailed):  # only the topic's leader is needed
                self.note_trouble(await self._unfit())

    async def _check_range(self, offset: int) -> None:
        first, end = await self._positions.beginning(self._partition), await self._positions.end(self._partition)
        if not first <= offset <= end:
            raise self._loss(f"it has records from {first} to {end}, and was read up to {offset}")

    def _loss(self, reason: str, *, final: bool = True) -> LogLost:
        lost = LogLost(self.where, reason)
        if final:
            self._lost = lost
        return lost

    async def _fetch(self, offset: int, wait: float) -> list[KafkaBatch]:
        """Return the batches from an offset on; wait so many seconds for some."""
        with self._brokers.looking_again(self._partition):
            request = await self._brokers.fetch_request(self._partition, self._topic_id, offset, wait, _UNCOMMITTED)
            pool = await self._brokers.leader(self._partition)
            async with pool.use() as connection:
                response = await connection.call(request, FetchResponse, wait + self._brokers.request_seconds)
            result = response.topics[0].partitions[0]
            self._brokers.check(self._partition, result.error_code)
        batches = read_batches(result.records or b"", max_bytes=2 * MAX_STATE_BATCH_BYTES, max_records=_MOST_RECORDS)
        return [batch for batch in batches if batch.next_offset > offset]

    def _taken(self, batch: KafkaBatch) -> LoggedBatch:
        """Return the records of a batch, and note its place: compaction leaves the numbers of a batch as they were."""
        self._epoch = batch.producer_epoch
        self._sequence = (batch.base_sequence + batch.next_offset - batch.base_offset) % _SEQUENCES
        author = dict(batch.headers.get(0, ())).get(_AUTHOR) or b""
        records = zip(batch.offsets, batch.keys, batch.values, strict=True)
        return LoggedBatch(author, [(offset, TableChange(key, value)) for offset, key, value in records if key])

    async def end(self) -> int:
        with self._if_missing():
            return await self._brokers.retrying(lambda: self._positions.end(self._partition), patient=True)

    @contextmanager
    def _if_missing(self) -> Iterator[None]:
        """Raise HOT_SERVER if the block says that the topic is missing: STREAM_NOT_FOUND would say that of a table."""
        try:
            yield
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            raise fail(FailureCode.HOT_SERVER, error.failure.message) from None

    # ---- writing -----------------------------------------------------------------------------------------------------

    async def append(
        self,
        author: bytes,
        changes: Sequence[TableChange],
        state: TableState,  # noqa: ARG002
    ) -> int | None:
        place = self._next
        if place is None:
            raise fail(FailureCode.HOT_SERVER, f"{self.where} is being read")
        batch = encode_batch(
            KafkaBatch(
                producer_id=_PRODUCER,
                producer_epoch=self._epoch,
                base_sequence=self._sequence,
                keys=[change.key for change in changes],
                values=[change.value for change in changes],
                timestamps=[self._clock()] * len(changes),
                offsets=range(len(changes)),
                headers={0: ((_AUTHOR, author),)},
            )
        )
        with self._if_missing():
            result = await self._brokers.produce(self._partition, batch)
        if result.error_code in UNKNOWN_PRODUCER:
            return None
        self._brokers.check_produced(self._partition, result)
        if 0 <= result.base_offset < place:
            raise self._loss(f"a batch behind offset {place} came to offset {result.base_offset}")
        return None if result.base_offset < 0 else result.base_offset + len(changes) - 1

    def begin_again(self) -> None:
        self._epoch, self._sequence = self._epoch + 1, 0
