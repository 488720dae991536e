"""The body of a request, or the frames of a session: none may take too long to come, or more memory than there is."""

from __future__ import annotations

from collections.abc import Awaitable

import trio

from penstock.fronts.exchange import Exchange
from penstock.limits import Holding, Pace, current_seat
from penstock_codecs.failures import FailureCode, fail

__all__ = ["PacedBody"]


class PacedBody:
    """A context manager; what is held is charged to the connection's seat until it is left."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._seat = current_seat()
        self._holding = Holding(self._seat)
        self._pace = Pace()

    def receive(self, held: int) -> Awaitable[bytes]:
        """The next piece; b"" at the end. `held`: bytes of a body or frame that is not complete yet.

        Raises OperationFailed: REQUEST_TIMEOUT where it comes too slowly, RATE_LIMITED where there is no room.
        """
        if held:
            return self._receive_more(held)
        self._holding.set(0)
        self._pace.next()
        return self._exchange.receive()

    async def _receive_more(self, held: int) -> bytes:
        self._holding.set(held)
        limits = self._seat.limits
        with trio.move_on_at(self._pace.deadline(held, limits, trio.current_time())):
            await self._seat.request_room()
            return await self._exchange.receive()
        self._seat.limited("min_receive_rate")
        least = f"{limits.receive_grace_seconds:g} s, or at {limits.min_receive_rate} bytes a second"
        raise fail(FailureCode.REQUEST_TIMEOUT, f"a request or frame must come within {least}")

    def complete(self) -> None:
        """A frame is complete."""
        self._pace.next()

    def __enter__(self) -> PacedBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._holding.set(0)
