"""The writer of one partition: an idempotent producer that makes all appends of this gateway, one batch at a time.

A batch has the writer's producer id and the number of its first record, so the leader, old or new, stores it once and
answers a repetition with the same offset (KIP-98). If it is given up in doubt, or the leader does not know the producer
any more, the writer gets another id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from penstock.backends.together import GroupingWriter, QueuedAppend, UpstreamName
from penstock.core.clock import Clock
from penstock.core.delivery import Delivery
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB, MIB
from penstock.model.operations import Append, Appended
from penstock.model.records import StreamPosition
from penstock.net.upstream import doubtful
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.positions import KafkaPositions
from penstock_kafka.back.reading import read_timestamps
from penstock_kafka.codec.batches import (
    BATCH_HEADER,
    NO_PRODUCER,
    KafkaBatch,
    KafkaHeaders,
    compression_of,
    encode_batch,
)
from penstock_kafka.codec.client_records import ProducedRecords, to_produced
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.kept import KAFKA_BATCHES, as_producer
from penstock_kafka.codec.record_messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartitionResult,
)
from penstock_kafka.names import TopicPartition

__all__ = ["KafkaWriter"]

_PER_RECORD: Final = 24
"""Most bytes of a record beside its body and headers."""
_SEQUENCES: Final = 1 << 31
_ALONE: Final = 16 * KIB
"""Least bytes of a client's batch that is passed on as it came while others wait: a request costs as much as encoding
as many bytes."""


_Queued = QueuedAppend[ProducedRecords | None, Appended]


def _kept(append: Append) -> bytes | None:
    """Return the batch that a client of Kafka sent."""
    wire = append.wire
    return wire.data if wire is not None and wire.encoding == KAFKA_BATCHES else None


def _create_times(append: Append, stamps: Sequence[int], event_times: Mapping[int, int]) -> list[int]:
    """Return the CreateTime of each record of an append; `stamps`: the timestamps in the stream, `event_times`: those
    that differ, by index."""
    own = append.timestamps if append.event_times and append.timestamps is not None else stamps
    times = [stamp if time is None else time for time, stamp in zip(own, stamps, strict=True)]
    for index, time in event_times.items():
        times[index] = time
    return times


class KafkaWriter(GroupingWriter[ProducedRecords | None, Appended]):
    """The writer of one partition. `by_arrival`: the leader stamps its records (LogAppendTime); otherwise the writer
    does, with the times of events, and other timestamps of clients where they neither fall nor lie in the future.

    A batch that a client of Kafka sent is passed on as it came, with this writer as its producer, if it keeps its
    timestamps and is sent alone. Small ones that wait are sent together; their part is not None."""

    patient = True

    def __init__(
        self,
        brokers: Brokers,
        positions: KafkaPositions,
        partition: TopicPartition,
        nursery: trio.Nursery,
        clock: Clock,
        *,
        by_arrival: bool,
    ) -> None:
        settings = brokers.settings
        super().__init__(
            UpstreamName(brokers.back, brokers.where),
            inflight_bytes=settings.append_inflight_bytes,
            together_bytes=1 * MIB,
            delivery=settings.delivery,
            recover_seconds=settings.recover_seconds,
            nursery=nursery,
        )
        self.partition = partition
        self._brokers = brokers
        self._positions = positions
        self._clock = clock
        self._by_arrival = by_arrival
        self._idempotent = settings.delivery is not Delivery.AT_LEAST_ONCE
        self._producer: tuple[int, int] | None = None  # id and epoch
        self._sequence = 0
        self._last: int | None = None  # the newest timestamp, unless the leader stamps
        self._sent: tuple[object, list[int]] | None = None  # the request in progress, with its stream's timestamps

    def encode(self, append: Append) -> tuple[ProducedRecords | None, int]:
        """Return the columns of an append; see `GroupingWriter.encode`. Raises NOT_IMPLEMENTED for what Kafka lacks."""
        for value, what in (
            (append.match_seq_num, "condition on the next number (match_seq_num)"),
            (append.fencing_token, "fencing token"),
            (append.exact_timestamp, "timestamp that a client dictates"),
        ):
            if value is not None:
                raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._brokers.where}: Kafka knows no {what}")
        size = BATCH_HEADER + append.metered + _PER_RECORD * len(append.bodies)
        alone = _kept(append) is not None and size >= _ALONE
        return None if alone else to_produced(append.bodies, append.headers), size

    def alone(self, queued: _Queued) -> bool:
        return queued.part is None

    def begin_again(self) -> None:
        """Be another producer; see `GroupingWriter.begin_again`."""
        self._producer, self._sequence, self._sent = None, 0, None

    async def store(self, appends: Sequence[_Queued]) -> None:
        """Produce one batch; see `GroupingWriter.store`."""
        if self._idempotent and self._producer is None:
            self._producer = await self._new_producer()
        if self._sent is None or self._sent[0] is not appends:
            self._sent = appends, await self._stamps(appends)
        timestamps = self._sent[1]
        result = await self._produce(self._batch(appends, timestamps))
        if self._by_arrival:
            timestamps = await self._stamped(result, len(timestamps))
        else:
            self._last = timestamps[-1]
        self._acknowledge(appends, timestamps, result.base_offset)
        # Only now: if there are no results, the batch is sent again, and must have the same number.
        self._sequence = (self._sequence + len(timestamps)) % _SEQUENCES

    async def _new_producer(self) -> tuple[int, int]:
        """Ask any broker for a producer id. Raises HOT_SERVER if there is none: nothing was appended."""
        try:
            response = await self._brokers.ask_controller(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), InitProducerIdResponse
            )
        except OperationFailed as error:
            failure = error.failure
            raise fail(FailureCode.HOT_SERVER if failure.retryable else failure.code, failure.message) from error
        self._brokers.check(self.partition, response.error_code)
        return response.producer_id, response.producer_epoch

    async def _stamps(self, appends: Sequence[_Queued]) -> list[int]:
        """Return the timestamps of all records in the stream, which never fall."""
        now = self._clock()
        if self._by_arrival:
            return [now] * sum(len(append.append.bodies) for append in appends)
        if self._last is None:
            self._last = await self._positions.newest(self.partition)
        last, stamps = self._last, []
        for pending_append in appends:
            for requested in pending_append.append.timestamps or [None] * len(pending_append.append.bodies):
                last = max(
                    last,
                    now
                    if requested is None
                    else requested
                    if pending_append.append.event_times
                    else min(requested, now),
                )
                stamps.append(last)
        return stamps

    def _batch(self, appends: Sequence[_Queued], timestamps: list[int]) -> bytes:
        producer_id, epoch = self._producer or (NO_PRODUCER, -1)
        sequence = self._sequence if self._producer else -1
        kept = _kept(appends[0].append) if len(appends) == 1 else None
        if kept is not None:
            append = appends[0].append
            if self._by_arrival or _create_times(append, timestamps, {}) == append.timestamps:
                passed = as_producer(kept, producer_id, epoch, sequence)
                if passed is not None:
                    return passed
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        headers: dict[int, KafkaHeaders] = {}
        times: list[int] = []
        for pending_append in appends:
            part = pending_append.part or to_produced(pending_append.append.bodies, pending_append.append.headers)
            stamps = timestamps[len(times) : len(times) + len(part.values)]
            times += _create_times(pending_append.append, stamps, part.event_times)
            headers.update((len(values) + index, some) for index, some in part.headers.items())
            keys += part.keys
            values += part.values
        return encode_batch(
            KafkaBatch(
                compression=KafkaCompression.NONE if kept is None else KafkaCompression(compression_of(kept)),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                keys=keys,
                values=values,
                timestamps=times,
                offsets=range(len(values)),
                headers=headers,
            )
        )

    async def _produce(self, batch: bytes) -> ProducePartitionResult:
        result = await self._brokers.produce(self.partition, batch)
        self._brokers.check_produced(self.partition, result)
        return result

    async def _stamped(self, result: ProducePartitionResult, count: int) -> list[int]:
        """Return the timestamps that the leader gave to the records. One that does not tell them is asked for the
        records. Raises UNAVAILABLE: they are stored."""
        if result.log_append_time_ms >= 0:
            return [result.log_append_time_ms] * count
        try:
            stamps = await read_timestamps(
                self._brokers, self._positions, self.partition, max(result.base_offset, 0), count
            )
        except OperationFailed as error:
            raise OperationFailed(doubtful(error.failure)) from error
        return stamps if len(stamps) == count else [self._clock()] * count  # they were trimmed already

    def _acknowledge(self, appends: Sequence[_Queued], timestamps: list[int], offset: int) -> None:
        """Set the results. A duplicate of a batch that the leader has forgotten the place of has none."""
        if offset < 0:
            reason = f"{self._brokers.where}: the batch was stored before, and its offsets are not known"
            raise fail(FailureCode.UNAVAILABLE, reason)
        index, tail = 0, StreamPosition(offset + len(timestamps), timestamps[-1])
        for append in appends:
            last = index + len(append.append.bodies)
            start = StreamPosition(offset + index, timestamps[index])
            end = StreamPosition(offset + last, timestamps[last - 1])
            restamped = 0 if append.append.event_times and not self._by_arrival else None
            append.result = Appended(start, end, tail, restamped=restamped)
            index = last
