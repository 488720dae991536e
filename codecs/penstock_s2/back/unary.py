"""Single requests for records: the tail, or a few records from a start (S2 fact sheet, 1.2 and 5.4)."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import FromSeqNum, FromTailOffset, FromTimestamp
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.net.retries import RetryPolicy, retrying
from penstock_s2.back.calls import PROTOBUF, S2Requests, encryption_key
from penstock_s2.codec.json_records import decode_tail
from penstock_s2.codec.names import encode_path_segment
from penstock_s2.codec.protobuf import decode_read_batch

__all__ = ["RecordSpot", "ServerStart", "UnaryRequests", "records_path", "start_query", "tail_in_failure"]

ServerStart = FromSeqNum | FromTimestamp | FromTailOffset
"""Starts of reads that the server knows."""

_RETRIES: Final = RetryPolicy(attempts=3, total_seconds=3.0)


class RecordSpot(NamedTuple):
    """Position of a record, or of the tail."""

    position: StreamPosition
    at_tail: bool


def records_path(stream: StreamRef) -> str:
    """Return the path of a stream's records."""
    return f"/v1/streams/{encode_path_segment(stream.stream)}/records"


def start_query(start: ServerStart) -> dict[str, int]:
    """Return a start as query parameters."""
    match start:
        case FromSeqNum(seq_num):
            return {"seq_num": seq_num}
        case FromTimestamp(timestamp):
            return {"timestamp": timestamp}
        case FromTailOffset(offset):
            return {"tail_offset": offset}


class UnaryRequests:
    """Requests that change nothing, and so may be retried."""

    def __init__(self, calls: S2Requests) -> None:
        self._calls = calls

    async def tail(self, stream: StreamRef) -> StreamPosition:
        """Return the stream's tail, creating the stream if the basin creates them on reads. Raises OperationFailed."""

        async def ask() -> StreamPosition:
            response = await self._calls.json("GET", records_path(stream) + "/tail", stream.basin)
            return response.read(decode_tail)

        return await retrying(ask, _RETRIES, idempotent=True, back=self._calls.back)

    async def read(self, stream: StreamRef, start: ServerStart, count: int) -> RecordBatch | None:
        """Return up to `count` records from `start` on; None if the server sent none.

        Raises OperationFailed: RANGE_NOT_SATISFIABLE (details: tail) if the start is at the tail or after it.
        """
        query = {**start_query(start), "count": count}

        async def ask() -> RecordBatch | None:
            response = await self._calls.call(
                "GET",
                records_path(stream),
                stream.basin,
                headers=[("accept", PROTOBUF), *encryption_key()],
                query=query,
            )
            if not response.body:
                return None
            try:
                found = decode_read_batch(response.body)
            except OperationFailed as error:
                raise OperationFailed(self._calls.broke(error.failure.message)) from None
            return found if isinstance(found, RecordBatch) else None

        return await retrying(ask, _RETRIES, idempotent=True, back=self._calls.back)

    async def spot(self, stream: StreamRef, start: ServerStart) -> RecordSpot:
        """Return the position of the first record at or after `start`, or the tail."""
        try:
            batch = await self.read(stream, start, 1)
        except OperationFailed as error:
            tail = tail_in_failure(error)
            if tail is None:
                raise
            return RecordSpot(tail, at_tail=True)
        if batch is None:
            return RecordSpot(await self.tail(stream), at_tail=True)
        return RecordSpot(StreamPosition(batch.first_seq_num, batch.columns.timestamps[0]), at_tail=False)


def tail_in_failure(error: OperationFailed) -> StreamPosition | None:
    """Return the tail from the failure of a start at or after it; None for any other failure."""
    tail = error.failure.details.get("tail")
    if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE or not isinstance(tail, dict):
        return None
    return StreamPosition(tail["seq_num"], tail["timestamp"])
