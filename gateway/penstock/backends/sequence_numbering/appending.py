"""Append sessions: they turn native acknowledgements into positions."""

from __future__ import annotations

from collections import deque
from typing import Final

import trio
from msgspec.structs import replace

from penstock.backends.sequence_numbering.assigning import NumberAssigner, SentAppend
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.backends.sequence_numbering.trimming import carry_out_commands, check_commands
from penstock.core.back import AppendSession
from penstock.core.native import NativeAppendSession
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, Capability

__all__ = ["IndexedAppendSession"]

MAX_UNRECEIVED: Final = 4096
"""Most unacknowledged appends and unreceived acknowledgements of one session; `send` waits while there are more."""
_TRIES: Final = 5
"""Attempts at a conditional append, if another client appends between reading the tail and appending."""


class IndexedAppendSession(AppendSession):
    """An append session of records; see `penstock.core.back.AppendSession`. `run` must run while it is used."""

    def __init__(self, stream: IndexedStream, settling: NumberAssigner, native: NativeAppendSession) -> None:
        self._stream = stream
        self._settling = settling
        self._native = native
        self._handed: deque[SentAppend] = deque()
        self._results: deque[Appended] = deque()
        self._failure: Failure | None = None  # raised after all results before it were received
        self._closed = False
        self._ended = False  # the server will acknowledge nothing more
        self._changed = trio.lowlevel.ParkingLot()
        self._turn = trio.Lock()

    async def run(self) -> None:
        """Take the server's acknowledgements until the end."""
        try:
            while acks := await self._native.receive():
                pairs = [(self._handed[index], part) for index, ack in enumerate(acks) for part in ack.parts or (ack,)]
                told = iter(await self._settling.settle(pairs))
                results = [_joined([next(told) for _ in ack.parts or (ack,)]) for ack in acks]
                for appended in results:
                    if self._handed[0].append.headers:
                        await carry_out_commands(self._stream, self._handed[0].append, appended)
                    self._handed.popleft()
                    self._results.append(appended)
                self._changed.unpark_all()
        except OperationFailed as error:
            self._break(error.failure)
        finally:
            self._ended = True
            for handed in self._handed:
                self._stream.under_way.end(handed.ticket)
            self._handed.clear()
            self._changed.unpark_all()

    def _break(self, failure: Failure) -> None:
        if self._failure is None:
            self._failure = failure
        self._changed.unpark_all()

    @property
    def _over(self) -> bool:
        """True once nothing more is sent to the server."""
        return self._failure is not None or self._ended

    async def send(self, append: Append | AppendBytes) -> None:
        if isinstance(append, AppendBytes):
            raise fail(FailureCode.NOT_IMPLEMENTED, f"stream {self._stream.ref} takes records, not bytes")
        async with self._turn:
            while len(self._handed) + len(self._results) >= MAX_UNRECEIVED and self._failure is None:
                await self._changed.park()
            if self._failure is not None or self._ended:
                await trio.lowlevel.checkpoint()
                return
            try:
                self._check(append)
                if not self._stream.stamped_by_server:
                    await self._stream.others.announce(self._stream.ref)
                    if self._over:  # meanwhile
                        self._changed.unpark_all()
                        return
                if append.match_seq_num is None:
                    await self._hand_over(append)
                else:
                    await self._append_on_condition(append, append.match_seq_num)
            except OperationFailed as error:
                self._break(error.failure)
                self._native.close()

    def _check(self, append: Append) -> None:
        if not append.bodies:
            raise fail(FailureCode.INVALID, "record batch must not be empty")
        check_commands(append)
        if append.fencing_token is not None:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"the server of stream {append.stream} has no fencing tokens")
        if append.match_seq_num is not None and Capability.MATCH_SEQ_NUM not in self._stream.native.capabilities:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"the server of stream {append.stream} has no conditional appends")

    def _begin(self, append: Append) -> SentAppend:
        stream = self._stream
        end = stream.end
        if stream.stamped_by_server:
            return SentAppend(append, stream.under_way.begin(end.timestamp), (), end)
        ticket, timestamps = stream.under_way.begin_stamped(append, end.timestamp, stream.clock())
        return SentAppend(append, ticket, timestamps, end)

    async def _hand_over(self, append: Append) -> None:
        handed = self._begin(append)
        self._handed.append(handed)
        try:
            await self._native.send(append)
        except BaseException as error:
            if handed in self._handed and not isinstance(error, trio.Cancelled):
                self._handed.remove(handed)
                self._stream.under_way.end(handed.ticket)
            elif isinstance(error, trio.Cancelled):
                self._withdrawn(handed)
            raise

    def _withdrawn(self, handed: SentAppend) -> None:
        """Remove an append whose `send` was cancelled: it never happened, see `NativeAppendSession.send`."""
        if handed in self._handed:
            self._handed.remove(handed)
            self._stream.under_way.end(handed.ticket)
            self._changed.unpark_all()

    # ---- on condition --------------------------------------------------------------------------------------------

    async def _append_on_condition(self, append: Append, wanted: int) -> None:
        """Append at the number `wanted`, after all earlier appends of the session have their numbers."""
        while self._handed and self._failure is None:
            await self._changed.park()
        if self._failure is not None:
            return
        stream = self._stream
        for _ in range(_TRIES):
            await stream.catch_up()
            end = stream.end
            if end.seq_num != wanted:
                raise fail(
                    FailureCode.SEQ_NUM_MISMATCH,
                    f"the next sequence number is {end.seq_num}",
                    seq_num_mismatch=end.seq_num,
                )
            handed = self._begin(append)
            try:
                ack = await stream.native.append_at(stream.ref, append, end)
                results = await self._settling.settle([(handed, ack)])
                await carry_out_commands(stream, append, results[0])
                self._results += results
                self._changed.unpark_all()
                return
            except OperationFailed as error:
                if error.failure.code is not FailureCode.OFFSET_MISMATCH:
                    raise
            finally:
                stream.under_way.end(handed.ticket)
        raise fail(FailureCode.TRANSACTION_CONFLICT, f"other clients append to stream {stream.ref} all the time")

    # ---- acknowledgements ----------------------------------------------------------------------------------------

    def close(self) -> None:
        self._closed = True
        self._native.close()
        self._changed.unpark_all()

    async def receive(self) -> list[Appended]:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._results:
            if self._failure is not None and not self._handed:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._failure)
            if (self._closed or self._ended) and not self._handed and not self._turn.locked():
                await trio.lowlevel.checkpoint()
                return []
            await self._changed.park()
        results = list(self._results)
        self._results.clear()
        self._changed.unpark_all()
        return results


def _joined(parts: list[Appended]) -> Appended:
    """Return the acknowledgement of an append that was made in parts."""
    return replace(parts[-1], start=parts[0].start) if len(parts) > 1 else parts[0]
