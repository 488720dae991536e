"""Pipeline of a connection's Produce requests: in progress at the same time, answered in order.

Theory of operation. In sequence, each of a producer's requests in flight would cost a commit of the store. So tasks
execute small Produce requests (`is_pipelined`) at the same time, while the connection's task receives
further requests. A request begins when its predecessor has handed over all appends, and responds when its predecessor
has responded. At most MOST_REQUESTS are in progress, with at most `max_bytes` of records, or one larger request.

All other requests wait until none is in progress (`finish`). So do requests of many partitions: their work rests in
turns, in which it listens to the client.

A failed request ends the connection when its predecessors have responded. Its successors have begun: they are carried
out without a response, as are all requests in progress if the client has gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import trio

from penstock.net.limits.limiter import HeldBytes
from penstock_kafka.codec import KafkaMessage
from penstock_kafka.codec.record_messages import ProduceRequest
from penstock_kafka.front.call import KafkaCall
from penstock_kafka.front.link import KafkaLink

__all__ = ["RequestPipeline", "is_pipelined"]

MOST_REQUESTS: Final = 64
"""Most requests in progress of one connection."""
_MOST_PARTITIONS: Final = 64


def is_pipelined(request: KafkaMessage) -> bool:
    """Return whether a request may be in progress beside others of its connection."""
    return (
        isinstance(request, ProduceRequest)
        and request.transactional_id is None
        and len(request.topics) <= _MOST_PARTITIONS
        and sum(len(topic.partitions) for topic in request.topics) <= _MOST_PARTITIONS
    )


class _InProgress(NamedTuple):
    """A request in progress. The next one waits for these events: before it begins, and before it is answered."""

    are_handed_over: trio.Event
    is_answered: trio.Event


class RequestPipeline:
    """The requests in progress of one connection, tasks of `nursery`. `receiving`: the scope in which the connection's
    task receives requests; it is cancelled when `error` ends the connection."""

    def __init__(self, nursery: trio.Nursery, link: KafkaLink, max_bytes: int) -> None:
        self._nursery = nursery
        self._link = link
        self._max_bytes = max_bytes
        self._held = HeldBytes(link.quota)
        self._answered = trio.lowlevel.ParkingLot()
        self._last: _InProgress | None = None
        self.receiving = trio.CancelScope()
        self.error: Exception | None = None

    async def begin(
        self,
        call: KafkaCall,
        carry_out: Callable[[KafkaCall], Awaitable[KafkaMessage | None]],
        respond: Callable[[KafkaCall, KafkaMessage | None], Awaitable[None]],
    ) -> None:
        """Begin to carry out a request that is pipelined, once there is room for it, and to respond to it."""
        request = call.request.message
        assert isinstance(request, ProduceRequest)
        size = sum(len(partition.records or b"") for topic in request.topics for partition in topic.partitions)
        link = self._link
        while link.pipelined and (link.pipelined >= MOST_REQUESTS or self._held.size + size > self._max_bytes):
            await self._answered.park()
        link.pipelined += 1
        self._held.set(self._held.size + size)
        before, self._last = self._last, _InProgress(call.handed_over, trio.Event())
        self._nursery.start_soon(self._serve, call, size, before, self._last.is_answered, carry_out, respond)

    async def _serve(
        self,
        call: KafkaCall,
        size: int,
        before: _InProgress | None,
        is_answered: trio.Event,
        carry_out: Callable[[KafkaCall], Awaitable[KafkaMessage | None]],
        respond: Callable[[KafkaCall, KafkaMessage | None], Awaitable[None]],
    ) -> None:
        response: KafkaMessage | None = None
        failure: Exception | None = None
        try:
            if before is not None and not before.are_handed_over.is_set():
                await before.are_handed_over.wait()
            try:
                response = await carry_out(call)
            except Exception as error:
                failure = error
            call.handed_over.set()
            if before is not None and not before.is_answered.is_set():
                await before.is_answered.wait()
            if self.error is not None:
                return
            try:
                if failure is not None:
                    raise failure
                await respond(call, response)
            except Exception as error:
                self.error = error
                self.receiving.cancel()
        finally:
            is_answered.set()
            self._link.leave_pipeline()
            self._held.set(self._held.size - size)
            self._answered.unpark_all()
            del failure  # which refers to this frame

    async def finish(self) -> None:
        """Wait until no request is in progress."""
        while self._link.pipelined:
            await self._answered.park()
