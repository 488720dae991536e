"""Recovery after a lost connection: finding which of the appends in flight were applied.

The server is asked for its tail, and the records at the place in question are read back (S2 fact sheet, 7.7). Identical
records of another client cannot be told from ours.
"""

from __future__ import annotations

from enum import Enum, auto

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended, FromSeqNum
from penstock.model.records import Headers, StreamPosition
from penstock_s2.back.append_queue import AppendQueue
from penstock_s2.back.pending import PendingAppend
from penstock_s2.back.shared import Shared
from penstock_s2.back.unary import tail_in_failure

__all__ = ["AppendRecovery"]


class _Verdict(Enum):
    PENDING = auto()
    """It was not applied, and its place is free."""
    FOREIGN = auto()
    """Its place holds other records: neither it nor what was sent after it was applied."""
    UNKNOWN = auto()
    """Its place was trimmed."""


class AppendRecovery:
    """Finds out which doubtful appends of a queue were applied."""

    def __init__(self, shared: Shared, queue: AppendQueue) -> None:
        self._shared = shared
        self._queue = queue

    async def settle(self) -> None:
        """Settle the doubtful appends that were applied; the rest waits to be sent again.

        Raises OperationFailed if the server cannot be asked; then it may be called again.
        """
        queue = self._queue
        if not (queue.waiting and queue.waiting[0].doubtful):
            return
        tail = await self._shared.unary.tail(queue.stream)
        while queue.waiting and queue.waiting[0].doubtful:
            pending = queue.waiting[0]
            if pending.dropped:
                queue.drop()
                continue
            verdict = await self._judge(pending, tail)
            if isinstance(verdict, Appended):
                queue.waiting.popleft()
                await queue.succeed(pending, verdict)
            elif verdict is _Verdict.UNKNOWN:
                queue.waiting.popleft()
                queue.fail(pending, self._trimmed(pending))
            else:
                self._not_applied(pending, verdict)
                break
        queue.saw_tail(tail)

    def _not_applied(self, pending: PendingAppend, verdict: object) -> None:
        """Leave an append to be sent again, or fail it with the error that the server gave meanwhile.

        One whose condition other records have made impossible is sent again too: the server may have another reason to
        refuse it, which goes first, as that the stream is sealed.
        """
        queue = self._queue
        if verdict is _Verdict.FOREIGN or pending.refused is not None:
            # Appends behind it were sent on the same connections, each of which ended with it.
            for each in queue.waiting:
                each.doubtful = False
        if pending.refused is not None and not _own_mismatch(pending):
            queue.waiting.popleft()
            queue.fail(pending, pending.refused)
        pending.refused = None

    async def _judge(self, pending: PendingAppend, tail: StreamPosition) -> Appended | _Verdict:
        number, count = pending.number, pending.count
        assert number is not None
        if tail.seq_num <= number:
            return _Verdict.PENDING
        if tail.seq_num < number + count:
            return _Verdict.FOREIGN
        first, timestamps, bodies, headers = await self._read_back(pending, number)
        missing = first - number
        if missing >= count:
            return _Verdict.UNKNOWN
        append = pending.append
        expected = {index - missing: some for index, some in append.headers.items() if index >= missing and some}
        exact = append.exact_timestamp
        if (
            bodies != append.bodies[missing:]
            or headers != expected
            or (exact is not None and set(timestamps) != {exact})
        ):
            return _Verdict.FOREIGN
        start = StreamPosition(number, timestamps[0])
        return Appended(start, StreamPosition(number + count, timestamps[-1]), tail)

    async def _read_back(
        self, pending: PendingAppend, number: int
    ) -> tuple[int, list[int], list[bytes], dict[int, Headers]]:
        """Read back the records in an append's place: the first remaining number, timestamps, bodies and headers."""
        end = number + pending.count
        timestamps: list[int] = []
        bodies: list[bytes] = []
        headers: dict[int, Headers] = {}
        position = number
        while position < end:
            try:
                batch = await self._shared.unary.read(self._queue.stream, FromSeqNum(position), end - position)
            except OperationFailed as error:
                if tail_in_failure(error) is None:
                    raise
                batch = None
            if batch is None or batch.first_seq_num >= end:
                break
            if batch.first_seq_num > position and bodies:
                return end, [], [], {}  # trimmed while it was read
            part = batch.part(0, min(batch.count, end - batch.first_seq_num)).columns
            headers |= {len(bodies) + index: some for index, some in part.headers.items()}
            timestamps += part.timestamps
            bodies += part.bodies
            position = batch.first_seq_num + len(part.bodies)
        return (position - len(bodies) if bodies else end), timestamps, bodies, headers

    def _trimmed(self, pending: PendingAppend) -> Failure:
        where = self._shared.calls.where
        message = f"{where}: the connection was lost, and record {pending.number} was trimmed before it was read back"
        return Failure(FailureCode.UNAVAILABLE, message)


def _own_mismatch(pending: PendingAppend) -> bool:
    """Return whether it was refused for a sequence number that the gateway had found."""
    refused = pending.refused
    return refused is not None and refused.code is FailureCode.SEQ_NUM_MISMATCH and pending.append.match_seq_num is None
