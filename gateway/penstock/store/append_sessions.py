"""Appends of one session, and of none: from being handed over until they are acknowledged.

The order in which appends to a stream are handed over is the order in which they are sequenced, whether they had
to wait for room or not, and whichever session they came from.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, Protocol, TypeVar

import trio

from penstock.store.admission import Admission
from penstock.store.committer import Ticket
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.limits import KIB
from penstock_codecs.operations import Append, Appended

__all__ = ["RECORD_BYTES", "Appending", "Chain", "Request", "StoreAppendSession", "append_alone"]

W = TypeVar("W")
P = TypeVar("P")

MAX_UNRECEIVED: Final = 4096
"""How many acknowledgements of one session may wait to be received before `send` waits too."""
SENDS_PER_PASS: Final = 64
"""After so many appends `send` lets other tasks run: each takes about 40 us, and 4,096 held up everybody for 160 ms."""
BYTES_PER_SEND: Final = 64 * KIB
"""What is in flight of an append counts as one append more for each so many bytes."""
RECORD_BYTES: Final = 64
"""What a record takes in memory beside its metered bytes, about: it counts towards what is in flight."""


class Appending(Protocol[W, P]):
    """Whoever takes appends in order: the store, or the way to it. `W` is an append as it waits for room, `P` the
    stream that a session is bound to."""

    @property
    def admission(self) -> Admission:
        """Who may append next."""

    def requested(
        self, append: Append | AppendBytes, place: P | None, chain: Chain, ticket: Ticket[Appended]
    ) -> Request[W, P]:
        """An append that is about to be handed over; without a place it finds its stream itself."""

    def sequence(self, request: Request[W, P], work: W, place: P | None) -> None:
        """There is room: decide it. The request's ticket is settled, and its room left, when that is durable.

        Raises OperationFailed.
        """

    def refuse(self, request: Request[W, P], failure: Failure) -> None:
        """It could not be decided: settle the request's ticket when all that this depends on is durable."""


class Chain:
    """What the appends of one session have in common: after the first failure none is applied."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class Request(Generic[W, P]):
    """One append, from being handed over until it is acknowledged. `size`: the room that it takes meanwhile."""

    __slots__ = ("_appends", "_chain", "_place", "_start", "_work", "size", "ticket")

    def __init__(
        self, appends: Appending[W, P], work: W, size: int, place: P | None, chain: Chain, ticket: Ticket[Appended]
    ) -> None:
        self._appends = appends
        self._work: W | None = work  # until it is started: acknowledgements may wait to be received for long
        self._start: trio.Event | None = None  # made only where it must be waited for
        self._place = place
        self._chain = chain
        self.size = size
        self.ticket = ticket

    def start(self) -> bool:
        """Sequence it. See `Applicant`."""
        work, self._work = self._work, None
        if self._start is not None:
            self._start.set()
        if self._chain.broken or work is None:
            return False
        try:
            self._appends.sequence(self, work, self._place)
        except OperationFailed as error:
            self.break_chain()
            self._appends.refuse(self, error.failure)
            return False
        return True

    @property
    def started(self) -> bool:
        """Whether it waits for room no longer."""
        return self._work is None

    async def wait_started(self) -> None:
        """Wait for room."""
        self._start = trio.Event()
        await self._start.wait()

    def break_chain(self) -> None:
        """It has failed or is about to: nothing that was sent after it is applied."""
        self._chain.broken = True

    def withdraw(self) -> bool:
        """Take it back unless it was sequenced; gives whether that was in time."""
        if self.started:
            return False
        self._appends.admission.withdraw(self)
        return True


async def append_alone(appends: Appending[W, P], append: Append | AppendBytes) -> Appended:
    """Carry out one append; it is sequenced before the first checkpoint unless it must wait for room.

    Cancelled while it waits for room it is withdrawn; later it may become durable all the same.
    """
    request = appends.requested(append, None, Chain(), Ticket())
    appends.admission.enter(request)
    try:
        return await request.ticket.wait()
    except trio.Cancelled:
        request.withdraw()
        raise


class StoreAppendSession(Generic[W, P]):
    """See `AppendSession`. Bound to the stream that it found, not to one that takes its name later."""

    def __init__(self, appends: Appending[W, P], place: P) -> None:
        self._appends = appends
        self._place = place
        self._chain = Chain()
        self._requests: deque[Request[W, P]] = deque()
        self._settled = trio.lowlevel.ParkingLot()  # wait here for a request to be settled, or for the end;
        self._received = trio.lowlevel.ParkingLot()  # and here for acknowledgements to be received
        self._sends = 0
        self._failure: Failure | None = None
        self._closed = False

    async def send(self, append: Append | AppendBytes) -> None:
        """Hand over the next batch; see `AppendSession.send`."""
        if isinstance(append, AppendBytes) and append.match_offset is not None:
            raise fail(FailureCode.INVALID, "an append at an offset is not for a session, which could not tell of it")
        while len(self._requests) >= MAX_UNRECEIVED and not self._chain.broken:
            await self._received.park()
        if self._chain.broken:
            await trio.lowlevel.checkpoint()
            return
        request = self._appends.requested(append, self._place, self._chain, Ticket(self._settled.unpark_all))
        self._requests.append(request)
        self._appends.admission.enter(request)
        if request.started:
            # Nearly always; a pass through the scheduler for each would cost more than the append itself.
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
            if request.withdraw() and self._failure is None:  # then they are gone already
                self._requests.remove(request)
                self._settled.unpark_all()
            raise

    def close(self) -> None:
        """Nothing more will be sent; see `AppendSession.close`."""
        self._closed = True
        self._settled.unpark_all()

    async def receive(self) -> list[Appended]:
        """The acknowledgements that are ready; see `AppendSession.receive`."""
        await trio.lowlevel.checkpoint_if_cancelled()  # not once they are taken: they would be lost
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
