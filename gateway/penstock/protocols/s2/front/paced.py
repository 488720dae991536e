"""Limits on receiving a request's body or a session's frames: the minimum rate, and the memory that they take."""

from __future__ import annotations

from collections.abc import Awaitable

import trio

from penstock.net.http.exchange import Exchange
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import HeldBytes
from penstock.net.transport import MessagePace
from penstock_codecs.failures import FailureCode, fail

__all__ = ["PacedBody"]


class PacedBody:
    """Request body received within the connection's limits.

    While its block runs, held bytes count towards its quota.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._quota = current_quota()
        self._holding = HeldBytes(self._quota)
        self._pace = MessagePace()

    def receive(self, held: int) -> Awaitable[bytes]:
        """Return the next piece; b"" at the end. `held`: bytes of the body or frame that is not complete yet.

        Raises OperationFailed: REQUEST_TIMEOUT if it arrives too slowly, RATE_LIMITED if there is no room.
        """
        if held:
            return self._receive_more(held)
        self._holding.set(0)
        self._pace.next()
        return self._exchange.receive()

    async def _receive_more(self, held: int) -> bytes:
        self._holding.set(held)
        limits = self._quota.limits
        with trio.move_on_at(self._pace.deadline(held, limits, trio.current_time())):
            await self._quota.request_room()
            return await self._exchange.receive()
        self._quota.limited("min_receive_rate")
        least = f"{limits.receive_grace_seconds:g} s, or at {limits.min_receive_rate} bytes a second"
        raise fail(FailureCode.REQUEST_TIMEOUT, f"a request or frame must arrive within {least}")

    def complete(self) -> None:
        """Restart the clock, because a frame is complete."""
        self._pace.next()

    def __enter__(self) -> PacedBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._holding.set(0)
