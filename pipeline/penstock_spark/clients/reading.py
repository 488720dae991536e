"""Read a range of records over S2S sessions, with a new session after each broken connection (S2 fact sheet, 2.4 and
5.4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.wire.codec import NEED_DATA
from penstock_s2.codec.s2s.sessions import ReadClient
from penstock_spark.clients.calls import ServerRequests
from penstock_spark.clients.failing import late, lost

__all__ = ["beyond", "read_range", "trimmed"]


def read_range(
    calls: ServerRequests, stream: StreamRef, start: int, end: int, why_short: Callable[[int], OperationFailed | None]
) -> Iterator[RecordBatch]:
    """Yield the records from sequence number `start` up to but not including `end`; see `StreamClient.read`.

    `why_short`: called with the position if the server ends a read early; returns the error to raise, or None to retry.
    """
    position = start
    patience = calls.patience()
    while position < end:
        ended = lost(calls.endpoint, f"{stream}: the server ended a read at {position}")
        unsatisfied = True
        try:
            for batch in _session(calls, stream, position, end - position):
                wanted = _checked(stream, batch, position, end)
                position = wanted.next_seq_num
                patience.progress()
                yield wanted
        except OperationFailed as error:
            unsatisfied = error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            ended = ended if unsatisfied else error
        if position < end:
            if unsatisfied and (reason := why_short(position)) is not None:
                raise reason
            patience.wait(ended)


def _session(calls: ServerRequests, stream: StreamRef, position: int, count: int) -> Iterator[RecordBatch]:
    """Yield the batches of one session. Raises OperationFailed if it is refused or ends early."""
    codec = ReadClient()
    with calls.connection(stream.basin) as connection:
        calls.begin_read(connection, stream, {"seq_num": position, "count": count})
        seconds = calls.endpoint.request_seconds
        heard_at = time.monotonic()
        try:
            while True:
                event = codec.next_event()
                if isinstance(event, RecordBatch):
                    yield event
                    heard_at = time.monotonic()
                elif isinstance(event, StreamPosition):  # a heartbeat, which tells nothing about a range
                    if time.monotonic() > heard_at + seconds:
                        raise late(calls.endpoint, seconds)
                elif isinstance(event, Failure):
                    raise OperationFailed(event)
                elif event is NEED_DATA:
                    codec.receive(connection.receive() or b"")
                else:
                    return
        except RemoteProtocolError as error:
            raise lost(calls.endpoint, error.failure.message) from error


def _checked(stream: StreamRef, batch: RecordBatch, position: int, end: int) -> RecordBatch:
    """Return the requested part of the batch. Raises OperationFailed if the batch does not begin at `position`."""
    first = batch.first_seq_num
    if first > position:
        raise trimmed(stream, position, first)
    if first < position:
        raise fail(FailureCode.UNAVAILABLE, f"{stream}: the server sent record {first}, asked for {position}")
    return batch.part(0, min(batch.count, end - position))


def trimmed(stream: StreamRef, position: int, first: int) -> OperationFailed:
    """Return the failure for records that were trimmed before they were read."""
    message = f"{stream}: records from {position} on were trimmed, the first that is kept is {first}"
    return fail(FailureCode.RANGE_NOT_SATISFIABLE, message, first=first)


def beyond(stream: StreamRef, end: int, tail: int) -> OperationFailed:
    """Return the failure for a range that ends beyond the tail."""
    message = f"{stream}: asked for records up to {end}, its tail is {tail}"
    return fail(FailureCode.RANGE_NOT_SATISFIABLE, message, tail=tail)
