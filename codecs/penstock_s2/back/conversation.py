"""One append session with a server, over one HTTP exchange (S2 fact sheet, 2.3)."""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final, NamedTuple

import trio
from msgspec.structs import replace

from penstock.model.failures import Failure, OperationFailed, RemoteProtocolError
from penstock.model.limits import KIB
from penstock.model.operations import Append, Appended
from penstock.net.http.client.connection import HttpStream
from penstock.wire.codec import NEED_DATA, Pull
from penstock_s2.back.append_queue import AppendQueue, Need
from penstock_s2.back.pending import PendingAppend
from penstock_s2.back.shared import Shared
from penstock_s2.codec.s2s.sessions import AppendClient

__all__ = ["Ending", "EndingKind", "QueueSession"]

_JOINED: Final = 256 * KIB
"""Approximate number of bytes up to which inputs are written together."""


class EndingKind(Enum):
    """Kind of a session's end."""

    CLOSED = auto()
    """Everything that was sent was acknowledged."""
    REFUSED = auto()
    """The server refused the oldest input in flight and applied none after it."""
    LOST = auto()
    """The fate of the inputs in flight is unknown, unless the failure has no side effects."""


class Ending(NamedTuple):
    """End of a session: its kind and, unless CLOSED, its failure."""

    kind: EndingKind
    failure: Failure | None = None


class QueueSession:
    """Append session that sends a queue's appends and passes it the acknowledgements."""

    def __init__(self, stream: HttpStream, queue: AppendQueue, shared: Shared, heeds_advice: bool) -> None:
        self._stream = stream
        self._queue = queue
        self._shared = shared
        self._codec = AppendClient(shared.settings.compression)
        self._heeds_advice = heeds_advice
        self._heard_at = -math.inf
        self._sent_all_at = math.inf
        self._patience: trio.CancelScope | None = None
        self._ending: Ending | None = None

    @property
    def advised(self) -> bool:
        """True once the server has advised to reconnect, if that advice is followed."""
        return self._heeds_advice and self._codec.reconnect_advised

    async def run(self) -> Ending:
        """Run until the session ends, and return how. Appends in flight stay in the queue's `in_flight`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_all, nursery.cancel_scope)
            await self._receive_all()
            nursery.cancel_scope.cancel()
        assert self._ending is not None
        return self._ending

    def _end(self, kind: EndingKind, failure: Failure | None = None) -> None:
        self._ending = self._ending or Ending(kind, failure)

    # ---- inputs --------------------------------------------------------------------------------------------------

    async def _send_all(self, both: trio.CancelScope) -> None:
        """Send until the queue was idle for the linger time, or the server advised to reconnect."""
        queue = self._queue
        try:
            while self._ending is None and not self.advised:
                taken = queue.take()
                if isinstance(taken, PendingAppend):
                    await self._send(taken)
                elif taken is Need.TAIL:
                    queue.saw_tail(await self._shared.unary.tail(queue.stream))
                elif not await self._more_work():
                    break
            await self._stream.finish()
        except OperationFailed as error:
            # What the server sent before it closed can still be received, unless no input is in flight.
            if not queue.in_flight:
                self._end(EndingKind.LOST, error.failure)
                both.cancel()
        self._sent_all_at = trio.current_time()
        self._set_patience()

    async def _send(self, taken: PendingAppend) -> None:
        """Send this append together with those behind it that are ready, up to `_JOINED` bytes."""
        pieces: list[bytes] = []
        size = 0
        some = [taken]
        while True:
            try:
                encoded = self._codec.send(_as_sent(taken))
            except OperationFailed as error:  # it does not fit into a frame; nothing was sent
                self._queue.untake(taken)
                some.pop()
                self._queue.fail(taken, error.failure)
            else:
                pieces += encoded
                size += taken.size
            if size >= _JOINED:
                break
            more = self._queue.take()
            if not isinstance(more, PendingAppend):
                break
            taken = more
            some.append(taken)
        self._mark(some)
        if pieces:
            await self._stream.send(pieces)
        self._mark(some)

    def _mark(self, some: list[PendingAppend]) -> None:
        now = trio.current_time()
        for pending in some:
            pending.sent_at = now
        self._set_patience()

    async def _more_work(self) -> bool:
        """Wait for something to send.

        Returns False if the session should end: idle for the linger time, or the back is closing.
        """
        queue = self._queue
        if not (queue.in_flight or queue.lingers):
            return False
        with trio.move_on_after(math.inf if queue.in_flight else self._shared.settings.linger_seconds) as scope:
            await queue.news()
        return not scope.cancelled_caught

    # ---- acknowledgements ----------------------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        broken = self._shared.calls.broke
        try:
            while True:
                event = self._codec.next_event()
                if isinstance(event, Appended):
                    self._heard_at = trio.current_time()
                    await self._queue.acknowledge(event)
                elif isinstance(event, Failure):
                    self._end(EndingKind.REFUSED, event)
                    return
                elif event is NEED_DATA:
                    data = await self._receive()
                    if not data:  # the answer is truncated
                        broken = self._shared.calls.lost
                    self._codec.receive(data)
                else:
                    assert isinstance(event, Pull)
                    self._end(EndingKind.CLOSED)
                    return
        except OperationFailed as error:
            if self._sent_all_at < math.inf and not self._queue.in_flight:
                self._end(EndingKind.CLOSED)  # only the server's end of the session is missing
            else:
                self._end(EndingKind.LOST, error.failure)
        except RemoteProtocolError as error:
            self._end(EndingKind.LOST, broken(error.failure.message))

    async def _receive(self) -> bytes | bytearray:
        """Receive more of the answer.

        Raises OperationFailed(UPSTREAM_TIMEOUT) if an acknowledgement is overdue, or after the last one the end of the
        answer.
        """
        with trio.CancelScope() as self._patience:
            self._set_patience()
            return await self._stream.receive()
        raise self._stream.late(self._shared.calls.request_seconds, "acknowledgement")

    def _set_patience(self) -> None:
        if self._patience is not None:
            in_flight = self._queue.in_flight
            since = max(in_flight[0].sent_at if in_flight else self._sent_all_at, self._heard_at)
            self._patience.deadline = since + self._shared.calls.request_seconds


def _as_sent(pending: PendingAppend) -> Append:
    """Return the append with the sequence number that the gateway found for it."""
    append = pending.append
    return append if pending.number == append.match_seq_num else replace(append, match_seq_num=pending.number)
