"""Running listeners: their sockets, their connections, reloads, and drains.

A `ListenerServer` accepts on the sockets of one listener and serves its connections in one nursery. A reload keeps its
sockets and connections: the new settings are copied into the objects that fronts read for each request (`take_over`),
so open connections use them from their next request on.

A drain (`ListenerSet.drain`) closes the sockets first, then tells the fronts, and cuts off connections that are still
open at the deadline. The management listener goes last, so that operators can watch.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
import trio
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.net.accepting import Connected, Listener, accept_connections, check_private, open_sockets
from penstock.net.limits import Limiter
from penstock.observe.taps.connections import Connections

__all__ = ["ListenerServer", "ListenerSet", "take_over"]

log = structlog.get_logger()

MANAGEMENT: Final = "management"
"""Protocol of the listener for operators."""
OPERATORS_SECONDS: Final = 1.0
"""Seconds that operators' connections get to finish after the clients' have ended."""


def take_over(current: Struct, new: Struct) -> None:
    """Copy the values of `new` to the settings `current`, so that all who hold `current` see them at once.

    Raises TypeError unless both are of one class, and AttributeError if that is frozen.
    """
    if type(current) is not type(new):
        raise TypeError(f"{type(new).__name__} cannot take the place of {type(current).__name__}")
    for name in current.__struct_fields__:
        setattr(current, name, getattr(new, name))


class ListenerServer:
    """One running listener, from its listening sockets to the end of its last connection.

    `listener` serves new connections; a reload replaces it (`become`).
    """

    def __init__(
        self, listener: Listener, sockets: Sequence[trio.SocketListener], limiter: Limiter, taps: Connections
    ) -> None:
        self.listener = listener
        self.limiter = limiter
        self.open: dict[int, Connected] = {}
        """The open connections by number."""
        self.cut_off = False
        """True if connections were cut off at the deadline."""
        self.over = trio.Event()
        """Set when the last connection has ended."""
        self._sockets = list(sockets)
        self._taps = taps
        self._accepting = trio.CancelScope()
        self._connections: trio.Nursery | None = None
        self.addresses = [_bound(acceptor) for acceptor in self._sockets]
        """The addresses that the sockets are bound to."""
        listener.bound(self.addresses)

    @classmethod
    async def listen(
        cls, listener: Listener, inherited: Sequence[socket.socket], limiter: Limiter, taps: Connections
    ) -> ListenerServer:
        """Listen on the given sockets if any, else bind new ones. Raises CannotStart."""
        if inherited:
            sockets = [trio.SocketListener(trio.socket.from_stdlib_socket(bound)) for bound in inherited]
        else:
            sockets = await open_sockets(listener)
        try:
            check_private(listener, [_bound(acceptor) for acceptor in sockets])
        except CannotStart:
            for acceptor in sockets:
                acceptor.socket.close()
            raise
        return cls(listener, sockets, limiter, taps)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return 0 if self._connections is None else len(self._connections.child_tasks)

    @property
    def of_operators(self) -> bool:
        """True for the management listener."""
        return self.listener.protocol == MANAGEMENT

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until `stop_accepting`, and until the last connection has ended."""
        try:
            await self._run(task_status)
        finally:
            self.close()
            self.over.set()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as beside:
            beside.start_soon(self._run_duties)
            async with trio.open_nursery() as connections:
                self._connections = connections
                with self._accepting:
                    async with trio.open_nursery() as acceptors:
                        for acceptor, (host, port) in zip(self._sockets, self.addresses, strict=True):
                            acceptors.start_soon(accept_connections, self, acceptor, connections, self._taps)
                            self._say_listening(host, port)
                        task_status.started()
            self.cut_off = connections.cancel_scope.cancelled_caught
            beside.cancel_scope.cancel()

    def _say_listening(self, host: str, port: int) -> None:
        log.info("listening", listener=self.listener.name, protocol=self.listener.protocol, host=host, port=port)

    async def _run_duties(self) -> None:
        if self.listener.duties is None:
            return
        try:
            await self.listener.duties()
        except Exception:
            log.exception("listener_task_failed", listener=self.listener.name)

    # ---- reloads -------------------------------------------------------------------------------------------------

    def become(self, successor: Listener) -> None:
        """Adopt the successor's configuration: for new connections all of it; for open ones, from their next request
        on, what their front reads (`Listener.settings`, `Listener.backs`)."""
        mine = self.listener
        for ours, theirs in zip(mine.settings, successor.settings, strict=True):
            take_over(ours, theirs)
        for back, new in zip(mine.backs, successor.backs, strict=True):
            back.take_over(new)
        successor.bound(self.addresses)
        if mine.tls is not None:
            mine.tls.retire()
        self.listener = replace(
            successor,
            serve=mine.serve,
            begin_drain=mine.begin_drain,
            duties=mine.duties,
            settings=mine.settings,
            backs=mine.backs,
        )
        for connected in self.open.values():
            connected.identify(mine.identities, successor.identities)

    # ---- the end -------------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Stop accepting, and tell the front to drain. Later calls change nothing."""
        if self._accepting.cancel_called:
            return
        self._accepting.cancel()
        self.close()
        if self.listener.tls is not None:
            self.listener.tls.retire()
        self.listener.begin_drain()

    def cut_at(self, deadline: float) -> None:
        """Cut off connections that are still open at `deadline`, on trio's clock."""
        if self._connections is not None:
            scope = self._connections.cancel_scope
            scope.deadline = min(scope.deadline, deadline)

    def close(self) -> None:
        """Close the sockets. That is all the cleanup that a server needs that has not run yet."""
        for acceptor in self._sockets:
            acceptor.socket.close()


class ListenerSet:
    """All listeners of a gateway. Call `begin` once, in a nursery that ends when the last connection has."""

    def __init__(self, inherited: Mapping[str, Sequence[socket.socket]], limiter: Limiter, taps: Connections) -> None:
        """Take sockets that already listen (`inherited`), by the names of their listeners."""
        self._given = dict(inherited)
        self._limiter = limiter
        self._operators = Limiter()  # without the configured limits: operators always get in
        self._taps = taps
        self._nursery: trio.Nursery | None = None
        self._open: dict[str, ListenerServer] = {}
        self._leaving: set[ListenerServer] = set()
        self._listening: set[ListenerServer] = set()

    @property
    def addresses(self) -> dict[str, list[Address]]:
        """The addresses that each listener is bound to, by its name."""
        return {name: server.addresses for name, server in self._open.items()}

    @property
    def all(self) -> list[ListenerServer]:
        """The servers that run, including those that only finish their connections."""
        return [*self._open.values(), *self._leaving]

    async def open(self, listener: Listener) -> ListenerServer:
        """Listen on the sockets given for the listener, or bind new ones. Raises CannotStart."""
        limiter = self._operators if listener.protocol == MANAGEMENT else self._limiter
        inherited = self._given.pop(listener.name, ())
        server = await ListenerServer.listen(listener, inherited, limiter, self._taps)
        self._listening.add(server)
        return server

    def close(self) -> None:
        """Close every socket."""
        for server in self._listening:
            server.close()

    def abandon(self, server: ListenerServer) -> None:
        """Close a server that was opened and will not begin."""
        self._listening.discard(server)
        server.close()

    def has(self, listener: Listener) -> bool:
        """Return whether a listener of this name and address runs. Raises CannotStart if the listener is private and
        other machines reach the address."""
        server = self._open.get(listener.name)
        if server is None or server.listener.address != listener.address:
            return False
        check_private(listener, server.addresses)
        return True

    async def begin(self, nursery: trio.Nursery, servers: Sequence[ListenerServer]) -> None:
        """Begin to accept on all of these servers."""
        self._nursery = nursery
        for server in servers:
            self._open[server.listener.name] = server
            await nursery.start(self._run, server)

    def replace(self, listeners: Sequence[Listener], opened: Sequence[ListenerServer], seconds: float) -> None:
        """Change the set of listeners to `listeners`, of which `opened` are new and the others run already (`has`) and
        adopt their new configuration. Those that are missing stop accepting, and their clients have `seconds` to
        finish."""
        new = {server.listener.name: server for server in opened}
        wanted = {listener.name: listener for listener in listeners}
        for name, server in list(self._open.items()):
            if name in new or name not in wanted:
                del self._open[name]
                self._leaving.add(server)
                log.info("listener_removed", listener=name, connections=server.connections)
                server.stop_accepting()
                server.cut_at(trio.current_time() + seconds)
            else:
                server.become(wanted[name])
        assert self._nursery is not None, "they have begun"
        for name, server in new.items():
            self._open[name] = server
            self._nursery.start_soon(self._run, server)

    async def _run(
        self, server: ListenerServer, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            await server.run(task_status=task_status)
        finally:
            self._leaving.discard(server)
            self._listening.discard(server)

    def close_connection(self, number: int) -> bool:
        """End the client's connection of this number. Return whether there was one."""
        connection = next((server.open[number] for server in self.all if number in server.open), None)
        if connection is not None:
            connection.scope.cancel()
        return connection is not None

    async def drain(self, seconds: float) -> None:
        """Stop accepting, tell clients, and wait up to `seconds` for their connections to end. The management listener
        is served meanwhile, and drained last."""
        clients = [server for server in self.all if not server.of_operators]
        connections = sum(server.connections for server in clients)
        log.info("draining", connections=connections, deadline_seconds=seconds)
        await self._end(clients, seconds)
        if any(server.cut_off for server in clients):
            log.warning("drain_deadline", deadline_seconds=seconds)
        await self._end([server for server in self.all if server.of_operators], OPERATORS_SECONDS)

    async def _end(self, servers: Sequence[ListenerServer], seconds: float) -> None:
        deadline = trio.current_time() + seconds
        for server in servers:
            server.stop_accepting()
            server.cut_at(deadline)
        for server in servers:
            await server.over.wait()


def _bound(acceptor: trio.SocketListener) -> Address:
    return Address(*acceptor.socket.getsockname()[:2])
