"""An append session of one client: bytes go through the stream's lane, records straight to the back, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import trio

from penstock.backends.byte_view.requests import ByteAppend, ByteAppendChain
from penstock.backends.byte_view.streams import ByteStream
from penstock.core.back import AppendSession
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended
from penstock.model.records import StreamRef

__all__ = ["ByteViewSession", "sealed_before"]

MAX_UNRECEIVED: Final = 4096
"""Most unreceived byte appends of one session; `send` waits while there are more."""


class AppendMethods(Protocol):
    """The part of `ByteViewAppends` that a session uses."""

    async def find(self, ref: StreamRef) -> ByteStream:
        """Return the stream's byte view."""

    async def hand_over(self, stream: ByteStream, request: ByteAppend) -> object:
        """Queue an append in the stream's lane."""

    async def admit(self, append: Append) -> None:
        """Wait until records may be appended to the stream."""

    async def confirm(self, ref: StreamRef, acknowledged: Sequence[Appended]) -> int:
        """Return how many appends of records came before any seal."""

    def begin(self, ref: StreamRef) -> None:
        """Count an append of records as in flight."""

    def done(self, ref: StreamRef, count: int) -> None:
        """Count `count` appends of records as no longer in flight."""


def sealed_before(ref: StreamRef) -> OperationFailed:
    """Return the error of an append that came to the server behind a seal of another gateway."""
    return fail(FailureCode.STREAM_SEALED, f"stream {ref} was sealed before the append")


class ByteViewSession(AppendSession):
    """An append session for bytes and records. An append of one kind waits until all before it of the other settle."""

    def __init__(
        self,
        ways: AppendMethods,
        ref: StreamRef,
        inner: AppendSession | None,
        open_inner: Callable[[], Awaitable[AppendSession | Failure]] | None = None,
    ) -> None:
        self._ways = ways
        self._ref = ref
        self._inner = inner
        self._open_inner = open_inner
        self._chain = ByteAppendChain()
        self._ready: deque[Appended] = deque()
        self._requests: deque[ByteAppend] = deque()  # in the lane
        self._stream: ByteStream | None = None
        self._under_way = 0  # appends of records
        self._unconfirmed: list[Appended] = []  # those that the back has acknowledged
        self._receiving = False
        self._happened = trio.lowlevel.ParkingLot()
        self._closed = False

    async def send(self, append: Append | AppendBytes) -> None:
        """Send the next append. Raises OperationFailed(INVALID) for an append at an offset."""
        if isinstance(append, AppendBytes) and append.match_offset is not None:
            raise fail(FailureCode.INVALID, "an append at an offset cannot be sent in a session")
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            if isinstance(append, AppendBytes):
                await self._send_bytes(append)
            else:
                await self._send_records(append)
        except OperationFailed as error:
            self._fail(error.failure)

    async def _send_bytes(self, append: AppendBytes) -> None:
        await self._settle_records()
        while len(self._requests) >= MAX_UNRECEIVED and self._chain.failure is None:
            await self._happened.park()
        if self._stream is None:
            self._stream = await self._ways.find(self._ref)
            self._stream.users += 1
        if self._chain.failure is None:
            request = ByteAppend(append, self._chain, self._happened.unpark_all, (append.data,))
            await self._ways.hand_over(self._stream, request)
            self._requests.append(request)
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def _send_records(self, append: Append) -> None:
        await self._settle_bytes()
        if self._inner is None and self._open_inner is not None:
            opened = await self._open_inner()
            if isinstance(opened, Failure):
                raise OperationFailed(opened)
            self._inner = opened
        await self._ways.admit(append)
        if self._chain.failure is not None or self._inner is None:
            return
        self._under_way += 1
        self._ways.begin(self._ref)
        self._happened.unpark_all()
        try:
            await self._inner.send(append)
        except BaseException:
            self._over(1)
            raise

    def close(self) -> None:
        """Declare that nothing more will be sent."""
        self._closed = True
        if self._inner is not None:
            self._inner.close()
        self._happened.unpark_all()

    async def receive(self) -> list[Appended]:
        """Wait for acknowledgements and return those that are ready; an empty list at the end.

        Raises OperationFailed after the last acknowledgement if an append failed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            self._take_settled()
            if self._ready:
                ready = list(self._ready)
                self._ready.clear()
                self._happened.unpark_all()
                return ready
            if self._under_way:
                await self._receive_inner()
            elif self._chain.failure is not None and not self._requests:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._chain.failure)
            elif self._closed and not self._requests:
                await trio.lowlevel.checkpoint()
                return []
            else:
                await self._happened.park()

    def leave(self) -> None:
        """Release the session: appends that are not acknowledged yet never will be."""
        self._over(self._under_way)
        if self._stream is not None:
            self._stream.users -= 1
            self._stream = None

    def _take_settled(self) -> None:
        while self._requests and self._requests[0].is_settled:
            result = self._requests.popleft().result
            if result is not None:
                self._ready.append(result)

    async def _receive_inner(self) -> None:
        if self._inner is None or self._receiving:
            await self._happened.park()
            return
        self._receiving = True
        try:
            if not self._unconfirmed:
                self._unconfirmed += await self._inner.receive()
            count = await self._ways.confirm(self._ref, self._unconfirmed) if self._unconfirmed else 0
            acknowledged, self._unconfirmed = self._unconfirmed, []
            self._ready += acknowledged[:count]
            self._over(len(acknowledged))
            if count < len(acknowledged):
                raise sealed_before(self._ref)
        except OperationFailed as error:
            self._over(self._under_way)
            self._fail(error.failure)
        finally:
            self._receiving = False
            self._happened.unpark_all()

    async def _settle_records(self) -> None:
        while self._under_way:
            await self._receive_inner()

    async def _settle_bytes(self) -> None:
        while self._requests and not self._requests[-1].is_settled:
            await self._happened.park()
        self._take_settled()

    def _fail(self, failure: Failure) -> None:
        """Record the first failure: no later append of the session is applied."""
        if self._chain.failure is None:
            self._chain.failure = failure
        self._happened.unpark_all()

    def _over(self, count: int) -> None:
        count = min(count, self._under_way)
        if count:
            self._under_way -= count
            self._ways.done(self._ref, count)
            self._happened.unpark_all()
