"""Reads of one connection: many may be outstanding, each is answered when it has data (segment fact sheet, 1.5).

A read at the tail is parked. The memory for a connection's answers is bounded: a few reads at once may hold as much as
their client asked for; parked ones get at most `PARKED_BYTES` when they wake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog
import trio

from penstock.core.waiters import Waiters
from penstock.model.byte_operations import BytesRead, ReadBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.features import Feature
from penstock.model.limits import KIB
from penstock.model.records import StreamRef
from penstock.net.draining import Draining
from penstock.observe.metrics.clients import count_dropped
from penstock_pravega.segment.front.administration import RequestContext
from penstock_pravega.segment.front.link import SegmentLink
from penstock_pravega.segment.front.replies import RequestFields
from penstock_pravega.segment.front.settings import SegmentSettings
from penstock_pravega.segment.front.streams import SegmentPlace

__all__ = ["ConnectionReads"]

log = structlog.get_logger()

LEAST_READ: Final = 8
"""Least bytes of a read, an event's header, however little the client asks for (1.1)."""
MOST_READS: Final = 1000
"""Most outstanding reads of one connection; no request is taken above that."""
FULL_READS: Final = 4
"""Most reads at a time that are performed, or wait to be sent, at their full size."""
PARKED_BYTES: Final = 32 * KIB
"""Most bytes of the answer to a parked read. The client asks again at once, and then it is not parked."""
_OF_ANOTHER_STREAM: Final = frozenset(
    {FailureCode.STREAM_NOT_FOUND, FailureCode.OFFSET_TRUNCATED, FailureCode.OFFSET_MISMATCH}
)
"""Failures that may come from reading a stream that was recreated since its place was looked up."""
MOST_NAMED: Final = 100
"""Most streams per connection for which refused reads are logged."""


class _Read(NamedTuple):
    asked: RequestFields
    place: SegmentPlace
    size: int

    @property
    def stream(self) -> StreamRef:
        return self.place.stream


class ConnectionReads:
    """Reads of one connection. `on_dropped` is called with the counts of dropped features."""

    __slots__ = (
        "_back",
        "_draining",
        "_ended",
        "_full",
        "_idle",
        "_link",
        "_nursery",
        "_on_dropped",
        "_outstanding",
        "_parked",
        "_refused",
        "_settings",
        "_streams",
    )

    def __init__(
        self,
        desk: RequestContext,
        link: SegmentLink,
        nursery: trio.Nursery,
        settings: SegmentSettings,
        draining: Draining,
        on_dropped: Callable[[Counter[Feature]], None],
    ) -> None:
        self._back = desk.back
        self._streams = desk.streams
        self._link = link
        self._nursery = nursery
        self._settings = settings
        self._draining = draining
        self._on_dropped = on_dropped
        self._full: trio.Semaphore | None = None  # made for the first read: many connections only write, or wait
        self._parked: dict[trio.CancelScope, None] = {}  # an empty set takes 150 bytes more
        self._refused: dict[StreamRef, None] = {}  # already logged
        self._ended = False
        self._idle = Waiters()
        self._outstanding = 0

    async def start(self, fields: RequestFields, suggested: int) -> None:
        """Start a read of about `suggested` bytes; returns before it is answered."""
        try:
            place = await self._link.carried_out(partial(self._streams.place, fields.segment), idempotent=True)
        except OperationFailed as error:
            self._link.refuse(error.failure, fields)
            return
        while self._outstanding >= MOST_READS:
            await self._idle.park()
        self._outstanding += 1
        size = max(LEAST_READ, min(suggested, self._settings.max_read_bytes))
        self._nursery.start_soon(self._run, _Read(fields, place, size))

    def end(self) -> None:
        """Answer all parked reads now, and park no more."""
        self._ended = True
        for scope in self._parked:
            scope.cancel()

    @property
    def any(self) -> bool:
        """True while reads are outstanding."""
        return self._outstanding > 0

    async def settled(self) -> None:
        """Wait until all reads are answered."""
        while self._outstanding:
            await self._idle.park()

    async def _run(self, read: _Read) -> None:
        try:
            try:
                await self._link.carried_out(partial(self._answer, read), idempotent=True)
            except OperationFailed as error:
                if error.failure.code not in _OF_ANOTHER_STREAM:
                    raise
                stream = await self._streams.find(read.asked.segment)  # raises if it is another one
                if stream == read.stream:
                    raise
                await self._answer(read._replace(place=SegmentPlace(stream, None)))
        except OperationFailed as error:
            if error.failure.code is FailureCode.NOT_REPRESENTABLE:
                self._log_refusal(read.stream, error.failure)
            self._link.refuse(error.failure, read.asked)
        finally:
            self._outstanding -= 1
            self._idle.unpark_all()

    async def _answer(self, read: _Read) -> None:
        await self._link.quota.answer_room()
        self._full = self._full or trio.Semaphore(FULL_READS)
        async with self._full:
            bytes_read = await self._read(read, read.size, 0.0)
            if bytes_read.data or bytes_read.end_of_stream:
                await self._answer_with(read, bytes_read)
                return
        await self._answer_with(read, await self._park(read))

    async def _read(self, read: _Read, size: int, wait: float) -> BytesRead:
        """Read bytes. Raises STREAM_NOT_FOUND if the stream found is not the segment's."""
        bytes_read = await self._back.perform(
            ReadBytes(read.stream, read.asked.offset, size, wait, refuse=self._settings.refuse)
        )
        if not read.place.fits(bytes_read.incarnation):
            raise fail(FailureCode.STREAM_NOT_FOUND, f"there is no segment {read.asked.segment}")
        return bytes_read

    async def _park(self, read: _Read) -> BytesRead:
        """Wait for bytes until `read_hold_seconds` have passed, the gateway drains, or `end` is called."""
        if not (self._ended or self._draining.begun):
            with self._draining.interrupts() as scope:
                self._parked[scope] = None
                try:
                    return await self._read(read, min(read.size, PARKED_BYTES), self._settings.read_hold_seconds)
                finally:
                    del self._parked[scope]
        return BytesRead(read.asked.offset, b"", at_tail=True, end_of_stream=False, dropped={})

    async def _answer_with(self, read: _Read, bytes_read: BytesRead) -> None:
        self._link.reply(self._link.replies.segment_read(read.asked, bytes_read))
        if bytes_read.dropped:
            self._on_dropped(Counter(bytes_read.dropped))
            count_dropped(bytes_read.dropped)
            counts = {feature.name.lower(): count for feature, count in bytes_read.dropped.items()}
            log.info("records_dropped", stream=str(read.stream), **counts)
        await self._link.room()

    def _log_refusal(self, stream: StreamRef, failure: Failure) -> None:
        """Log a refusal once per stream: clients may retry for ever, and most do not show the reply to their users."""
        if stream not in self._refused and len(self._refused) < MOST_NAMED:
            self._refused[stream] = None
            choice = "[listeners.segment.loss] can have such records dropped or enveloped (docs/loss.md)"
            log.warning("read_refused", stream=str(stream), reason=failure.message, choice=choice)
