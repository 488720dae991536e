"""The writer of one stream: it makes all appends of this gateway, in the order in which they are handed over.

One POST is in flight at a time, and the appends that wait meanwhile are sent together in the next one, which the server
stores as a whole or not at all. Each POST has the writer's number as an idempotent producer (protocol, 5.2.1), so it
can be sent again after a lost acknowledgement, and is stored once. If it is given up in doubt, the writer begins a new
epoch: then the server refuses what might still arrive of the old one.
"""

from __future__ import annotations

import math
import random
import secrets
from collections import deque
from typing import Final

import trio
from msgspec.structs import replace

from penstock.core.delivery import Delivery
from penstock.net.retries import RetryPolicy, retry_after, tried_again, worth_retrying
from penstock.net.upstream import doubtful
from penstock.protocols.durable.back.requests import DurableRequests
from penstock.protocols.durable.back.settings import DurableBackSettings
from penstock_codecs.durable import AppendRequest, Producer, StreamContent
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.features import Feature, feature_of
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append

__all__ = ["AppendOwner", "DurableWriter", "QueuedAppend"]

_PAUSES: Final = RetryPolicy()


class AppendOwner:
    """The owner of a session's appends. `failed`: one of them has failed, so those behind it are not made."""

    failed = False


class QueuedAppend:
    """An append in the writer's queue. `over` is set once it is stored, or has failed."""

    __slots__ = ("count", "failure", "over", "owner", "part")

    def __init__(self, part: bytes, count: int, owner: AppendOwner) -> None:
        self.part = part
        self.count = count
        self.owner = owner
        self.over = trio.Event()
        self.failure: Failure | None = None

    def end(self, failure: Failure | None = None) -> None:
        """Set the outcome."""
        self.failure = failure
        self.owner.failed = self.owner.failed or failure is not None
        self.over.set()


class DurableWriter:
    """The writer of one stream; its requests are made in `nursery`."""

    def __init__(
        self,
        requests: DurableRequests,
        stream: StreamRef,
        content_type: str,
        content: StreamContent,
        settings: DurableBackSettings,
        nursery: trio.Nursery,
    ) -> None:
        self._requests = requests
        self._stream = stream
        self._content_type = content_type
        self._content = content
        self._settings = settings
        self._nursery = nursery
        self._queue: deque[QueuedAppend] = deque()
        self._size = 0  # bytes of appends that are not over
        self._together = settings.max_append_bytes  # bytes up to which appends are sent together
        self._changed = trio.lowlevel.ParkingLot()
        self._producer = Producer(f"penstock-{secrets.token_hex(8)}", 0, 0)
        self.busy = False

    async def submit(self, append: Append, owner: AppendOwner) -> QueuedAppend:
        """Hand over an append; waits while too many bytes are in flight. Has no effect if cancelled.

        Raises NOT_REPRESENTABLE for records that the stream cannot hold, LIMIT_EXCEEDED for too large an append.
        """
        queued = QueuedAppend(self._encode(append), len(append.bodies), owner)
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._size and self._size + len(queued.part) > self._settings.append_inflight_bytes:
            await self._changed.park()
        if owner.failed:
            queued.end(Failure(FailureCode.HOT_SERVER, "an append before it failed"))
            return queued
        self._size += len(queued.part)
        self._queue.append(queued)
        if not self.busy:
            self.busy = True
            self._nursery.start_soon(self._run)
        return queued

    def _encode(self, append: Append) -> bytes:
        for index, headers in append.headers.items():
            if feature_of(headers, append.bodies[index]) is Feature.COMMAND:
                why = f"record {index + 1} of the batch is a command, which the server would store and not execute"
                raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._requests.upstream.where}: {why}")
        part = self._content.encode(append.bodies, append.headers)
        if (size := len(self._content.join([part]))) > self._settings.max_append_bytes:
            most = self._settings.max_append_bytes
            raise fail(FailureCode.LIMIT_EXCEEDED, f"a batch of {size} bytes; the server takes {most} at once")
        return part

    # ---- the server's side -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        taken: list[QueuedAppend] = []
        try:
            while self._queue:
                taken = self._next()
                await self._send_together(taken)
        except trio.Cancelled:
            closed = f"{self._requests.upstream.where}: the back was closed"
            self._end([one for one in taken if not one.over.is_set()], Failure(FailureCode.UNAVAILABLE, closed))
            for one in self._queue:
                one.end(Failure(FailureCode.HOT_SERVER, closed))
            raise
        finally:
            self.busy = False

    def _next(self) -> list[QueuedAppend]:
        """Take the appends for the next POST from the queue."""
        taken = [self._queue.popleft()]
        size = len(self._content.join([taken[0].part]))
        while self._queue and (size := size + 1 + len(self._queue[0].part)) <= self._together:  # 1: a separator
            taken.append(self._queue.popleft())
        return taken

    async def _send_together(self, appends: list[QueuedAppend]) -> None:
        """Make one POST of several appends. If it is too large for the server, put them back, and send fewer at once
        from now on."""
        body = self._content.join([one.part for one in appends])
        failure = await self._send(body)
        if failure is not None and failure.code is FailureCode.LIMIT_EXCEEDED and len(appends) > 1:
            self._together = len(body) // 2
            self._queue.extendleft(reversed(appends))
        else:
            self._end(appends, failure)

    def _end(self, appends: list[QueuedAppend], failure: Failure | None) -> None:
        """End appends; with a failure, also those behind them of the same sessions."""
        for one in appends:
            self._size -= len(one.part)
            one.end(failure)
        behind = [one for one in self._queue if one.owner.failed]
        for one in behind:
            self._queue.remove(one)
            self._size -= len(one.part)
            one.end(failure)
        self._changed.unpark_all()

    async def _send(self, body: bytes) -> Failure | None:
        """Make one POST, again as often as `delivery` and the time for recovery allow. Returns why it failed.

        The failure is UNAVAILABLE or UPSTREAM_FAULT if the server may have stored it.
        """
        settings = self._settings
        in_doubt = forgotten = False
        failures, until = 0, math.inf
        while True:
            producer = None if settings.delivery is Delivery.AT_LEAST_ONCE else self._producer
            try:
                await self._requests.append(
                    self._stream, AppendRequest(self._content_type, False, producer, None), body
                )
            except OperationFailed as error:
                failure = error.failure
            else:
                self._producer = replace(self._producer, seq=self._producer.seq + 1)
                return None
            if failure.code is FailureCode.STALE_WRITER_POSITION and not in_doubt and not forgotten:
                forgotten = True  # the server has lost what it knew of this producer
                self._begin_epoch()
                continue
            in_doubt = in_doubt or failure.side_effect_possible
            until = min(until, trio.current_time() + settings.recover_seconds)
            failures += 1
            pause = max(_PAUSES.pause(failures, random.random()), retry_after(failure))
            ends = not in_doubt or not worth_retrying(failure) or settings.delivery is Delivery.REFUSE
            if ends or trio.current_time() + pause > until:
                if in_doubt:
                    self._begin_epoch()
                return doubtful(failure) if in_doubt else failure
            tried_again(self._requests.upstream.name)
            await trio.sleep(pause)

    def _begin_epoch(self) -> None:
        self._producer = Producer(self._producer.id, self._producer.epoch + 1, 0)
