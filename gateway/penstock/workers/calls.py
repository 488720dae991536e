"""Calls to the other process: numbered, answered in any order, given up when nobody waits any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from penstock.store.committer import Ticket
from penstock.workers.channel import Channel
from penstock.workers.messages import Cancel, Done, Failed
from penstock_codecs.failures import Failure, FailureCode

__all__ = ["LOST", "Calls"]

LOST = Failure(FailureCode.UNAVAILABLE, "the process that has the store is gone")


class Calls:
    """Those that are under way over one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[int, Ticket[Any]] = {}
        self._last = 0
        self._lost = False

    def number(self) -> int:
        """For the next call."""
        self._last += 1
        return self._last

    async def call(self, message: Callable[[int], object]) -> Any:
        """Post `message(number)` and wait for the answer. Cancelled, it tells the peer. Raises OperationFailed."""
        number, ticket = self.number(), Ticket[Any]()
        if self._lost:
            ticket.fail(LOST)
        else:
            self._waiting[number] = ticket
            self._channel.post(message(number))
        try:
            return await ticket.wait()
        except trio.Cancelled:
            if self._waiting.pop(number, None) is not None:
                self._channel.post(Cancel(number))
            raise

    def answered(self, answer: Done | Failed) -> bool:
        """An answer has come; gives whether it is of a call made here that somebody waits for."""
        ticket = self._waiting.pop(answer.call, None)
        if ticket is None:
            return False
        if isinstance(answer, Failed):
            ticket.fail(answer.failure)
        else:
            ticket.resolve(answer.result)
        return True

    def lose(self) -> None:
        """The peer has gone: all that wait fail, and so will all that come."""
        self._lost = True
        waiting, self._waiting = self._waiting, {}
        for ticket in waiting.values():
            ticket.fail(LOST)
