"""A gateway within this process whose only back is a replay's target. It translates for recorded clients as for live
ones, with the same names and the same rules of loss. Nothing listens."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from penstock.app.bootstrap import open_listeners, open_router, open_store
from penstock.core.back import Back
from penstock.core.identity import CLIENT, Client
from penstock.core.segment_names import SegmentNames
from penstock.net.accepting import Listener
from penstock.net.upstream import UpstreamSettings
from penstock.protocols.servers import Server
from penstock.tools.replay.configuring import TargetOptions, target_config

__all__ = ["LazyGateway", "TargetGateway", "open_target_gateway"]


class TargetGateway:
    """A gateway in front of a target, made by `open_target_gateway`.

    `back`: the target as a back; streams have their recorded names, and are renamed on the way.
    """

    def __init__(self, target: Server, back: Back, listeners: Mapping[str, Listener], nursery: trio.Nursery) -> None:
        self.target = target
        self.back = back
        self.reached = False
        """Whether the target was ever connected to."""
        self._listeners = listeners
        self._nursery = nursery

    async def connect(self, protocol: str) -> trio.abc.HalfCloseableStream:
        """Return a new connection to the front of a protocol (`s2`, `s3p`, `segment`, `controller`), in plaintext. It
        ends with the block of `open_target_gateway` at the latest."""
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


@asynccontextmanager
async def open_target_gateway(target: Server, options: TargetOptions | None = None) -> AsyncIterator[TargetGateway]:
    """Run the gateway until the block ends, with a temporary store. Connections are made when they are needed.

    Raises CannotStart for files that cannot be used.
    """
    options = options or TargetOptions()
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-replay-"))
        config = target_config(target, options, directory)
        embedded = await stack.enter_async_context(open_store(config))

        def watch(stream: trio.abc.Stream, _settings: UpstreamSettings) -> trio.abc.Stream:
            gateway.reached = True
            return stream

        router = await stack.enter_async_context(open_router(config, embedded, watch))
        listeners = {listener.protocol: listener for listener in open_listeners(config, router)}
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        for listener in listeners.values():
            listener.bound([listener.address])
            if listener.duties is not None:
                nursery.start_soon(listener.duties)
        back = router.for_listener("", SegmentNames(options.basin))
        gateway = TargetGateway(target, back, listeners, nursery)
        try:
            yield gateway
        except Exception as error:  # raised again outside of the nurseries, which would wrap it in a group
            failure = error
    if failure is not None:
        raise failure


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
