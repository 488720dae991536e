"""Appending the records of a committed transaction to their streams, each once, and telling beforehand whether a
stream takes them.

A writer of the stream, whose position is stored with the records in one step, tells which of them are there:

    position = serial of the transaction << 32 | records of the transaction so far
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final
from uuid import UUID, uuid5

import structlog

from penstock.core.back import Back
from penstock.model.byte_operations import WriterPosition
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Append, Capability, CheckTail
from penstock.model.records import NO_HEADERS, StreamRef, metered_size
from penstock_kafka.codec.batches import read_batches
from penstock_kafka.codec.carrying import parts_of
from penstock_kafka.groups.offsets import GroupPartition
from penstock_kafka.sequences import append_as, position_of
from penstock_kafka.transactions.pending import MOST_BATCH, TransactionBatches
from penstock_kafka.transactions.records import TxnPartition
from penstock_kafka.transactions.state import PendingPlace, ProducerState

__all__ = ["check_takes_records", "deliver", "is_final"]

log = structlog.get_logger()

_WRITERS: Final = UUID("5b0a3a52-77e5-4b5c-9d6f-2a2f7d3f0a11")
"""Namespace of the ids of these writers."""
_SERIAL_SHIFT: Final = 32
_LOST: Final = frozenset(
    {
        FailureCode.STREAM_NOT_FOUND,
        FailureCode.BASIN_NOT_FOUND,
        FailureCode.STREAM_SEALED,
        FailureCode.ENCRYPTION_KEY,
        FailureCode.NOT_REPRESENTABLE,
        FailureCode.LIMIT_EXCEEDED,
        FailureCode.INVALID,
        FailureCode.NOT_IMPLEMENTED,
    }
)
"""Failures that no repetition mends: the stream was deleted, sealed or encrypted after the records were taken, or its
server refuses them, since a batch is larger than it takes, for instance."""
_NEVER: Final = (1 << 63) - 1
"""A sequence number that no stream reaches."""


def is_final(failure: Failure) -> bool:
    """Return whether no repetition mends the failure of an append."""
    return failure.code in _LOST


async def check_takes_records(back: Back, stream: StreamRef) -> None:
    """Raise OperationFailed if an append to a stream would fail.

    An append whose condition is never true stores nothing, and fails for other reasons first. Of a back without such
    conditions this learns only whether the stream exists.
    """
    if Capability.MATCH_SEQ_NUM not in back.capabilities:
        await back.perform(CheckTail(stream, create_if_missing=False))
        return
    try:
        metered = metered_size([b""], NO_HEADERS)
        await back.perform(Append(stream, [b""], metered, match_seq_num=_NEVER, create_if_missing=False))
    except OperationFailed as error:
        if error.failure.code is not FailureCode.SEQ_NUM_MISMATCH:
            raise


async def deliver(back: Back, pending: TransactionBatches, producer: ProducerState, to: TxnPartition) -> bool:
    """Append the pending records of a partition that are not in its stream yet. Return False if they cannot be appended
    any more. Raises OperationFailed; it may then be called again."""
    whole = Capability.LARGE_BATCHES in back.capabilities
    writer = uuid5(_WRITERS, str(producer.record.producer_id)).bytes
    base = producer.record.serial << _SERIAL_SHIFT
    place = producer.places.setdefault(GroupPartition(to.topic, to.partition), PendingPlace())
    try:
        there = max(place.delivered, await position_of(back, to.ref, writer) - base)
        index = 0
        async with aclosing(pending.each(producer.transaction, to.topic, to.partition)) as batches:
            async for data in batches:
                for batch in read_batches(data, max_bytes=MOST_BATCH):
                    skip = min(max(0, there - index), len(batch))
                    for part in parts_of(batch, skip, whole=whole):
                        end = index + part.first + len(part.bodies)
                        await append_as(back, to.ref, part, WriterPosition(writer, base + end))
                        place.delivered = end
                    index += len(batch)
    except OperationFailed as error:
        if not is_final(error.failure):
            raise
        log.error("transaction_lost", stream=f"{to.basin}/{to.stream}", reason=str(error.failure))
        return False
    return True
