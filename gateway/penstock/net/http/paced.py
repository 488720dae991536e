"""Receiving a request's body or a session's frames within limits: the minimum rate, and the memory that they take."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import trio

from penstock.model.failures import FailureCode, fail
from penstock.net.http.exchange import Exchange
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import HeldBytes
from penstock.net.transport import MessagePace

__all__ = ["PacedBody", "whole_body"]

_SMALL: Final = 4096
"""Bytes below which pieces of a body are joined as they arrive: each would take 40 bytes of memory beside its own."""


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
        if self.at_hand:
            return await self._exchange.receive()
        limits = self._quota.limits
        with trio.move_on_at(self._pace.deadline(held, limits, trio.current_time())):
            await self._quota.request_room()
            return await self._exchange.receive()
        self._quota.limited("min_receive_rate")
        self._exchange.refuse_body()
        least = f"{limits.receive_grace_seconds:g} s, or at {limits.min_receive_rate} bytes a second"
        raise fail(FailureCode.REQUEST_TIMEOUT, f"a request or frame must arrive within {least}")

    @property
    def at_hand(self) -> bool:
        """True if `receive` need not wait: the whole body has come, and the connection may hold more."""
        return self._exchange.arrived and not self._quota.crowded

    @property
    def ended(self) -> bool:
        """True once `receive` has returned all of the body, and the connection may hold more: it need not wait."""
        return self._exchange.ended and not self._quota.crowded

    def complete(self) -> None:
        """Restart the clock, because a frame is complete."""
        self._pace.next()

    def __enter__(self) -> PacedBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._holding.set(0)


async def whole_body(exchange: Exchange, most: int, seconds: float, too_large: FailureCode) -> bytes:
    """Return the whole body of a request.

    Raises OperationFailed: `too_large` above `most` bytes; REQUEST_TIMEOUT if it takes more than so many seconds to
    arrive, or arrives too slowly; RATE_LIMITED if there is no room.
    """
    with PacedBody(exchange) as body:
        if body.at_hand:  # most small requests; a cancel scope would cost as much as all of the following
            return await _joined(body, most, too_large)
        with trio.move_on_after(seconds):
            return await _joined(body, most, too_large)
    exchange.refuse_body()
    raise fail(FailureCode.REQUEST_TIMEOUT, f"the request body took more than {seconds:g} seconds")


async def _joined(body: PacedBody, most: int, too_large: FailureCode) -> bytes:
    pieces: list[bytes] = []
    held = 0  # no bytearray: growing, it would take an eighth more and fragment memory
    while piece := await body.receive(held):
        held += len(piece)
        if held > most:
            raise fail(too_large, f"Failed to buffer the request body: larger than {most} bytes")
        if not pieces and body.ended:
            return piece
        if pieces and len(pieces[-1]) < _SMALL:
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return b"".join(pieces)
