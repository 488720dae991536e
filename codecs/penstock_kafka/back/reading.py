"""A read of one partition, which moves to the partition's new leader where the old one is lost.

A read has a connection of its own: a broker that waits for records answers nothing else on it. At the tail it asks
the broker to wait (a long poll). The answer to a request that `next` no longer waits for, because it was cancelled, is
received by the next call.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import accumulate

import trio

from penstock.core.back import Following, ReadSession
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.operations import FromRecordId, FromSeqNum, FromTimestamp, Read
from penstock.model.records import RecordBatch, RecordId, StreamPosition, add_event_times
from penstock.net.upstream import broke
from penstock.store.batches import index_of_id
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.connection import KafkaConnection
from penstock_kafka.back.positions import COMMITTED, KafkaPositions
from penstock_kafka.codec.client_records import FetchedRecords, FetchedRun, read_fetched
from penstock_kafka.codec.record_messages import (
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
)
from penstock_kafka.names import TopicPartition

__all__ = ["KafkaReadSession", "open_kafka_read", "read_timestamps"]


@asynccontextmanager
async def open_kafka_read(
    brokers: Brokers, positions: KafkaPositions, partition: TopicPartition, read: Read
) -> AsyncIterator[KafkaReadSession]:
    """Open a read; see `Back.read_session`."""
    session = KafkaReadSession(brokers, positions, partition, read)
    try:
        await session.begin()
        yield session
    finally:
        with trio.CancelScope(shield=True):  # nothing is waited for
            await session.close()


async def read_timestamps(
    brokers: Brokers, positions: KafkaPositions, partition: TopicPartition, first: int, count: int
) -> list[int]:
    """Return the timestamps of `count` records from an offset on, which are there and have no gap."""
    read = Read(brokers.settings.names.to_stream(partition.topic), FromSeqNum(first), count=count)
    timestamps: list[int] = []
    async with open_kafka_read(brokers, positions, partition, read) as session:
        while isinstance(batch := await session.next(), RecordBatch):
            timestamps += batch.columns.timestamps
    return timestamps


class KafkaReadSession(ReadSession):
    """A read of one partition; see `penstock.core.back.ReadSession`."""

    def __init__(self, brokers: Brokers, positions: KafkaPositions, partition: TopicPartition, read: Read) -> None:
        self._brokers = brokers
        self._positions = positions
        self._partition = partition
        self._read = read
        self._position = 0  # the next offset to deliver
        self._asked_from = 0  # the next offset to ask for
        self._end = 0
        self._timestamp: int | None = None  # of the last record that was received
        self._held: deque[RecordBatch] = deque()
        self._left_count = math.inf if read.count is None else read.count
        self._left_bytes = math.inf if read.max_bytes is None else read.max_bytes
        self._waits = read.wait is None or read.wait > 0 if not read.bounded else bool(read.wait)
        self._expires = math.inf
        self._following = self._ended = False
        self._topic_id: bytes | None = None
        # Identifiers: the first record of the last timestamp, and the least one that is wanted.
        self._identifies = isinstance(read.start, FromRecordId)
        self._first_of: tuple[int, int] | None = None
        self._least: RecordId | None = None
        # The connection, and when the answer to the request on it is overdue; None if there is no request.
        self._connection: KafkaConnection | None = None
        self._lease = AsyncExitStack()
        self._due: float | None = None

    # ---- the start ---------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Find the start. Raises RANGE_NOT_SATISFIABLE, INVALID."""
        read, start = self._read, self._read.start
        if isinstance(start, FromTimestamp) and read.until is not None and start.timestamp >= read.until:
            raise fail(FailureCode.INVALID, "start `timestamp` exceeds or equal to `until`")
        spot = await self._positions.spot(self._partition, start)
        self._position = self._asked_from = self._end = spot.offset
        if not spot.at_tail:
            self._end = spot.offset + 1
            return
        match start:
            case FromRecordId(record_id):
                self._least = record_id
                return
            case FromSeqNum(seq_num):
                past = seq_num > spot.offset
            case FromTimestamp(timestamp):
                past = timestamp > spot.timestamp
            case _:
                past = False
        if not read.exhausted and ((past and not read.clamp) or not read.may_follow):
            tail = StreamPosition(spot.offset, await self._positions.newest(self._partition))
            reason = f"the read starts at or after the tail {tail.seq_num}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, reason, tail=tail._asdict())

    # ---- the interface -----------------------------------------------------------------------------------------------

    def behind(self) -> bool:
        return not self._ended and bool(self._left_count and self._left_bytes) and self._position < self._end

    def tail(self) -> StreamPosition:
        return StreamPosition(self._end, self._timestamp or 0)

    async def next(self) -> RecordBatch | Following | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._ended and self._left_count and self._left_bytes:
            if self._held:
                if (batch := self._deliver()) is not None:
                    return batch
            elif self._position < self._end or (self._following and self._waits):
                if not await self._more():
                    break
            elif not self._waits:
                break
            else:
                if self._timestamp is None:
                    newest = await self._positions.newest_spot(self._partition)
                    if newest.offset >= self._end:  # it came meanwhile, and others before it
                        self._end = newest.offset + 1
                        continue
                    self._timestamp = newest.timestamp
                self._following = True
                return Following(self.tail())
        self._ended = True
        return None

    async def close(self) -> None:
        """Give the connection back, or close it if an answer is still to come."""
        if self._connection is not None:
            self._connection.broken = self._connection.broken or self._due is not None
        self._connection = self._due = None
        await self._lease.aclose()

    # ---- records -----------------------------------------------------------------------------------------------------

    async def _more(self) -> bool:
        """Receive the next answer. Returns False if the read's wait is over."""
        if self._following and self._expires == math.inf and self._read.wait is not None:
            self._expires = trio.current_time() + self._read.wait
        with trio.CancelScope(deadline=self._expires):
            await self._brokers.retrying(self._fetch, patient=True)
            return True
        return False

    async def _fetch(self) -> None:
        """Ask for records, unless an answer is still to come, and hold those of the answer."""
        try:
            with self._brokers.looking_again(self._partition):
                response = await self._answer()
                result = response.topics[0].partitions[0]
                if result.error_code == 1:
                    await self._out_of_range()
                    return
                self._brokers.check(self._partition, result.error_code)
        except OperationFailed:
            await self.close()
            raise
        await self._hold(result)

    async def _answer(self) -> FetchResponse:
        connection = self._connection
        if connection is not None and connection.broken:
            await self.close()
            connection = None
        if connection is None:
            pool = await self._brokers.leader(self._partition)
            connection = self._connection = await self._lease.enter_async_context(pool.use())
        if self._due is None:
            wait = 0.0
            if self._following:
                wait = max(min(self._brokers.settings.poll_seconds, self._expires - trio.current_time()), 0.0)
            async with connection.within(self._brokers.request_seconds, "answer"):
                await connection.send(await self._request(wait))
            self._due = trio.current_time() + wait + self._brokers.request_seconds
        with trio.CancelScope(deadline=self._due) as scope:
            response = await connection.response(FetchResponse)
        if scope.cancelled_caught:
            raise connection.late("answer", self._brokers.request_seconds)
        self._due = None
        return response

    async def _request(self, wait: float) -> FetchRequest:
        """Return the next request. Raises STREAM_NOT_FOUND if the topic was created again since the read has begun."""
        request = await self._brokers.fetch_request(self._partition, self._topic_id, self._asked_from, wait, COMMITTED)
        self._topic_id = request.topics[0].topic_id
        return request

    async def _out_of_range(self) -> None:
        """Go on at the first record that is left. Raises STREAM_NOT_FOUND if the partition ends before."""
        first = await self._positions.beginning(self._partition)
        if first <= self._asked_from:
            name = f"{self._partition.topic}, partition {self._partition.partition}"
            reason = f"topic {name}, ends before offset {self._asked_from}: it was created again, or has lost records"
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{self._brokers.where}: {reason}")
        self._position = self._asked_from = first
        self._end = max(self._end, first + 1)  # the next answer tells

    async def _hold(self, result: FetchPartitionResult) -> None:
        try:
            records = read_fetched(result.records or b"", self._asked_from, result.aborted_transactions or ())
        except OperationFailed as error:
            if error.failure.code is FailureCode.NOT_REPRESENTABLE:
                raise
            assert self._connection is not None
            raise broke(self._connection.upstream.settings, error.failure.message) from error
        runs = self._risen(records)
        # The read moves on only then: if identifiers cannot be asked for, or it is cancelled, it fetches them again.
        batches = [await self._batch(run) for run in runs]
        self._end = result.last_stable_offset if result.last_stable_offset >= 0 else result.high_watermark
        self._asked_from = records.next_offset
        if runs:
            self._timestamp = runs[-1].columns.timestamps[-1]
        if self._asked_from < self._end:
            self._following = False
        elif batches:
            batches[-1].tail = self.tail()
        self._held += batches
        if not batches:
            self._position = self._asked_from

    def _risen(self, records: FetchedRecords) -> list[FetchedRun]:
        """Return the runs with timestamps that never fall: those of the records may, and are their event times where
        an earlier record, as far as the read has seen it, has a later one."""
        newest = self._timestamp or 0
        for run, _ in records.runs:
            rising = list(accumulate(run.timestamps, max, initial=newest))[1:]
            if rising != run.timestamps:
                run.headers = add_event_times(run.bodies, run.headers, rising, run.timestamps)
            run.timestamps, newest = rising, rising[-1]
        return records.runs

    async def _batch(self, fetched: FetchedRun) -> RecordBatch:
        run = fetched.columns
        if not self._identifies:
            batch = RecordBatch(run)
            batch.wire = fetched.kept
            return batch
        offset, timestamp = run.seq_nums[0], run.timestamps[0]
        known = self._first_of
        if known is None or known[0] != timestamp:
            identifier = await self._positions.record_id(self._partition, offset, timestamp)
            known = timestamp, offset - identifier.seq
        batch = RecordBatch(run, first_id=RecordId(timestamp, offset - known[1]))
        last = run.timestamps[-1]
        self._first_of = known if last == timestamp else (last, run.seq_nums[run.timestamps.index(last)])
        return batch

    def _deliver(self) -> RecordBatch | None:
        """Return the next records within the bounds of the read and of one batch, if there are any."""
        batch = self._held.popleft()
        first, stop = 0, batch.count
        if self._least is not None:
            assert batch.first_id is not None, "the read identifies its records"
            first = index_of_id(batch.columns.timestamps, batch.first_id, self._least)
        if self._read.until is not None:
            earlier = sum(timestamp < self._read.until for timestamp in batch.columns.timestamps)
            stop, self._ended = min(stop, earlier), earlier < stop
        stop = int(min(stop, first + self._left_count))
        part = batch.part(first, stop) if first < stop else None
        if part is not None and part.metered > self._left_bytes:
            stop, self._ended = first + part.fitting(int(self._left_bytes)), True
            part = batch.part(first, stop) if first < stop else None
        if part is None:
            self._position = batch.next_seq_num
            return None
        whole = part.wire is not None and part.wire.encoding == self._read.encoding
        if not whole and (part.count > MAX_BATCH_RECORDS or part.metered > MAX_BATCH_BYTES):
            self._ended = False
            stop = first + max(min(MAX_BATCH_RECORDS, part.fitting(MAX_BATCH_BYTES)), 1)
            part = batch.part(first, stop)
        if stop < batch.count and not self._ended:
            self._held.appendleft(batch.part(stop, batch.count))
        self._least = None
        self._position = part.next_seq_num if self._held else self._asked_from
        self._left_count -= part.count
        self._left_bytes -= part.metered
        self._expires = math.inf
        return part
