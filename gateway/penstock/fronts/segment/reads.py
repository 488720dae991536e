"""Reads of one connection: many may be outstanding, each is answered when it has something (segment fact sheet, 1.5).

A read at the tail is parked. What the answers of a connection take is bounded: a few reads at once may hold as much as
their client asked for, parked ones get no more than `PARKED_BYTES` when they wake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
import trio

from penstock.backs.base import Back
from penstock.fronts.draining import Draining
from penstock.fronts.segment.link import Link
from penstock.fronts.segment.replies import Asked
from penstock.fronts.segment.settings import SegmentSettings
from penstock.metrics.clients import count_dropped
from penstock_codecs.byte_operations import BytesRead, ReadBytes
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.features import Feature
from penstock_codecs.limits import KIB
from penstock_codecs.model import StreamRef

__all__ = ["Reads"]

log = structlog.get_logger()

LEAST_READ: Final = 8
"""A client is given as much as an event's header, however little it asks for (1.1)."""
MOST_READS: Final = 1000
"""Reads of one connection that are outstanding; no request is taken while there are more."""
FULL_READS: Final = 4
"""So many of them may be read, or wait to be sent, at their full size."""
PARKED_BYTES: Final = 32 * KIB
"""What a parked read is answered with at most. The client asks again at once, and then it is not parked."""


MOST_NAMED: Final = 100
"""Streams of which a connection's log says that a read was refused."""


class _Read(NamedTuple):
    asked: Asked
    stream: StreamRef
    size: int


class Reads:
    """See the module. `on_dropped` is told what was left out of the bytes that were read."""

    def __init__(
        self,
        back: Back,
        link: Link,
        nursery: trio.Nursery,
        settings: SegmentSettings,
        draining: Draining,
        on_dropped: Callable[[Counter[Feature]], None],
    ) -> None:
        self._back = back
        self._link = link
        self._nursery = nursery
        self._settings = settings
        self._draining = draining
        self._on_dropped = on_dropped
        self._slots = trio.Semaphore(MOST_READS)
        self._full = trio.Semaphore(FULL_READS)
        self._parked: set[trio.CancelScope] = set()
        self._refused: set[StreamRef] = set()  # of these the log has a line
        self._ended = False
        self._idle = trio.lowlevel.ParkingLot()
        self._outstanding = 0

    async def start(self, asked: Asked, suggested: int) -> None:
        """Take a read of about `suggested` bytes; returns before it is answered."""
        try:
            stream = self._settings.names.to_stream(asked.segment)
        except OperationFailed as error:
            self._link.refuse(error.failure, asked)
            return
        await self._slots.acquire()
        self._outstanding += 1
        size = max(LEAST_READ, min(suggested, self._settings.max_read_bytes))
        self._nursery.start_soon(self._run, _Read(asked, stream, size))

    def end(self) -> None:
        """Answer those that are parked; none is parked any more."""
        self._ended = True
        for scope in self._parked:
            scope.cancel()

    @property
    def any(self) -> bool:
        """Whether any are outstanding."""
        return self._outstanding > 0

    async def settled(self) -> None:
        """Wait until all are answered."""
        while self._outstanding:
            await self._idle.park()

    async def _run(self, read: _Read) -> None:
        try:
            await self._answer(read)
        except OperationFailed as error:
            if error.failure.code is FailureCode.NOT_REPRESENTABLE:
                self._log_refusal(read.stream, error.failure)
            self._link.refuse(error.failure, read.asked)
        finally:
            self._outstanding -= 1
            self._slots.release()
            self._idle.unpark_all()

    async def _answer(self, read: _Read) -> None:
        await self._link.seat.answer_room()
        async with self._full:
            found = await self._read(read, read.size, 0.0)
            if found.data or found.end_of_segment:
                await self._say(read, found)
                return
        await self._say(read, await self._park(read))

    async def _read(self, read: _Read, size: int, wait: float) -> BytesRead:
        return await self._back.perform(
            ReadBytes(read.stream, read.asked.offset, size, wait, refuse=self._settings.refuse)
        )

    async def _park(self, read: _Read) -> BytesRead:
        """Wait for bytes: as long as the settings say, or until the drain, or the end."""
        if not (self._ended or self._draining.begun):
            with self._draining.interrupts() as scope:
                self._parked.add(scope)
                try:
                    return await self._read(read, min(read.size, PARKED_BYTES), self._settings.read_hold_seconds)
                finally:
                    self._parked.discard(scope)
        return BytesRead(read.asked.offset, b"", at_tail=True, end_of_segment=False, dropped={})

    async def _say(self, read: _Read, found: BytesRead) -> None:
        self._link.say(self._link.replies.segment_read(read.asked, found))
        if found.dropped:
            self._on_dropped(Counter(found.dropped))
            count_dropped(found.dropped)
            counts = {feature.name.lower(): count for feature, count in found.dropped.items()}
            log.info("records_dropped", stream=str(read.stream), **counts)
        await self._link.room()

    def _log_refusal(self, stream: StreamRef, failure: Failure) -> None:
        """One line, though the client may ask again for ever: most clients do not show their users what was said."""
        if stream not in self._refused and len(self._refused) < MOST_NAMED:
            self._refused.add(stream)
            choice = "[listeners.segment.loss] can have such records dropped or enveloped (docs/loss.md)"
            log.warning("read_refused", stream=str(stream), reason=failure.message, choice=choice)
