"""Calls to the other process: numbered, answered in any order, and withdrawn when the caller is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from penstock.app.workers.channel import Channel
from penstock.app.workers.messages import CallFailed, CallResult, Cancel
from penstock.store.committer import Ticket
from penstock_codecs.failures import Failure, FailureCode

__all__ = ["STORE_LOST", "PendingCalls"]

STORE_LOST = Failure(FailureCode.UNAVAILABLE, "the store's process has ended")


class PendingCalls:
    """The calls in flight over one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[int, Ticket[Any]] = {}
        self._last = 0
        self._lost = False

    def number(self) -> int:
        """Return the number of the next call."""
        self._last += 1
        return self._last

    async def call(self, message: Callable[[int], object]) -> Any:
        """Post `message(number)` and wait for the answer. If cancelled, withdraw the call from the peer. Raises
        OperationFailed."""
        number, ticket = self.number(), Ticket[Any]()
        if self._lost:
            ticket.fail(STORE_LOST)
        else:
            self._waiting[number] = ticket
            self._channel.post(message(number))
        try:
            return await ticket.wait()
        except trio.Cancelled:
            if self._waiting.pop(number, None) is not None:
                self._channel.post(Cancel(number))
            raise

    def answered(self, answer: CallResult | CallFailed) -> bool:
        """Hand an answer to its caller. Return whether a call made here was waiting for it."""
        ticket = self._waiting.pop(answer.call, None)
        if ticket is None:
            return False
        if isinstance(answer, CallFailed):
            ticket.fail(answer.failure)
        else:
            ticket.resolve(answer.result)
        return True

    def lose(self) -> None:
        """Fail all calls in flight, and all later ones: the peer is gone."""
        self._lost = True
        waiting, self._waiting = self._waiting, {}
        for ticket in waiting.values():
            ticket.fail(STORE_LOST)
