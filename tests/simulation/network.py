"""A network in memory, between the gateway's listeners and clients in the same process.

It stands where the gateway opens and accepts connections: trio's `open_tcp_stream`, and the listening sockets of
`penstock.net`. All else, from the quota of a connection to its last byte, is the gateway's own code.

Bytes arrive in pieces, and after times, that dice choose. A connection that breaks loses what is under way in each
direction from some byte on; neither end knows how much of it arrived.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

import trio

from penstock.core.address import Address
from penstock.net import accepting, listeners
from penstock.net.accepting import Accepting, Listener
from penstock.net.limits.limiter import ConnectionQuota
from penstock.observe.taps.connections import Connections
from penstock.wire.http import Buffer

__all__ = ["Network"]

HOST: Final = "127.0.0.1"
CAPACITIES: Final = (1 << 10, 1 << 14, 1 << 20)
"""Bytes under way in one direction, from which a sender waits."""
MOST_BREAKS: Final = 12
"""Then the network is quiet: a follower needs a connection that lasts for as long as an answer takes."""
DELAYS: Final = (0.0, 0.0, 0.0, 0.0001, 0.002, 0.05)


class _Pipe:
    """One direction of a connection. `ended`: no more bytes follow; `deaf`: the reader has closed its end."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray()
        self.ended = self.broken = self.deaf = False
        self._waiting = trio.lowlevel.ParkingLot()

    async def change(self) -> None:
        await self._waiting.park()

    def changed(self) -> None:
        self._waiting.unpark_all()


class _End(trio.abc.HalfCloseableStream):
    """One end of a connection."""

    def __init__(self, network: Network, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._network = network
        self._dice = network.dice
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    def setsockopt(self, *_option: object) -> None:
        """Do nothing: the options of sockets make no difference here."""

    async def send_all(self, data: Buffer) -> None:
        await trio.lowlevel.checkpoint()
        pipe, rest = self._outgoing, bytes(data)
        while True:
            if self._closed or pipe.ended:
                raise trio.ClosedResourceError
            if pipe.broken or pipe.deaf:
                raise trio.BrokenResourceError
            room = max(pipe.capacity - len(pipe.data), 0)
            if room and rest:
                pipe.data += rest[:room]
                rest = rest[room:]
                pipe.changed()
            if not rest:
                return
            await pipe.change()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        pipe, has_waited = self._incoming, False
        while True:
            if self._closed:
                raise trio.ClosedResourceError
            if pipe.data and has_waited:
                size = len(pipe.data)
                if self._dice.random() < 0.2:
                    size = self._dice.randint(1, size)
                size = min(size, max_bytes or size)
                taken = bytes(pipe.data[:size])
                del pipe.data[:size]
                pipe.changed()
                return taken
            if pipe.data:
                await trio.sleep(self._dice.choice(DELAYS))
                has_waited = True
            elif pipe.broken:
                raise trio.BrokenResourceError
            elif pipe.ended:
                return b""
            else:
                await pipe.change()

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self._outgoing.ended = True
        self._outgoing.changed()

    async def aclose(self) -> None:
        self._closed = True
        self._outgoing.ended = True
        self._incoming.deaf = True
        self._outgoing.changed()
        self._incoming.changed()
        self._network.closed(self._incoming)
        await trio.lowlevel.checkpoint()


class _Socket:
    """A listening socket, as far as the gateway uses it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.arrivals: trio.MemoryReceiveChannel[tuple[_End, Address]]
        self.knocking, self.arrivals = trio.open_memory_channel[tuple[_End, Address]](100)
        self.socket = self  # as trio.SocketListener has it

    def getsockname(self) -> tuple[str, int]:
        return self.address.host, self.address.port

    def close(self) -> None:
        self.arrivals.close()


class Network:
    """The network of one life of the gateway; `trace` gets each of its events."""

    def __init__(self, dice: random.Random, trace: Callable[[str], object]) -> None:
        self.dice = dice
        self._trace = trace
        self._sockets: dict[int, _Socket] = {}
        self._open: dict[_Pipe, _Pipe] = {}
        self._made = 0
        self.broken = 0
        """Connections that were broken."""

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Make it the network of this process until the block ends."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(trio, "open_tcp_stream", self._connect))
            stack.enter_context(patch.object(listeners, "open_sockets", self._listen))
            stack.enter_context(patch.object(listeners, "accept_connections", _accept))
            yield

    async def break_some(self, seconds: float) -> None:
        """Break a connection now and then, a few times; `seconds`: the mean time between two."""
        for _ in range(self.dice.randint(1, MOST_BREAKS)):
            await trio.sleep(self.dice.expovariate(1 / seconds))
            if self._open:
                incoming = self.dice.choice(list(self._open))
                self._trace(f"{trio.current_time():.6f} a connection breaks")
                self.broken += 1
                for pipe in (incoming, self._open.pop(incoming)):
                    del pipe.data[self.dice.choice((0, self.dice.randint(0, len(pipe.data)), len(pipe.data))) :]
                    pipe.broken = True
                    pipe.changed()

    def closed(self, pipe: _Pipe) -> None:
        """Forget a connection of which one end is closed."""
        self._open.pop(pipe, None)

    async def _connect(self, host: str, port: int) -> trio.abc.Stream:
        await trio.sleep(self.dice.choice(DELAYS))
        socket = self._sockets.get(port)
        self._made += 1
        number = self._made
        try:
            if socket is None:
                raise trio.BrokenResourceError
            capacity = self.dice.choice(CAPACITIES)
            there, back = _Pipe(capacity), _Pipe(capacity)
            await socket.knocking.send((_End(self, there, back), Address(host, 50_000 + number % 10_000)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused") from None
        self._open[there] = back
        self._trace(f"{trio.current_time():.6f} connection {number} with port {port}")
        return _End(self, back, there)

    async def _listen(self, listener: Listener) -> list[_Socket]:
        await trio.lowlevel.checkpoint()
        socket = self._sockets[listener.address.port] = _Socket(listener.address)
        return [socket]


async def _accept(place: Accepting, sockets: _Socket, connections: trio.Nursery, taps: Connections) -> None:
    """Serve each connection as `accept_connections` does, without the limits on their rate."""
    listener = place.listener
    async for stream, peer in sockets.arrivals:
        identity = listener.identities.of_address(peer.host)
        quota = place.limiter.enter(listener.name, listener.max_connections, peer.host, identity)
        assert isinstance(quota, ConnectionQuota), f"there is room for few clients, but for {quota}"
        connections.start_soon(accepting._run_connection, place, stream, peer, quota, taps)
