"""Appends to one stream of a server, one request at a time: what waits meanwhile is sent together in the next one.

For servers that store a request as a whole or not at all, and know a request that is sent again by its number. All
appends of a gateway to a stream go through its one writer, so they are applied in the order in which they were handed
over, whichever session they came from. After a failure the later appends of its session fail too.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import trio

from penstock.core.delivery import Delivery
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.features import Feature, feature_of
from penstock.model.operations import Append
from penstock.net.retries import RetryPolicy, retry_after, tried_again, worth_retrying
from penstock.net.upstream import doubtful

__all__ = ["AppendOwner", "GroupingSession", "GroupingWriter", "QueuedAppend", "UpstreamName"]

_PAUSES: Final = RetryPolicy()

P = TypeVar("P")
R = TypeVar("R")


class UpstreamName(NamedTuple):
    """The server of a writer: the name of its back, for metrics, and what messages call it."""

    back: str
    where: str


class AppendOwner:
    """The owner of a session's appends. `failed`: one of them has failed, so those behind it are not made."""

    failed = False


class QueuedAppend(Generic[P, R]):
    """An append in a writer's queue. `part`: its records as the server takes them. `over` is set once it is stored, and
    has its `result`, or has failed."""

    __slots__ = ("append", "failure", "over", "owner", "part", "result", "size")

    def __init__(self, append: Append, part: P, size: int, owner: AppendOwner) -> None:
        self.append = append
        self.part = part
        self.size = size
        self.owner = owner
        self.over = trio.Event()
        self.result: R | None = None
        self.failure: Failure | None = None

    def end(self, failure: Failure | None = None) -> None:
        """Set the outcome."""
        self.failure = failure
        self.owner.failed = self.owner.failed or failure is not None
        self.over.set()


class GroupingWriter(ABC, Generic[P, R]):
    """The writer of one stream; its requests are made in `nursery`.

    `inflight_bytes`: most bytes of appends that are not over; a single one may be larger. `together_bytes`: bytes up to
    which appends are sent together. `recover_seconds`: time for which a request in doubt is made again, as `delivery`
    allows. `patient`: so is one that the server certainly did not carry out. `busy`: it has appends.
    """

    patient = False

    def __init__(
        self,
        upstream: UpstreamName,
        *,
        inflight_bytes: int,
        together_bytes: int,
        delivery: Delivery,
        recover_seconds: float,
        nursery: trio.Nursery,
    ) -> None:
        self._name, self._where = upstream
        self._delivery = delivery
        self._recover_seconds = recover_seconds
        self._most = inflight_bytes
        self._together = together_bytes
        self._nursery = nursery
        self._queue: deque[QueuedAppend[P, R]] = deque()
        self._size = 0  # bytes of appends that are not over
        self._changed = trio.lowlevel.ParkingLot()
        self.busy = False

    @abstractmethod
    def encode(self, append: Append) -> tuple[P, int]:
        """Return an append as the server takes it, and its size in bytes when it is sent with others.

        Raises NOT_REPRESENTABLE for records that the stream cannot hold, LIMIT_EXCEEDED for too large an append.
        """

    def alone(self, queued: QueuedAppend[P, R]) -> bool:  # noqa: ARG002
        """Return whether an append is sent without others."""
        return False

    @abstractmethod
    async def store(self, appends: Sequence[QueuedAppend[P, R]]) -> None:
        """Make one request for these appends, and set their results. Raises OperationFailed:

        UNAVAILABLE or UPSTREAM_FAULT if the server may have stored them, STALE_WRITER_POSITION if it does not know the
        writer, or not up to these appends.
        """

    @abstractmethod
    def begin_again(self) -> None:
        """Be another writer from the next request on: the server does not know this one, or is in doubt about it."""

    async def submit(self, append: Append, owner: AppendOwner) -> QueuedAppend[P, R]:
        """Hand over an append; waits while too many bytes are in flight. Has no effect if cancelled.

        Raises NOT_REPRESENTABLE for records that the stream cannot hold, LIMIT_EXCEEDED for too large an append.
        """
        for index, headers in append.headers.items():
            if feature_of(headers, append.bodies[index]) is Feature.COMMAND:
                reason = f"record {index + 1} of the batch is a command, which the server would store and not execute"
                raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._where}: {reason}")
        queued: QueuedAppend[P, R] = QueuedAppend(append, *self.encode(append), owner)
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._size and self._size + queued.size > self._most:
            await self._changed.park()
        if owner.failed:
            queued.end(Failure(FailureCode.HOT_SERVER, "an append before it failed"))
            return queued
        self._size += queued.size
        self._queue.append(queued)
        if not self.busy:
            self.busy = True
            self._nursery.start_soon(self._run)
        return queued

    async def _run(self) -> None:
        taken: list[QueuedAppend[P, R]] = []
        try:
            while self._queue:
                taken = self._next()
                await self._store_together(taken)
        except trio.Cancelled:
            closed = f"{self._where}: the back was closed"
            self._end(
                [pending_append for pending_append in taken if not pending_append.over.is_set()],
                Failure(FailureCode.UNAVAILABLE, closed),
            )
            for pending_append in self._queue:
                pending_append.end(Failure(FailureCode.HOT_SERVER, closed))
            raise
        finally:
            self.busy = False

    def _next(self) -> list[QueuedAppend[P, R]]:
        """Take the appends for the next request from the queue."""
        taken = [self._queue.popleft()]
        size = taken[0].size
        while (
            self._queue
            and not (self.alone(taken[0]) or self.alone(self._queue[0]))
            and (size := size + self._queue[0].size) <= self._together
        ):
            taken.append(self._queue.popleft())
        return taken

    async def _store_together(self, appends: list[QueuedAppend[P, R]]) -> None:
        """Make one request for several appends. If it is too large for the server, put them back, and send fewer at
        once from now on."""
        failure = await self._stored(appends)
        if failure is not None and failure.code is FailureCode.LIMIT_EXCEEDED and len(appends) > 1:
            self._together = sum(append.size for append in appends) // 2
            self._queue.extendleft(reversed(appends))
        else:
            self._end(appends, failure)

    async def _stored(self, appends: Sequence[QueuedAppend[P, R]]) -> Failure | None:
        """Make one request, again as often as `delivery` and the time for recovery allow. Returns why it failed.

        The failure is UNAVAILABLE or UPSTREAM_FAULT if the server may have stored it.
        """
        in_doubt = forgotten = False
        failures, until = 0, math.inf
        while True:
            try:
                await self.store(appends)
            except OperationFailed as error:
                failure = error.failure
            else:
                return None
            if failure.code is FailureCode.STALE_WRITER_POSITION and not in_doubt and not forgotten:
                forgotten = True
                self.begin_again()
                continue
            in_doubt = in_doubt or failure.side_effect_possible
            until = min(until, trio.current_time() + self._recover_seconds)
            failures += 1
            pause = max(_PAUSES.pause(failures, random.random()), retry_after(failure))
            final = not worth_retrying(failure) or (in_doubt and self._delivery is Delivery.REFUSE)
            if final or not (in_doubt or self.patient) or trio.current_time() + pause > until:
                if in_doubt:
                    self.begin_again()
                return doubtful(failure) if in_doubt else failure
            tried_again(self._name)
            await trio.sleep(pause)

    def _end(self, appends: list[QueuedAppend[P, R]], failure: Failure | None) -> None:
        """End appends; with a failure, also those behind them of the same sessions."""
        for pending_append in appends:
            self._size -= pending_append.size
            pending_append.end(failure)
        behind = [pending_append for pending_append in self._queue if pending_append.owner.failed]
        for pending_append in behind:
            self._queue.remove(pending_append)
            self._size -= pending_append.size
            pending_append.end(failure)
        self._changed.unpark_all()


class GroupingSession(Generic[R]):
    """The appends of one session; several share the writer. See `penstock.core.back.AppendSession`."""

    def __init__(self, writer: GroupingWriter[P, R]) -> None:
        self._writer: GroupingWriter[object, R] = writer  # type: ignore[assignment]  # of any part
        self._owner = AppendOwner()
        self._sent: deque[QueuedAppend[object, R]] = deque()
        self._refused: Failure | None = None
        self._closed = False
        self._changed = trio.lowlevel.ParkingLot()

    async def send(self, append: Append) -> None:
        """Hand over the next append. One that the stream cannot hold ends the session, as a failed one does."""
        if self._refused is None:
            try:
                self._sent.append(await self._writer.submit(append, self._owner))
            except OperationFailed as error:
                self._refused = error.failure
        self._changed.unpark_all()

    def close(self) -> None:
        """Announce the end of sending."""
        self._closed = True
        self._changed.unpark_all()

    async def receive(self) -> list[R]:
        """Return the results of all appends that are over, in order, at least one; none at the end. Raises the failure
        of an append once the results of those before it were returned."""
        while not self._sent:
            if self._refused is not None:
                raise OperationFailed(self._refused)
            if self._closed:
                await trio.lowlevel.checkpoint()
                return []
            await self._changed.park()
        await self._sent[0].over.wait()
        results: list[R] = []
        while self._sent and self._sent[0].over.is_set():
            if (failure := self._sent[0].failure) is not None:
                if results:
                    break
                raise OperationFailed(failure)
            result = self._sent.popleft().result
            assert result is not None, "it was stored"
            results.append(result)
        return results
