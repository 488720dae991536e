"""Idempotent producers: each record once, however often it is sent (KIP-98).

A producer is a writer of each stream that it appends to. The writer's position is stored with the records in one step,
so it survives whatever they survive:

    position = epoch << 47 | records before the last one

The client counts records in 31 bits, from 0 in each epoch; the position goes on counting when they wrap. A batch must
begin where the producer has come to. One that is stored already is acknowledged again: with its offset if it is one of
the last five, as Kafka does, and later, or after a restart, with DUPLICATE_SEQUENCE_NUMBER, which clients take for an
acknowledgement without an offset.

A back that has no writers keeps no positions: there they are remembered in memory, and a batch whose acknowledgement is
lost in a restart of the gateway may be stored twice.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID, uuid5

import trio

from penstock.core.back import Back
from penstock_codecs.byte_operations import NO_ATTRIBUTE, AppendAs, GetAttribute, WriterPosition
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.kafka import KafkaError
from penstock_codecs.kafka.batches import NO_PRODUCER, KafkaBatch
from penstock_codecs.kafka.carrying import RecordsPart, parts_of
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Appended

__all__ = ["KafkaRefusal", "Producers", "new_producer_id"]

_WRITERS: Final = UUID("d3b1fb5c-9a5e-4a39-8f0f-6f0a4f5c7e21")
"""Namespace of the ids of producers' writers."""
_EPOCH_SHIFT: Final = 47
_COUNT: Final = (1 << _EPOCH_SHIFT) - 1
_WRAP: Final = 1 << 31
_RECENT: Final = 5
"""Batches whose offsets are remembered: clients have at most so many in flight."""
MOST_REMEMBERED: Final = 100_000
"""Producers of streams that are remembered, about 1 KiB each; of others, the position is looked up again."""


class KafkaRefusal(Exception):
    """A request, or a part of one, that is answered with an error code of Kafka's own."""

    def __init__(self, code: KafkaError, message: str) -> None:
        super().__init__(message)
        self.code = code


def new_producer_id() -> int:
    """Return an id that no other producer has: 62 random bits."""
    return secrets.randbits(62)


class _Stored(NamedTuple):
    """A batch that was stored: its epoch, its first and last sequence number, and its first offset."""

    epoch: int
    first: int
    last: int
    offset: int


@dataclass(slots=True)
class _Producer:
    """The state of one producer of one stream. `position` None: not looked up yet."""

    turn: trio.Lock = field(default_factory=trio.Lock)
    position: int | None = None
    recent: deque[_Stored] = field(default_factory=lambda: deque(maxlen=_RECENT))


class Producers:
    """Appends batches of producers, idempotent or not."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self._known: OrderedDict[tuple[StreamRef, int], _Producer] = OrderedDict()

    async def append(self, stream: StreamRef, batch: KafkaBatch) -> int:
        """Append a batch; return the offset of its first record, -1 if it is not known.

        Raises OperationFailed, and KafkaRefusal for a batch out of order, of an epoch that is over, or stored already.
        """
        if batch.producer_id == NO_PRODUCER:
            return await self._append_plain(stream, parts_of(batch))
        if batch.base_sequence < 0 or batch.producer_epoch < 0:
            why = f"producer {batch.producer_id} has epoch {batch.producer_epoch}, sequence {batch.base_sequence}"
            raise KafkaRefusal(KafkaError.INVALID_RECORD, why)
        producer = self._remembered(stream, batch.producer_id)
        async with producer.turn:
            return await self._append_once(stream, batch, producer)

    def _remembered(self, stream: StreamRef, producer_id: int) -> _Producer:
        producer = self._known.setdefault((stream, producer_id), _Producer())
        self._known.move_to_end((stream, producer_id))
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return producer

    async def _append_plain(self, stream: StreamRef, parts: list[RecordsPart]) -> int:
        first = -1
        for part in parts:
            appended = await self._back.perform(_append(stream, part))
            first = appended.start.seq_num if first < 0 else first
        return first

    # ---- once --------------------------------------------------------------------------------------------------------

    async def _append_once(self, stream: StreamRef, batch: KafkaBatch, producer: _Producer) -> int:
        writer = uuid5(_WRITERS, str(batch.producer_id)).bytes
        if producer.position is None:
            producer.position = await self._look_up(stream, writer)
        for looks_again in (True, False):
            position, skip = self._decide(batch, producer.position, producer.recent)
            if position is None:
                return skip
            try:
                return await self._store(stream, batch, producer, writer, position, skip)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STALE_WRITER_POSITION or not looks_again:
                    raise
                producer.position = await self._look_up(stream, writer)
        raise AssertionError("the second try returns or raises")

    async def _look_up(self, stream: StreamRef, writer: bytes) -> int:
        try:
            return await self._back.perform(GetAttribute(stream, writer))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
                raise
            return NO_ATTRIBUTE

    def _decide(self, batch: KafkaBatch, position: int, recent: deque[_Stored]) -> tuple[int | None, int]:
        """Return the position of the batch's first record, and how many of its records are stored already; or None and
        the offset of a batch that is stored whole. Raises KafkaRefusal."""
        epoch, first, count = batch.producer_epoch, batch.base_sequence, len(batch)
        if position == NO_ATTRIBUTE:
            return epoch << _EPOCH_SHIFT | first, 0
        last_epoch, last = position >> _EPOCH_SHIFT, position & _COUNT
        who = f"producer {batch.producer_id}"
        if epoch < last_epoch:
            why = f"{who} is at epoch {last_epoch}, so epoch {epoch} is over"
            raise KafkaRefusal(KafkaError.INVALID_PRODUCER_EPOCH, why)
        expected = 0 if epoch > last_epoch else (last + 1) % _WRAP
        if first == expected:
            return epoch << _EPOCH_SHIFT | (0 if epoch > last_epoch else last + 1), 0
        for stored in recent:
            if stored[:3] == (epoch, first, (first + count - 1) % _WRAP):
                return None, stored.offset
        behind = (expected - first) % _WRAP
        if epoch > last_epoch or behind > min(last + 1, _WRAP // 2):
            why = f"{who} must go on with sequence number {expected}, not {first}"
            raise KafkaRefusal(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if behind >= count:
            why = f"{who} has sent sequence number {first} before: its records are stored"
            raise KafkaRefusal(KafkaError.DUPLICATE_SEQUENCE_NUMBER, why)
        return position + 1, behind  # the gateway stopped between two parts of the batch

    async def _store(
        self, stream: StreamRef, batch: KafkaBatch, producer: _Producer, writer: bytes, position: int, skip: int
    ) -> int:
        """Append the records from index `skip` on, the first of which has this position."""
        first = -1
        for part in parts_of(batch, skip):
            before = producer.position
            last = position + part.first - skip + len(part.bodies) - 1
            appended = await self._append_as(stream, part, WriterPosition(writer, last, before))
            producer.position = last
            if part.first == 0:
                first = appended.start.seq_num
        sequence = batch.base_sequence
        producer.recent.append(_Stored(batch.producer_epoch, sequence, (sequence + len(batch) - 1) % _WRAP, first))
        return first

    async def _append_as(self, stream: StreamRef, part: RecordsPart, writer: WriterPosition) -> Appended:
        plain = _append(stream, part)
        try:
            return await self._back.perform(
                AppendAs(
                    stream,
                    plain.bodies,
                    plain.metered,
                    plain.headers,
                    plain.timestamps,
                    create_if_missing=False,
                    writer=writer,
                )
            )
        except OperationFailed as error:
            if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
                raise
        return await self._back.perform(plain)


def _append(stream: StreamRef, part: RecordsPart) -> Append:
    timestamps = None if all(time is None for time in part.timestamps) else part.timestamps
    return Append(stream, part.bodies, part.metered, part.headers, timestamps, create_if_missing=False)
