"""The sequence numbers of a producer in one stream, by which each of its batches is stored once (KIP-98).

    position = epoch << 47 | records before the last one

The client counts records in 31 bits, from 0 in each epoch; the position goes on counting when they wrap. A batch must
begin where the producer has come to. One that is stored already is acknowledged again: with its offset if it is one of
the last five, as Kafka does, and later, or after a restart, with DUPLICATE_SEQUENCE_NUMBER, which clients take for an
acknowledgement without an offset.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

from penstock.core.back import Back
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendAs, Attribute, GetAttribute, WriterPosition
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append, Appended, restamped_records
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch
from penstock_kafka.codec.carrying import RecordsPart

__all__ = ["BatchPlace", "KafkaRefusal", "ProducerSequence", "append_as", "append_plain", "position_of"]

_EPOCH_SHIFT: Final = 47
_COUNT: Final = (1 << _EPOCH_SHIFT) - 1
_WRAP: Final = 1 << 31
_RECENT: Final = 5
"""Batches whose offsets are remembered: clients have at most so many in flight."""


class KafkaRefusal(Exception):
    """A request, or a part of one, that is answered with an error code of Kafka's own."""

    def __init__(self, code: KafkaError, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchPlace(NamedTuple):
    """The place of an appended batch: the offset of its first record, -1 if it is not known, and the timestamp in ms
    that records got in place of their own, of several the last one, -1 if all keep theirs."""

    offset: int = -1
    log_append_time: int = -1

    def after(self, part: RecordsPart, appended: Appended) -> BatchPlace:
        """Return the place once one more part of the batch is appended."""
        offset = appended.start.seq_num if part.first == 0 else self.offset
        if None in part.timestamps or restamped_records(part.timestamps, appended):
            return BatchPlace(offset, appended.end.timestamp)
        return BatchPlace(offset, self.log_append_time)


class _Stored(NamedTuple):
    """A batch that was stored: its epoch, its first and last sequence number, and its place."""

    epoch: int
    first: int
    last: int
    place: BatchPlace


class ProducerSequence(msgspec.Struct):
    """The state of one producer of one stream. `position`: NO_ATTRIBUTE if the stream does not know it; `first`: epoch
    and sequence number of the batch with which it begins then, None once one is stored."""

    position: int = NO_ATTRIBUTE
    first: tuple[int, int] | None = None
    recent: deque[_Stored] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))

    def place(self, batch: KafkaBatch) -> tuple[int, int] | BatchPlace:
        """Return the position of the batch's first record, and how many of its records are stored already; or the place
        of a batch that is stored whole. Raises KafkaRefusal."""
        epoch, first, count = batch.producer_epoch, batch.base_sequence, len(batch)
        if self.position == NO_ATTRIBUTE:
            # A batch behind one that failed must fail as well: the client would take the repeated one for a duplicate.
            if self.first is not None and self.first[0] == epoch and first > self.first[1]:
                reason = f"producer {batch.producer_id} must begin with sequence number {self.first[1]}, not {first}"
                raise KafkaRefusal(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
            self.first = epoch, first
            return epoch << _EPOCH_SHIFT | first, 0
        last_epoch, last = self.position >> _EPOCH_SHIFT, self.position & _COUNT
        who = f"producer {batch.producer_id}"
        if epoch < last_epoch:
            reason = f"{who} is at epoch {last_epoch}, so epoch {epoch} is over"
            raise KafkaRefusal(KafkaError.INVALID_PRODUCER_EPOCH, reason)
        expected = 0 if epoch > last_epoch else (last + 1) % _WRAP
        if first == expected:
            return epoch << _EPOCH_SHIFT | (0 if epoch > last_epoch else last + 1), 0
        for stored in self.recent:
            if stored[:3] == (epoch, first, (first + count - 1) % _WRAP):
                return stored.place
        behind = (expected - first) % _WRAP
        if epoch > last_epoch or behind > min(last + 1, _WRAP // 2):
            reason = f"{who} must go on with sequence number {expected}, not {first}"
            raise KafkaRefusal(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
        if behind >= count:
            reason = f"{who} has sent sequence number {first} before: its records are stored"
            raise KafkaRefusal(KafkaError.DUPLICATE_SEQUENCE_NUMBER, reason)
        return self.position + 1, behind  # the gateway stopped between two parts of the batch

    def continues(self, batch: KafkaBatch) -> bool:
        """Return whether a batch follows the last one in the same epoch, so that it needs no further check."""
        epoch, last = self.position >> _EPOCH_SHIFT, self.position & _COUNT
        return self.position != NO_ATTRIBUTE and (batch.producer_epoch, batch.base_sequence) == (
            epoch,
            (last + 1) % _WRAP,
        )

    def stored(self, batch: KafkaBatch, place: BatchPlace) -> None:
        """Remember a batch that is stored whole."""
        self.first = None
        first = batch.base_sequence
        self.recent.append(_Stored(batch.producer_epoch, first, (first + len(batch) - 1) % _WRAP, place))


async def position_of(back: Back, stream: StreamRef, writer: Attribute) -> int:
    """Return a writer's position, NO_ATTRIBUTE on a back without writers. Raises OperationFailed."""
    try:
        return await back.perform(GetAttribute(stream, writer))
    except OperationFailed as error:
        if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
            raise
        return NO_ATTRIBUTE


def append_plain(stream: StreamRef, part: RecordsPart) -> Append:
    """Return the operation that appends records."""
    timestamps = None if all(time is None for time in part.timestamps) else part.timestamps
    return Append(
        stream,
        part.bodies,
        part.metered,
        part.headers,
        timestamps,
        create_if_missing=False,
        wire=part.wire,
        event_times=True,
    )


async def append_as(back: Back, stream: StreamRef, part: RecordsPart, writer: WriterPosition) -> Appended:
    """Append records as a writer, or as plain records on a back without writers. Raises OperationFailed."""
    plain = append_plain(stream, part)
    try:
        return await back.perform(
            AppendAs(
                stream,
                plain.bodies,
                plain.metered,
                plain.headers,
                plain.timestamps,
                create_if_missing=False,
                wire=part.wire,
                event_times=True,
                writer=writer,
            )
        )
    except OperationFailed as error:
        if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
            raise
    return await back.perform(plain)
