"""A listener as it runs: its sockets, who accepts on them, its connections, and how they end."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog
import trio

from penstock.accepting import Connected, Listener, accept_connections, check_private, open_sockets
from penstock.config import Address
from penstock.errors import CannotStart
from penstock.limits import Limiter
from penstock.live import take_over
from penstock.recorder.connections import Connections

__all__ = ["Place", "Places"]

log = structlog.get_logger()

MANAGEMENT: Final = "management"
"""The protocol of the listener for operators."""
OPERATORS_SECONDS: Final = 1.0
"""When the clients have gone, operators have so long to take the last of what they are told."""


class Place:
    """One listener, from when its sockets listen to the end of its last connection.

    `listener` is what new connections are given; a reload puts another there (`become`).
    """

    def __init__(
        self, listener: Listener, sockets: Sequence[trio.SocketListener], limiter: Limiter, taps: Connections
    ) -> None:
        self.listener = listener
        self.limiter = limiter
        self.open: dict[int, Connected] = {}
        """The connections by their numbers."""
        self.cut_off = False
        """Whether connections were cut off at the end."""
        self.over = trio.Event()
        """Set when the last connection has ended."""
        self._sockets = list(sockets)
        self._taps = taps
        self._accepting = trio.CancelScope()
        self._connections: trio.Nursery | None = None
        self.addresses = [_bound(one) for one in self._sockets]
        """Where it is really bound."""
        listener.bound(self.addresses)

    @classmethod
    async def listen(
        cls, listener: Listener, given: Sequence[socket.socket], limiter: Limiter, taps: Connections
    ) -> Place:
        """Listen, on the sockets that are given if any. Raises CannotStart."""
        if given:
            sockets = [trio.SocketListener(trio.socket.from_stdlib_socket(one)) for one in given]
        else:
            sockets = await open_sockets(listener)
        try:
            check_private(listener, [_bound(one) for one in sockets])
        except CannotStart:
            for one in sockets:
                one.socket.close()
            raise
        return cls(listener, sockets, limiter, taps)

    @property
    def connections(self) -> int:
        """How many are open."""
        return 0 if self._connections is None else len(self._connections.child_tasks)

    @property
    def of_operators(self) -> bool:
        """Whether it is the management listener."""
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
                        for one, (host, port) in zip(self._sockets, self.addresses, strict=True):
                            acceptors.start_soon(accept_connections, self, one, connections, self._taps)
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
            log.exception("duties_failed", listener=self.listener.name)

    # ---- another listener in its place ---------------------------------------------------------------------------

    def become(self, successor: Listener) -> None:
        """What the successor was built with holds from now on: for new connections all of it, for open ones from their
        next request on what their front looks at (`Listener.settings`, `Listener.back`)."""
        mine = self.listener
        for ours, theirs in zip(mine.settings, successor.settings, strict=True):
            take_over(ours, theirs)
        if mine.back is not None and successor.back is not None:
            mine.back.inner = successor.back.inner
        successor.bound(self.addresses)
        if mine.tls is not None:
            mine.tls.retire()
        self.listener = replace(
            successor,
            serve=mine.serve,
            begin_drain=mine.begin_drain,
            duties=mine.duties,
            settings=mine.settings,
            back=mine.back,
        )
        for connected in self.open.values():
            connected.identify(mine.identities, successor.identities)

    # ---- the end -------------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Nobody else is let in, and clients are told. Later calls change nothing."""
        if self._accepting.cancel_called:
            return
        self._accepting.cancel()
        self.close()
        if self.listener.tls is not None:
            self.listener.tls.retire()
        self.listener.begin_drain()

    def cut_at(self, deadline: float) -> None:
        """Connections that are still open then are cut off."""
        if self._connections is not None:
            scope = self._connections.cancel_scope
            scope.deadline = min(scope.deadline, deadline)

    def close(self) -> None:
        """Close the sockets; of a listener that did not run yet it is all that there is to be done."""
        for one in self._sockets:
            one.socket.close()


class Places:
    """All listeners of a gateway. `begin` them once, in a nursery that ends when the last connection has."""

    def __init__(self, given: Mapping[str, Sequence[socket.socket]], limiter: Limiter, taps: Connections) -> None:
        """`given`: sockets that listen already, by the names of their listeners."""
        self._given = dict(given)
        self._limiter = limiter
        self._operators = Limiter()  # they always get in
        self._taps = taps
        self._nursery: trio.Nursery | None = None
        self._open: dict[str, Place] = {}
        self._leaving: set[Place] = set()
        self._listening: set[Place] = set()

    @property
    def addresses(self) -> dict[str, list[Address]]:
        """Where each listener is really bound."""
        return {name: place.addresses for name, place in self._open.items()}

    @property
    def all(self) -> list[Place]:
        """Every one whose connections have not all ended."""
        return [*self._open.values(), *self._leaving]

    async def open(self, listener: Listener) -> Place:
        """Listen: on the sockets that are given for it, or bind. Raises CannotStart."""
        limiter = self._operators if listener.protocol == MANAGEMENT else self._limiter
        given = self._given.pop(listener.name, ())
        place = await Place.listen(listener, given, limiter, self._taps)
        self._listening.add(place)
        return place

    def close(self) -> None:
        """Close every socket."""
        for place in self._listening:
            place.close()

    def abandon(self, place: Place) -> None:
        """Close one that was opened, and will not begin."""
        self._listening.discard(place)
        place.close()

    def has(self, listener: Listener) -> bool:
        """Whether there is one of this name and address. Raises CannotStart where it is, and must not be, bound where
        other machines reach it."""
        place = self._open.get(listener.name)
        if place is None or place.listener.address != listener.address:
            return False
        check_private(listener, place.addresses)
        return True

    async def begin(self, nursery: trio.Nursery, places: Sequence[Place]) -> None:
        """Accept on all of these."""
        self._nursery = nursery
        for place in places:
            self._open[place.listener.name] = place
            await nursery.start(self._run, place)

    def replace(self, listeners: Sequence[Listener], opened: Sequence[Place], seconds: float) -> None:
        """From now on there are these: `opened` are new, the others were there (`has`) and become what they are now.
        Those that are missing accept no more, and their clients have so many seconds to finish."""
        new = {place.listener.name: place for place in opened}
        wanted = {listener.name: listener for listener in listeners}
        for name, place in list(self._open.items()):
            if name in new or name not in wanted:
                del self._open[name]
                self._leaving.add(place)
                log.info("listener_removed", listener=name, connections=place.connections)
                place.stop_accepting()
                place.cut_at(trio.current_time() + seconds)
            else:
                place.become(wanted[name])
        assert self._nursery is not None, "they have begun"
        for name, place in new.items():
            self._open[name] = place
            self._nursery.start_soon(self._run, place)

    async def _run(self, place: Place, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await place.run(task_status=task_status)
        finally:
            self._leaving.discard(place)
            self._listening.discard(place)

    def close_connection(self, number: int) -> bool:
        """End the client's connection of this number; whether there is one."""
        found = next((place.open[number] for place in self.all if number in place.open), None)
        if found is not None:
            found.scope.cancel()
        return found is not None

    async def drain(self, seconds: float) -> None:
        """Let nobody in any more, tell clients, and wait until their connections have ended, so many seconds at most.
        Operators are served meanwhile, and are told last."""
        clients = [place for place in self.all if not place.of_operators]
        connections = sum(place.connections for place in clients)
        log.info("draining", connections=connections, deadline_seconds=seconds)
        await self._end(clients, seconds)
        if any(place.cut_off for place in clients):
            log.warning("drain_deadline", deadline_seconds=seconds)
        await self._end([place for place in self.all if place.of_operators], OPERATORS_SECONDS)

    async def _end(self, places: Sequence[Place], seconds: float) -> None:
        deadline = trio.current_time() + seconds
        for place in places:
            place.stop_accepting()
            place.cut_at(deadline)
        for place in places:
            await place.over.wait()


def _bound(one: trio.SocketListener) -> Address:
    return Address(*one.socket.getsockname()[:2])
