"""What the page is told while somebody looks at it, and nothing else happens then.

Events have ascending numbers. Two kinds: `state`, of which only the newest counts, once a second; and `message`, of
which the latest are kept, so that a page that comes back within a while misses none.
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

from penstock.management.traffic import Traffic
from penstock_codecs.failures import OperationFailed

__all__ = ["Watching"]

log = structlog.get_logger()

State = Callable[[], Awaitable[dict[str, Any]]]
"""What a `state` event says, as JSON."""

_KEPT: Final = 300
"""Messages, of up to some 2 KiB each."""
_SAMPLE_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 10.0
"""So long it goes on when the last page has gone: it may only have lost its connection."""
_AGAIN_SECONDS: Final = 5.0
"""After so long it is listened anew, where connections were dropped since the page did not follow, or others listen."""


class Watching:
    """One for all pages of a process. `run` must run, whether somebody looks or not."""

    def __init__(self, traffic: Traffic, state: State) -> None:
        self._traffic = traffic
        self._state = state
        self._watchers = 0
        self._moved = trio.lowlevel.ParkingLot()  # whoever waits for somebody to come or go, or for something new
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._newest_state: tuple[int, bytes] = (0, b"")
        self._heard = 0
        self._over = False
        self.epoch = f"{time.time_ns() // 1_000_000:x}"
        """Tells the numbers of this process from those of another."""
        self.number = 0
        """Of the newest event."""

    # ---- pages ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Somebody looks while the block runs."""
        self._watchers += 1
        self._moved.unpark_all()
        try:
            yield
        finally:
            self._watchers -= 1
            self._moved.unpark_all()

    async def news(self, after: int) -> list[tuple[int, str, bytes]]:
        """Number, kind and JSON of all that came after this number and is still there, in order. Waits for it; empty
        at the end."""
        while self.number <= after and not self._over:
            await self._moved.park()
        return sorted(self._since(after))

    def _since(self, after: int) -> Iterator[tuple[int, str, bytes]]:
        for number, line in self._messages:
            if number > after:
                yield number, "message", line
        number, state = self._newest_state
        if number > after:
            yield number, "state", state

    def drain(self) -> None:
        """The gateway is about to stop: nothing more comes."""
        self._over = True
        self._moved.unpark_all()

    # ---- the task ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever: look at things while somebody looks at the page."""
        while True:
            while not self._watchers:
                await self._moved.park()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sample)
                nursery.start_soon(self._listen)
                await self._deserted()
                nursery.cancel_scope.cancel()

    async def _deserted(self) -> None:
        """Wait until nobody has looked for a while."""
        while True:
            while self._watchers:
                await self._moved.park()
            with trio.move_on_after(_LINGER_SECONDS):
                while not self._watchers:
                    await self._moved.park()
            if not self._watchers:
                return

    async def _sample(self) -> None:
        while not self._over:
            try:
                said = msgspec.json.encode(await self._state())
            except OperationFailed as error:  # a worker could not say
                log.warning("page_cannot_look", reason=error.failure.message)
            else:
                self._newest_state = self._next(), said
                self._moved.unpark_all()
            await trio.sleep(_SAMPLE_SECONDS)

    async def _listen(self) -> None:
        while not self._over:
            try:
                async with self._traffic.decoded() as live:
                    async for piece in live:
                        self._hear(piece)
                        if live.status().dropped:
                            break
            except OperationFailed as error:  # too many listen already
                log.warning("page_cannot_listen", reason=error.failure.message)
            await trio.sleep(_AGAIN_SECONDS)

    def _hear(self, piece: bytes) -> None:
        for line in piece.splitlines():
            self._heard += 1
            # The page sees by this number that it has missed some.
            self._messages.append((self._next(), b'{"nth":%d,%b' % (self._heard, line[1:])))
        self._moved.unpark_all()

    def _next(self) -> int:
        self.number += 1
        return self.number
