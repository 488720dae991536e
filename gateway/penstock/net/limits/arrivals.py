"""New connections of one listening socket, before anything is done for them: each begins, waits, or is closed.

A connection that waits is a socket and nothing else: no task, no tap and no quota.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from penstock.core.address import Address
from penstock.net.limits.limiter import ClientQuota, Limiter

__all__ = ["AT_ONCE", "REST_SECONDS", "Arrivals"]

AT_ONCE: Final = 16
"""Connections accepted in one pass of the scheduler, about 25 us each: faster than one client can make them, so that
those of others do not wait in the system's queue, and a short delay for the clients that are served."""
REST_SECONDS: Final = 0.001
"""Seconds to pause after a pass that closed connections, so that a burst (50 take 1.1 ms, as long as an append) is
interleaved with work for other clients. 11,000 a second are still closed."""


class Arrivals:
    """Admits new connections: one of each client in a pass, so that a client's burst is interleaved with work for
    others. Those above `connections_per_second` wait for their time."""

    def __init__(
        self,
        limiter: Limiter,
        listener: str,
        nursery: trio.Nursery,
        begin: Callable[[socket.socket, Address | None], Awaitable[None]],
    ) -> None:
        """Create the queue. `begin` starts to serve a connection from an address, or refuses it, and returns at once.
        Connections that wait are closed with the `nursery`."""
        self._limiter = limiter
        self._listener = listener
        self._nursery = nursery
        self._begin = begin
        self._waiting: dict[ClientQuota, deque[tuple[socket.socket, Address | None]]] = {}
        self._begun: set[ClientQuota] = set()

    def next_pass(self) -> None:
        """Begin a new pass, in which each client may begin one more connection."""
        self._begun.clear()

    async def come(self, accepted: socket.socket, peer: Address | None, account: ClientQuota) -> bool:
        """Begin, queue or close an accepted connection. Return whether it was kept open."""
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

    async def _release(self, account: ClientQuota) -> None:
        queue = self._waiting[account]
        try:
            while queue:
                pause, _ = self._limiter.pause(account)
                await trio.sleep(pause)
                if pause:
                    continue  # the pause may have become longer
                accepted, peer = queue.popleft()
                account.arriving -= 1
                if _gone(accepted):
                    accepted.close()
                    self._limiter.connection_failed(account)
                    continue
                self._limiter.arrived(account)
                await self._begin(accepted, peer)
        finally:
            del self._waiting[account]
            account.arriving -= len(queue)
            for accepted, _ in queue:
                accepted.close()


def _gone(accepted: socket.socket) -> bool:
    """Return whether the client hung up while it waited. A client that only finished sending may still want its
    answer."""
    return bool(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
