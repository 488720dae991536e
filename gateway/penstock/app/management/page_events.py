"""Events for open pages; while no page is open, nothing is sampled or decoded.

Events have ascending numbers. There are two kinds: `state`, once a second, of which only the newest counts; and
`message`, of which the latest are kept, so that a page that soon reconnects misses none.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import structlog
import trio

from penstock.app.management.traffic import Traffic
from penstock.model.failures import OperationFailed
from penstock.recorder.captures.choosing import CaptureFilter

__all__ = ["PageEvents"]

log = structlog.get_logger()

State = Callable[[], Awaitable[dict[str, Any]]]
"""Returns the content of a `state` event, as JSON values."""

_KEPT: Final = 300
"""Messages that are kept, of up to some 60 KiB each; nearly all have less than 4 KiB."""
_SAMPLE_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 10.0
"""Seconds for which sampling goes on after the last page has gone: it may only have lost its connection."""
_AGAIN_SECONDS: Final = 5.0
"""Seconds until the live recording is reopened, after it dropped connections because the page fell behind, or if too
many listened."""


class PageEvents:
    """The event source of all pages of a process. `run` must always run, even with no page open."""

    def __init__(self, traffic: Traffic, state: State, choice: CaptureFilter | None = None) -> None:
        """`choice`: the messages that are wanted; None: all."""
        self._choice = choice or CaptureFilter()
        self._traffic = traffic
        self._state = state
        self._pages = 0
        self._others: set[PageEvents] = set()
        self._moved = trio.lowlevel.ParkingLot()  # woken when a page comes or goes, and by each new event
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._newest_state: tuple[int, bytes] = (0, b"")
        self._added = 0
        self._over = False
        self.epoch = f"{time.time_ns() // 1_000_000:x}"
        """Distinguishes the event numbers of this process from those of another."""
        self.number = 0
        """Number of the newest event."""

    # ---- pages ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Count a page as open while the block runs."""
        self._pages += 1
        self._moved.unpark_all()
        try:
            yield
        finally:
            self._pages -= 1
            self._moved.unpark_all()

    @asynccontextmanager
    async def filtered(self, choice: CaptureFilter) -> AsyncIterator[PageEvents]:
        """Run events of which only the wanted messages are, while the block runs."""
        events = PageEvents(self._traffic, self._state, choice)
        self._others.add(events)
        if self._over:
            events.drain()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events.run)
                yield events
                nursery.cancel_scope.cancel()
        finally:
            self._others.discard(events)

    async def news(self, after: int) -> list[tuple[int, str, bytes]]:
        """Return number, kind and JSON of all kept events after number `after`, in order. Waits until there is one;
        empty at the end."""
        while not (events := sorted(self._since(after))) and not self._over:
            await self._moved.park()
        return events

    def resume_id(self, number: int) -> str:
        """Return the ID with which a reader resumes after event `number`."""
        return f"{self.epoch}-{number}"

    def number_of(self, resume_id: str) -> int | None:
        """Return the number of the event to resume after; None for an ID of another process, or none at all."""
        epoch, _, number = resume_id.partition("-")
        known = epoch == self.epoch and number.isascii() and number.isdigit() and len(number) < 20
        return min(int(number), self.number) if known else None

    def _since(self, after: int) -> Iterator[tuple[int, str, bytes]]:
        for number, line in self._messages:
            if number > after:
                yield number, "message", line
        number, state = self._newest_state
        if number > after:
            yield number, "state", state

    def drain(self) -> None:
        """End the events: the gateway is about to stop."""
        self._over = True
        self._moved.unpark_all()
        for events in self._others:
            events.drain()

    # ---- the task ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sample and decode while a page is open; never returns."""
        while True:
            while not self._pages:
                await self._moved.park()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sample)
                nursery.start_soon(self._listen)
                await self._deserted()
                nursery.cancel_scope.cancel()

    async def _deserted(self) -> None:
        """Wait until no page has been open for _LINGER_SECONDS."""
        while True:
            while self._pages:
                await self._moved.park()
            with trio.move_on_after(_LINGER_SECONDS):
                while not self._pages:
                    await self._moved.park()
            if not self._pages:
                return

    async def _sample(self) -> None:
        while not self._over:
            state = msgspec.json.encode(await self._state())
            self._newest_state = self._next(), state  # a number is given to what is there
            self._moved.unpark_all()
            await trio.sleep(_SAMPLE_SECONDS)

    async def _listen(self) -> None:
        while not self._over:
            try:
                async with self._traffic.decoded(self._choice) as live:
                    async for piece in live:
                        self._add(piece)
                        if live.status().dropped:
                            break
            except OperationFailed as error:  # too many live recordings already
                log.warning("page_traffic_failed", reason=error.failure.message)
            await trio.sleep(_AGAIN_SECONDS)

    def _add(self, piece: bytes) -> None:
        for line in piece.splitlines():
            self._added += 1
            # A gap in this number shows the page that it has missed some.
            self._messages.append((self._next(), b'{"nth":%d,%b' % (self._added, line[1:])))
        self._moved.unpark_all()

    def _next(self) -> int:
        self.number += 1
        return self.number
