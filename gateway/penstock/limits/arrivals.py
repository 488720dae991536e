"""New connections of one listening socket, before anything is done for them: who begins at once, who waits, and who is
closed. One that waits is a socket and nothing else: no task, no tap and no seat."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from penstock.config import Address
from penstock.limits.account import Account
from penstock.limits.limiter import Limiter

__all__ = ["AT_ONCE", "REST_SECONDS", "Arrivals"]

AT_ONCE: Final = 16
"""Connections that are accepted in one pass through the scheduler, about 25 us each: faster than one client can make
them, so that others do not wait behind them in the system's queue, and little for those who are served."""
REST_SECONDS: Final = 0.001
"""After a pass in which some of them were closed at once, so that a burst (50 take 1.1 ms, as long as an append) is
spread between what is done for others. 11,000 a second are still closed."""


class Arrivals:
    """Of each client one connection begins in a pass, so that a burst of one client's is spread between what is done
    for others. Those that are more often than `connections_per_second` wait for their time."""

    def __init__(
        self,
        limiter: Limiter,
        listener: str,
        nursery: trio.Nursery,
        begin: Callable[[socket.socket, Address | None], Awaitable[None]],
    ) -> None:
        """`begin` serves a connection from an address, or refuses it; it returns at once. What waits is closed with the
        `nursery`."""
        self._limiter = limiter
        self._listener = listener
        self._nursery = nursery
        self._begin = begin
        self._waiting: dict[Account, deque[tuple[socket.socket, Address | None]]] = {}
        self._begun: set[Account] = set()

    def next_pass(self) -> None:
        """Each client may begin one more."""
        self._begun.clear()

    async def come(self, accepted: socket.socket, peer: Address | None, account: Account) -> bool:
        """A connection was accepted; whether it may stay: else it is closed by now."""
        queue = self._waiting.get(account)
        pause, limit = self._limiter.pause(account)
        if pause:
            self._limiter.limited(self._listener, limit)
        if not self._limiter.may_wait(account, pause):
            accepted.close()
            return False
        if queue is not None:
            account.arriving += 1
            queue.append((accepted, peer))
        elif pause or account in self._begun:
            account.arriving += 1
            self._waiting[account] = deque([(accepted, peer)])
            self._nursery.start_soon(self._release, account)
        else:
            self._begun.add(account)
            self._limiter.arrived(account)
            await self._begin(accepted, peer)
        return True

    async def _release(self, account: Account) -> None:
        queue = self._waiting[account]
        try:
            while queue:
                pause, _ = self._limiter.pause(account)
                await trio.sleep(pause)
                if pause:
                    continue  # it may have become longer
                accepted, peer = queue.popleft()
                account.arriving -= 1
                if _gone(accepted):
                    accepted.close()
                    self._limiter.fruitless(account)
                    continue
                self._limiter.arrived(account)
                await self._begin(accepted, peer)
        finally:
            del self._waiting[account]
            account.arriving -= len(queue)
            for accepted, _ in queue:
                accepted.close()


def _gone(accepted: socket.socket) -> bool:
    """Whether the client has hung up while it waited. One that has only finished sending may want its answer."""
    return bool(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
