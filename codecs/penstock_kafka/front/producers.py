"""Idempotent producers: each record once, however often it is sent (KIP-98).

A producer is a writer of each stream that it appends to. The writer's position is stored with the records in one step,
so it survives whatever they survive. A back that has no writers keeps no positions: there they are remembered in
memory, and a batch whose acknowledgement is lost in a restart of the gateway may be stored twice.

A producer's batches share commits: one may be handed to the stream before the one in front of it is durable. Each
names the position that it expects, so the stream refuses those behind a failed one. Only a batch that simply follows is
handed over so; any other waits until it is certain what is stored. Without writers in the back, each batch waits for
the one before.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from uuid import UUID, uuid5

import msgspec
import trio

from penstock.core.back import Back
from penstock.model.byte_operations import WriterPosition
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Capability
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import NO_PRODUCER, KafkaBatch
from penstock_kafka.codec.carrying import RecordsPart, parts_of
from penstock_kafka.sequences import (
    BatchPlace,
    KafkaRefusal,
    ProducerSequence,
    append_as,
    append_plain,
    position_of,
)

__all__ = ["Producers", "new_producer_id"]

_WRITERS: Final = UUID("d3b1fb5c-9a5e-4a39-8f0f-6f0a4f5c7e21")
"""Namespace of the ids of producers' writers."""
MOST_REMEMBERED: Final = 100_000
"""Producers of streams that are remembered, about 1 KiB each; of others, the position is looked up again."""


def new_producer_id() -> int:
    """Return an id that no other producer has: 62 random bits."""
    return secrets.randbits(62)


class _Producer(msgspec.Struct):
    """The state of one producer of one stream.

    `turn`: of the batch that is handed over. `is_writer`: whether its position is stored with its records, None if that
    is not known yet. `in_flight`: batches that are handed over and not durable; `sequence` counts them as stored.
    `is_doubtful`: the position must be looked up, since one of these failed, or none has been stored yet.
    """

    turn: trio.Lock = msgspec.field(default_factory=trio.Lock)
    sequence: ProducerSequence = msgspec.field(default_factory=ProducerSequence)
    is_writer: bool | None = None
    is_doubtful: bool = True
    in_flight: int = 0
    settled: trio.lowlevel.ParkingLot = msgspec.field(default_factory=trio.lowlevel.ParkingLot)


class Producers:
    """Appends batches of producers, idempotent or not."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self._known: OrderedDict[tuple[StreamRef, int], _Producer] = OrderedDict()

    @property
    def _whole(self) -> bool:
        """True if the back takes batches of any size; others get them in parts."""
        return Capability.LARGE_BATCHES in self._back.capabilities

    async def append(self, stream: StreamRef, batch: KafkaBatch, hand_over: Callable[[], None]) -> BatchPlace:
        """Append a batch; return its place. `hand_over()` is called when the batch takes its place among all appends to
        the stream, before it is durable; not for a batch that is stored already or refused.

        Raises OperationFailed, and KafkaRefusal for a batch out of order, of an epoch that is over, or stored already.
        """
        if batch.producer_id == NO_PRODUCER:
            return await self._append_plain(stream, parts_of(batch, whole=self._whole), hand_over)
        if batch.base_sequence < 0 or batch.producer_epoch < 0:
            reason = f"producer {batch.producer_id} has epoch {batch.producer_epoch}, sequence {batch.base_sequence}"
            raise KafkaRefusal(KafkaError.INVALID_RECORD, reason)
        return await self._append_once(stream, batch, self._remembered(stream, batch.producer_id), hand_over)

    def _remembered(self, stream: StreamRef, producer_id: int) -> _Producer:
        producer = self._known.setdefault((stream, producer_id), _Producer())
        self._known.move_to_end((stream, producer_id))
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return producer

    async def _append_plain(
        self, stream: StreamRef, parts: list[RecordsPart], hand_over: Callable[[], None]
    ) -> BatchPlace:
        stored_at = BatchPlace()
        for part in parts:
            if part is parts[-1]:
                hand_over()
            stored_at = stored_at.after(part, await self._back.perform(append_plain(stream, part)))
        return stored_at

    # ---- once --------------------------------------------------------------------------------------------------------

    async def _append_once(
        self, stream: StreamRef, batch: KafkaBatch, producer: _Producer, hand_over: Callable[[], None]
    ) -> BatchPlace:
        writer = uuid5(_WRITERS, str(batch.producer_id)).bytes
        for looks_again in (True, False):
            try:
                return await self._append_in_turn(stream, batch, producer, writer, hand_over)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STALE_WRITER_POSITION or not looks_again:
                    raise
                producer.is_doubtful = True
        raise AssertionError("the second try returns or raises")

    async def _append_in_turn(
        self, stream: StreamRef, batch: KafkaBatch, producer: _Producer, writer: bytes, hand_over: Callable[[], None]
    ) -> BatchPlace:
        sequence = producer.sequence
        async with producer.turn:
            while producer.in_flight and (producer.is_doubtful or not sequence.continues(batch)):
                await producer.settled.park()
            if producer.is_doubtful:
                sequence.position = await position_of(self._back, stream, writer)
                producer.is_doubtful = False
            spot = sequence.place(batch)
            if isinstance(spot, BatchPlace):
                return spot
            position, skip = spot
            *parts, last_part = parts_of(batch, skip, whole=self._whole)
            stored_at = BatchPlace()
            for part in parts:
                end = position + part.first - skip + len(part.bodies) - 1
                appended = await append_as(self._back, stream, part, WriterPosition(writer, end, sequence.position))
                sequence.position = end
                stored_at = stored_at.after(part, appended)
            end = position + last_part.first - skip + len(last_part.bodies) - 1
            as_writer = WriterPosition(writer, end, sequence.position)
            hand_over()
            if not producer.is_writer:
                stored_at = stored_at.after(last_part, await append_as(self._back, stream, last_part, as_writer))
                sequence.position = end
                sequence.stored(batch, stored_at)
                if producer.is_writer is None:
                    producer.is_writer = await position_of(self._back, stream, writer) == end
                return stored_at
            sequence.position = end
            producer.in_flight += 1
        # No checkpoint before the append takes its place: the next batch is handed over behind it.
        try:
            stored_at = stored_at.after(last_part, await append_as(self._back, stream, last_part, as_writer))
        except BaseException:
            producer.is_doubtful = True
            raise
        finally:
            producer.in_flight -= 1
            if not producer.in_flight:
                producer.settled.unpark_all()
        sequence.stored(batch, stored_at)
        return stored_at
