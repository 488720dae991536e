"""Reading records a second time, in the same batches: for bytes that were dropped before their client took them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from penstock.core.back import Back
from penstock.model.operations import FromSeqNum, Read
from penstock.model.records import Columns, Headers, RecordBatch, StreamPosition

__all__ = ["BatchExtent", "join_batches", "read_again"]


class BatchExtent(NamedTuple):
    """The records of a batch, without their content. `tail`: as in the batch."""

    first_seq_num: int
    records: int
    tail: StreamPosition | None

    @classmethod
    def of(cls, batch: RecordBatch) -> Self:
        """Return the extent of a batch."""
        return cls(batch.first_seq_num, batch.count, batch.tail)


def join_batches(batches: Sequence[RecordBatch]) -> RecordBatch:
    """Return consecutive batches, at least one, as one."""
    if len(batches) == 1:
        return batches[0]
    seq_nums: list[int] = []
    timestamps: list[int] = []
    bodies: list[bytes] = []
    headers: dict[int, Headers] = {}
    for batch in batches:
        columns = batch.columns
        headers.update({len(bodies) + index: fields for index, fields in columns.headers.items()})
        seq_nums += columns.seq_nums
        timestamps += columns.timestamps
        bodies += columns.bodies
    joined = Columns(seq_nums, timestamps, bodies, headers)
    return RecordBatch(joined, first_id=batches[0].first_id, tail=batches[-1].tail)


async def read_again(back: Back, read: Read, extents: Sequence[BatchExtent]) -> list[RecordBatch]:
    """Return the batches that `read` delivered with these consecutive extents; fewer if records are gone.

    Raises OperationFailed.
    """
    bounds = replace(
        read,
        start=FromSeqNum(extents[0].first_seq_num),
        clamp=False,
        count=sum(extent.records for extent in extents),
        max_bytes=None,
        until=None,
        wait=0.0,
        create_config=None,
        create_if_missing=False,
    )
    batches: list[RecordBatch] = []
    async with back.read_session(bounds) as session:
        while isinstance(batch := await session.next(), RecordBatch):
            batches.append(batch)
    if not batches:
        return []
    joined, cut, index = join_batches(batches), [], 0
    for extent in extents:
        if index + extent.records > joined.count:
            break
        part = joined.part(index, index + extent.records)
        part.tail = extent.tail
        cut.append(part)
        index += extent.records
    return cut
