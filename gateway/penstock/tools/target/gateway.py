"""A gateway within a command's process whose only back is the target. It translates for recorded clients as for live
ones, with the same names and the same rules of loss. Nothing listens."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from penstock.app.bootstrap import open_listeners, open_router, open_store
from penstock.core.identity import CLIENT, Client
from penstock.net.accepting import Listener
from penstock.net.upstream import UpstreamSettings
from penstock.protocols.servers import Server
from penstock.tools.target.back import TargetOptions, raising_outside
from penstock.tools.target.configuring import target_config

__all__ = ["LazyGateway", "TargetGateway", "open_target_gateway"]


class TargetGateway:
    """A gateway in front of a target, made by `open_target_gateway`. Streams have their recorded names at its fronts,
    and are renamed on the way."""

    def __init__(self, target: Server, listeners: Mapping[str, Listener], nursery: trio.Nursery) -> None:
        self.target = target
        self.reached = False
        """True once the target was connected to."""
        self._listeners = listeners
        self._nursery = nursery

    async def connect(self, protocol: str) -> trio.abc.HalfCloseableStream:
        """Return a new connection to the front of a protocol, such as `s2`, in plaintext. It ends with the
        block of `open_target_gateway` at the latest."""
        ours, theirs = trio.socket.socketpair()
        self._nursery.start_soon(self._serve, self._listeners[protocol], trio.SocketStream(theirs))
        await trio.lowlevel.checkpoint()
        return trio.SocketStream(ours)

    async def _serve(self, listener: Listener, stream: trio.SocketStream) -> None:
        CLIENT.set(Client(listener=listener.name))
        try:
            await listener.serve(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionError):
            pass  # the player has gone
        finally:
            await trio.aclose_forcefully(stream)


def open_target_gateway(
    target: Server, options: TargetOptions | None = None
) -> AbstractAsyncContextManager[TargetGateway]:
    """Run the gateway until the block ends, with a temporary store. Connections are made when they are needed.

    Entering raises CannotStart for files that cannot be used.
    """
    return raising_outside(_gateway(target, options or TargetOptions()))


@asynccontextmanager
async def _gateway(target: Server, options: TargetOptions) -> AsyncIterator[TargetGateway]:
    def watch(stream: trio.abc.Stream, _settings: UpstreamSettings) -> trio.abc.Stream:
        gateway.reached = True
        return stream

    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        config = target_config(target, options, directory)
        async with (
            open_store(config) as embedded,
            open_router(config, embedded, watch) as router,
            trio.open_nursery() as nursery,
        ):
            listeners = {listener.protocol: listener for listener in open_listeners(config, router)}
            for listener in listeners.values():
                listener.bound([listener.address])
                if listener.duties is not None:
                    nursery.start_soon(listener.duties)
            gateway = TargetGateway(target, listeners, nursery)
            yield gateway
            nursery.cancel_scope.cancel()


class LazyGateway:
    """A gateway that is opened on first use; an async context manager that closes it at its end."""

    def __init__(self, target: Server, options: TargetOptions) -> None:
        self._target = target
        self._options = options
        self._gateway: TargetGateway | None = None
        self._over = trio.Event()
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery

    async def __aenter__(self) -> Self:
        """Enter the context; nothing is opened yet."""
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the gateway. Exceptions of the block are raised as they are, not in a group."""
        self._over.set()
        await self._manager.__aexit__(None, None, None)

    @property
    def reached(self) -> bool:
        """True if the target was ever connected to."""
        return self._gateway is not None and self._gateway.reached

    async def get(self) -> TargetGateway:
        """Return the gateway, opening it on the first call. Raises CannotStart as `open_target_gateway` does."""
        if self._gateway is None:
            self._gateway = await self._nursery.start(self._hold)
        return self._gateway

    async def _hold(self, *, task_status: trio.TaskStatus[TargetGateway]) -> None:
        async with open_target_gateway(self._target, self._options) as gateway:
            task_status.started(gateway)
            await self._over.wait()
