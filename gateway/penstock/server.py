"""The process: opens the store, listens, and stops without losing what it has acknowledged.

recordings > store > connections nursery (its deadline is set on drain) > accept nursery (cancelled first)
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
import trio

from penstock.accepting import Listener, accept_connections, open_sockets
from penstock.config import Address, Config
from penstock.management.traffic import Traffic
from penstock.recorder.connections import Connections
from penstock.surroundings import ALONE, Surroundings
from penstock.wiring import open_listeners, open_recordings, open_router

__all__ = ["Running", "serve"]

log = structlog.get_logger()

MAX_DESCRIPTORS: Final = 65_536
"""The limit on open files is raised to this where the system lets us; each connection needs one."""


@dataclass(slots=True)
class Running:
    """A gateway that has begun to listen. `addresses` has, for each listener, where it is really bound."""

    addresses: dict[str, list[Address]]
    _drain: trio.Event = field(default_factory=trio.Event)

    def drain(self) -> None:
        """Stop accepting and let clients finish; `serve` returns when they have, or at the hard deadline."""
        self._drain.set()


async def serve(
    config: Config,
    surroundings: Surroundings | None = None,
    *,
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a gateway until it is drained or cancelled.

    `task_status` gives a `Running` once every listener accepts. Raises CannotStart. When drained it takes no more
    connections, tells each front, and gives connections `drain.deadline_seconds` to end.
    """
    surroundings = surroundings or ALONE
    _raise_descriptor_limit()
    async with contextlib.AsyncExitStack() as stack:
        taps = Connections()
        recordings = await stack.enter_async_context(open_recordings(config, taps))
        embedded = await stack.enter_async_context(surroundings.open_embedded(config))
        router = await stack.enter_async_context(open_router(config, embedded, taps.dialled))
        labels = [label for label, _ in config.listeners.labelled()]
        listeners = open_listeners(config, router, Traffic(taps, recordings, labels, config.backs))
        sockets = [(listener, await _listen(listener, surroundings, stack)) for listener in listeners]
        running = Running({listener.name: [_bound(one) for one in some] for listener, some in sockets})
        for listener in listeners:
            listener.bound(running.addresses[listener.name])
        async with _duties(listeners), trio.open_nursery() as connections:
            async with trio.open_nursery() as acceptors:
                for listener, some in sockets:
                    limit = trio.Semaphore(listener.max_connections)
                    for one in some:
                        acceptors.start_soon(accept_connections, listener, one, limit, connections, taps)
                        host, port = _bound(one)
                        log.info("listening", listener=listener.name, protocol=listener.protocol, host=host, port=port)
                task_status.started(running)
                await running._drain.wait()
                acceptors.cancel_scope.cancel()
            await _drain(config, listeners, [one for _, some in sockets for one in some], connections)
        if connections.cancel_scope.cancelled_caught:
            log.warning("drain_deadline", deadline_seconds=config.drain.deadline_seconds)
    log.info("stopped")


@contextlib.asynccontextmanager
async def _duties(listeners: list[Listener]) -> AsyncIterator[None]:
    """Until the block ends, whatever the fronts do beside serving connections. It may fail: connections go on."""
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            if listener.duties is not None:
                nursery.start_soon(_run_duties, listener.name, listener.duties)
        yield
        nursery.cancel_scope.cancel()


async def _run_duties(name: str, duties: Callable[[], Awaitable[None]]) -> None:
    try:
        await duties()
    except Exception:
        log.exception("duties_failed", listener=name)


async def _listen(
    listener: Listener, surroundings: Surroundings, stack: contextlib.AsyncExitStack
) -> list[trio.SocketListener]:
    given = [
        trio.SocketListener(trio.socket.from_stdlib_socket(one)) for one in surroundings.sockets.get(listener.name, ())
    ]
    sockets = given or await open_sockets(listener)
    for one in sockets:
        await stack.enter_async_context(one)
    return sockets


def _bound(one: trio.SocketListener) -> Address:
    return Address(*one.socket.getsockname()[:2])


async def _drain(
    config: Config, listeners: list[Listener], sockets: list[trio.SocketListener], connections: trio.Nursery
) -> None:
    """Refuse new connections at once, tell the fronts, and set the hard deadline for the rest."""
    for one in sockets:
        await one.aclose()
    for listener in listeners:
        listener.begin_drain()
    seconds = config.drain.deadline_seconds
    log.info("draining", connections=len(connections.child_tasks), deadline_seconds=seconds)
    connections.cancel_scope.deadline = trio.current_time() + seconds


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
