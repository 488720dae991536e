"""Append sessions: pipelined appends to one stream."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from penstock.core.back import AppendSession
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import KIB
from penstock.model.operations import Append, Appended
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.store.appends import AppendChain, StoreAppend, StoreAppends
from penstock.store.committer import Ticket
from penstock.store.heads import StoredStream

__all__ = ["StoreAppendSession", "append_session"]

MAX_UNRECEIVED: Final = 4096
"""Most appends of one session that are not yet received; `send` waits while there are more."""
SENDS_PER_PASS: Final = 64
"""Number of appends after which `send` lets other tasks run: each takes about 40 us, and 4,096 blocked all other tasks
for 160 ms."""
BYTES_PER_SEND: Final = 64 * KIB
"""Bytes in flight for which an append counts as one append more."""


class StoreAppendSession(AppendSession):
    """An append session, bound to the stream that it found, not to one that takes its name later."""

    def __init__(self, appends: StoreAppends, target: StoredStream, key: EncryptionKey | None) -> None:
        self._appends = appends
        self._key = key
        self._target = target
        self._chain = AppendChain()
        self._requests: deque[StoreAppend] = deque()
        self._settled = trio.lowlevel.ParkingLot()  # unparked when a request is settled, and at the end
        self._received = trio.lowlevel.ParkingLot()  # unparked when acknowledgements are received
        self._sends = 0
        self._failure: Failure | None = None
        self._closed = False

    async def send(self, append: Append | AppendBytes) -> None:
        """Send the next append; see `AppendSession.send`. Raises INVALID for an append at an offset."""
        if isinstance(append, AppendBytes) and append.match_offset is not None:
            raise fail(FailureCode.INVALID, "an append at an offset cannot be sent in a session")
        while len(self._requests) >= MAX_UNRECEIVED and not self._chain.broken:
            await self._received.park()
        if self._chain.broken:
            await trio.lowlevel.checkpoint()
            return
        ticket: Ticket[Appended] = Ticket(self._settled.unpark_all)
        request = StoreAppend(self._appends, append, self._target, self._key, self._chain, ticket)
        self._requests.append(request)
        self._appends.admission.enter(request)
        if request.started:
            # Nearly always. A pass through the scheduler for each append would cost more than the append itself.
            self._sends += 1 + request.size // BYTES_PER_SEND
            if self._sends < SENDS_PER_PASS:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                self._sends = 0
                await trio.lowlevel.checkpoint()
            return
        try:
            await request.wait_started()
        except trio.Cancelled:
            if request.withdraw() and self._failure is None:  # after a failure the requests were cleared already
                self._requests.remove(request)
                self._settled.unpark_all()
            raise

    def close(self) -> None:
        """Declare that nothing more will be sent; see `AppendSession.close`."""
        self._closed = True
        self._settled.unpark_all()

    async def receive(self) -> list[Appended]:
        """Wait for acknowledgements and return those that are ready; see `AppendSession.receive`."""
        await trio.lowlevel.checkpoint_if_cancelled()  # not after they are taken: they would be lost
        while True:
            if acknowledged := self._take_acknowledged():
                return acknowledged
            if self._requests and (failure := self._requests[0].ticket.failure) is not None:
                self._failure = failure
                self._requests.clear()
                self._received.unpark_all()
            if self._failure is not None:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._failure)
            if self._closed and not self._requests:
                await trio.lowlevel.checkpoint()
                return []
            await self._settled.park()

    def _take_acknowledged(self) -> list[Appended]:
        acknowledged = []
        while self._requests and (appended := self._requests[0].ticket.result) is not None:
            acknowledged.append(appended)
            self._requests.popleft()
        if acknowledged:
            self._received.unpark_all()
        return acknowledged


@asynccontextmanager
async def append_session(
    appends: StoreAppends, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
) -> AsyncIterator[StoreAppendSession]:
    """Open a session of pipelined appends to one stream; see `Back.append_session`."""
    key = CLIENT.get().encryption_key
    async with appends.place(ref, create_config, create_if_missing, key) as stream:
        yield StoreAppendSession(appends, stream, None if stream.head.cipher is None else key)
