"""New connections: which are served at once, which wait, and which are closed."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from penstock.core.address import Address
from penstock.net.limits import Limiter
from penstock.net.limits.arrivals import Arrivals
from penstock.net.limits.limiter import FAILED_PER_SECOND, FAILED_SECONDS
from penstock.net.limits.settings import Limits

SLOW = Limits(connections_per_second=2, burst_seconds=1)


class Door:
    """Arrivals from one listening socket, and when they began."""

    def __init__(self, limiter: Limiter, nursery: trio.Nursery, listening: socket.socket) -> None:
        self.limiter = limiter
        self.begun: list[float] = []
        self.stayed = False
        self._arrivals = Arrivals(limiter, "listeners.s2", nursery, self._begin)
        self._listening = listening
        self._accepted: list[socket.socket] = []

    async def _begin(self, _accepted: socket.socket, _peer: Address | None) -> None:
        self.begun.append(trio.current_time())

    async def come(self, host: str = "10.0.0.1") -> socket.socket:
        """Another one, in the same pass; the client's end of it."""
        client = socket.create_connection(self._listening.getsockname(), timeout=10)
        self._accepted.append(self._listening.accept()[0])
        self.stayed = await self._arrivals.come(self._accepted[-1], Address(host, 1), self.limiter.account(host))
        return client

    def next_pass(self) -> None:
        """Let each client begin one more connection."""
        self._arrivals.next_pass()

    def close(self) -> None:
        """End all that have begun."""
        for accepted in self._accepted:
            accepted.close()


@asynccontextmanager
async def door(limiter: Limiter) -> AsyncIterator[Door]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with trio.open_nursery() as nursery:
            one = Door(limiter, nursery, listening)
            yield one
            nursery.cancel_scope.cancel()
        one.close()


async def test_one_of_each_client_begins_in_a_pass(autojump_clock: MockClock) -> None:
    async with door(Limiter()) as arriving:
        clients = [await arriving.come() for _ in range(3)]
        assert len(arriving.begun) == 1
        clients.append(await arriving.come("10.0.0.2"))
        assert len(arriving.begun) == 2, "others do not wait behind them"
        await trio.testing.wait_all_tasks_blocked()
        assert len(arriving.begun) == 4
        arriving.next_pass()
        clients.append(await arriving.come())
        assert len(arriving.begun) == 5
        for client in clients:
            client.close()


async def test_who_connects_too_often_waits(autojump_clock: MockClock) -> None:
    async with door(Limiter(SLOW)) as arriving:
        clients = []
        for _ in range(4):
            arriving.next_pass()
            clients.append(await arriving.come())
        arriving.next_pass()
        clients.append(await arriving.come("10.0.0.2"))
        began = trio.current_time()
        await trio.sleep(10)
        assert [when - began for when in arriving.begun] == pytest.approx([0, 0, 0, 0.5, 1.0], abs=0.01)
        for client in clients:
            client.close()


async def test_waiting_connections_are_closed_where_they_are_too_many_or_none_is_accepted_any_more(
    autojump_clock: MockClock,
) -> None:
    limiter = Limiter(Limits(connections_per_second=2, burst_seconds=1, max_connections_per_client=3))
    async with door(limiter) as arriving:
        clients = []
        for _ in range(6):
            arriving.next_pass()
            clients.append(await arriving.come())
        assert len(arriving.begun) == 2
        assert clients[5].recv(1) == b"", "two have begun, and three wait"
        assert limiter.account("10.0.0.1").arriving == 3
    assert limiter.account("10.0.0.1").arriving == 0
    for client in clients:
        assert client.recv(1) == b""
        client.close()


async def test_who_abuses_others_is_slowed_more_each_time_and_forgiven(autojump_clock: MockClock) -> None:
    limiter = Limiter()
    account = limiter.account("10.0.0.1")
    delays = []
    for _ in range(6):
        account.abused(trio.current_time())
        account.abused(trio.current_time())  # another of its connections, at the same time
        delays.append(limiter.pause(account)[0])
        await trio.sleep(delays[-1])
        assert limiter.pause(account) == (0.0, "calm")
    assert delays == pytest.approx([0.5, 1, 2, 4, 8, 8])
    await trio.sleep(100)
    assert limiter.pause(account) == (0.0, "connections_per_second")
    account.abused(trio.current_time())
    assert limiter.pause(account)[0] == pytest.approx(0.5)


async def test_who_has_abused_others_is_closed_rather_than_kept_waiting(autojump_clock: MockClock) -> None:
    limiter = Limiter()
    limiter.account("10.0.0.1").abused(trio.current_time())
    async with door(limiter) as arriving:
        clients = [await arriving.come() for _ in range(2)]
        assert arriving.stayed, "it waits"
        clients.append(await arriving.come())
        assert not arriving.stayed and clients[2].recv(1) == b""
        began = trio.current_time()
        await trio.sleep(5)
        assert [when - began for when in arriving.begun] == pytest.approx([0.5, 1.0], abs=0.01)
        for client in clients:
            client.close()


async def test_one_that_has_gone_while_it_waited_does_not_begin(autojump_clock: MockClock) -> None:
    async with door(Limiter(SLOW)) as arriving:
        clients = []
        for _ in range(3):
            arriving.next_pass()
            clients.append(await arriving.come())
        clients[2].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for client in clients:
            client.close()
        await trio.sleep(10)
        assert len(arriving.begun) == 2


async def test_connections_of_no_use_are_an_attack_where_there_are_many(autojump_clock: MockClock) -> None:
    limiter = Limiter()
    account = limiter.account("10.0.0.1")
    for _ in range(int(FAILED_PER_SECOND * FAILED_SECONDS)):
        limiter.connection_failed(account)
    assert limiter.pause(account)[0] == 0
    limiter.connection_failed(account)
    assert limiter.pause(account) == (pytest.approx(0.5), "calm")
