"""A gateway within this process whose one back is a target: what translates for live clients translates for recorded
ones, with the same names and the same rules of loss. Nothing listens."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from penstock.accepting import Listener
from penstock.backs.base import Back
from penstock.identity import CLIENT, Client
from penstock.replay.configuring import TargetOptions, target_config
from penstock.replay.target import Target
from penstock.routing.segments import SegmentNames
from penstock.wiring import open_listeners, open_router, open_store

__all__ = ["LazyGateway", "TargetGateway", "open_target_gateway"]


class TargetGateway:
    """`back`: the target, in the waist's terms; streams are called as recordings call them, and are renamed on the way.

    To be had from `open_target_gateway`.
    """

    def __init__(self, target: Target, back: Back, listeners: Mapping[str, Listener], nursery: trio.Nursery) -> None:
        self.target = target
        self.back = back
        self._listeners = listeners
        self._nursery = nursery

    async def connect(self, protocol: str) -> trio.abc.HalfCloseableStream:
        """A new connection to the front of a protocol (`s2`, `s3p`, `segment`, `controller`), in plaintext. It ends
        with the block of `open_target_gateway` at the latest."""
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
async def open_target_gateway(target: Target, options: TargetOptions | None = None) -> AsyncIterator[TargetGateway]:
    """The gateway until the block ends. Nothing is dialled before it is needed. Its store is a temporary one.

    Raises CannotStart for files that cannot be used.
    """
    options = options or TargetOptions()
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-replay-"))
        config = target_config(target, options, directory)
        embedded = await stack.enter_async_context(open_store(config))
        router = await stack.enter_async_context(open_router(config, embedded))
        listeners = {listener.protocol: listener for listener in open_listeners(config, router)}
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        for listener in listeners.values():
            listener.bound([listener.address])
            if listener.duties is not None:
                nursery.start_soon(listener.duties)
        back = router.for_listener("s2", SegmentNames(options.basin))
        try:
            yield TargetGateway(target, back, listeners, nursery)
        except Exception as error:  # raised again outside of the nurseries, which would put it into a group
            failure = error
    if failure is not None:
        raise failure


class LazyGateway:
    """A gateway that is opened when it is needed first; an async context manager, at whose end it is closed."""

    def __init__(self, target: Target, options: TargetOptions) -> None:
        self._target = target
        self._options = options
        self._gateway: TargetGateway | None = None
        self._over = trio.Event()
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery

    async def __aenter__(self) -> Self:
        """Begin; nothing is opened yet."""
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it. What the block raised goes on as it is, not in a group."""
        self._over.set()
        await self._manager.__aexit__(None, None, None)

    async def get(self) -> TargetGateway:
        """The gateway. Raises CannotStart as `open_target_gateway` does."""
        if self._gateway is None:
            self._gateway = await self._nursery.start(self._hold)
        return self._gateway

    async def _hold(self, *, task_status: trio.TaskStatus[TargetGateway]) -> None:
        async with open_target_gateway(self._target, self._options) as gateway:
            task_status.started(gateway)
            await self._over.wait()
