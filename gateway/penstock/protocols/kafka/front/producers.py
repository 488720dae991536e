"""Idempotent producers: each record once, however often it is sent (KIP-98).

A producer is a writer of each stream that it appends to. The writer's position is stored with the records in one step,
so it survives whatever they survive. A back that has no writers keeps no positions: there they are remembered in
memory, and a batch whose acknowledgement is lost in a restart of the gateway may be stored twice.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Final
from uuid import UUID, uuid5

import msgspec
import trio

from penstock.core.back import Back
from penstock.protocols.kafka.sequences import (
    KafkaRefusal,
    ProducerSequence,
    append_as,
    append_plain,
    position_of,
)
from penstock_codecs.byte_operations import WriterPosition
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.kafka import KafkaError
from penstock_codecs.kafka.batches import NO_PRODUCER, KafkaBatch
from penstock_codecs.kafka.carrying import RecordsPart, parts_of
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability

__all__ = ["Producers", "new_producer_id"]

_WRITERS: Final = UUID("d3b1fb5c-9a5e-4a39-8f0f-6f0a4f5c7e21")
"""Namespace of the ids of producers' writers."""
MOST_REMEMBERED: Final = 100_000
"""Producers of streams that are remembered, about 1 KiB each; of others, the position is looked up again."""


def new_producer_id() -> int:
    """Return an id that no other producer has: 62 random bits."""
    return secrets.randbits(62)


class _Producer(msgspec.Struct):
    """The state of one producer of one stream. `sequence` None: not looked up yet."""

    turn: trio.Lock = msgspec.field(default_factory=trio.Lock)
    sequence: ProducerSequence | None = None


class Producers:
    """Appends batches of producers, idempotent or not."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self._known: OrderedDict[tuple[StreamRef, int], _Producer] = OrderedDict()

    @property
    def _whole(self) -> bool:
        """True if the back takes batches of any size; others get them in parts."""
        return Capability.LARGE_BATCHES in self._back.capabilities

    async def append(self, stream: StreamRef, batch: KafkaBatch) -> int:
        """Append a batch; return the offset of its first record, -1 if it is not known.

        Raises OperationFailed, and KafkaRefusal for a batch out of order, of an epoch that is over, or stored already.
        """
        if batch.producer_id == NO_PRODUCER:
            return await self._append_plain(stream, parts_of(batch, whole=self._whole))
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
            appended = await self._back.perform(append_plain(stream, part))
            first = appended.start.seq_num if first < 0 else first
        return first

    # ---- once --------------------------------------------------------------------------------------------------------

    async def _append_once(self, stream: StreamRef, batch: KafkaBatch, producer: _Producer) -> int:
        writer = uuid5(_WRITERS, str(batch.producer_id)).bytes
        if producer.sequence is None:
            producer.sequence = ProducerSequence(await position_of(self._back, stream, writer))
        for looks_again in (True, False):
            position, skip = producer.sequence.place(batch)
            if position is None:
                return skip
            try:
                return await self._store(stream, batch, producer.sequence, writer, position, skip)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STALE_WRITER_POSITION or not looks_again:
                    raise
                producer.sequence.position = await position_of(self._back, stream, writer)
        raise AssertionError("the second try returns or raises")

    async def _store(
        self, stream: StreamRef, batch: KafkaBatch, sequence: ProducerSequence, writer: bytes, position: int, skip: int
    ) -> int:
        """Append the records from index `skip` on, the first of which has this position."""
        first = -1
        for part in parts_of(batch, skip, whole=self._whole):
            last = position + part.first - skip + len(part.bodies) - 1
            appended = await append_as(self._back, stream, part, WriterPosition(writer, last, sequence.position))
            sequence.position = last
            if part.first == 0:
                first = appended.start.seq_num
        sequence.stored(batch, first)
        return first
