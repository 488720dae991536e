"""Workers' ways to a store, without processes."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from penstock.app.workers.back import RemoteBack, open_remote
from penstock.app.workers.channel import Channel
from penstock.app.workers.hub import Hub
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.store.settings import Clock


class Unexpected(Exception):
    """A message that no handler waits for."""


def _unexpected(message: Any) -> None:
    raise Unexpected(repr(message))


@asynccontextmanager
async def worker_of(parent: EmbeddedBack, settings: EmbeddedSettings, clock: Clock) -> AsyncIterator[RemoteBack]:
    """A way to `parent` as a worker has it, until the block ends."""
    ends = socket.socketpair()
    channels = [Channel(end) for end in ends]

    def receive(message: Any) -> None:
        if not back.receive(message):
            _unexpected(message)

    async with trio.open_nursery() as nursery, open_remote(channels[1], settings, clock) as back:
        nursery.start_soon(Hub(channels[0], parent).run, _unexpected)
        nursery.start_soon(channels[1].run, receive)
        try:
            yield back
        finally:
            nursery.cancel_scope.cancel()
            for channel in channels:
                channel.close()


@asynccontextmanager
async def open_shared(settings: EmbeddedSettings, clock: Clock) -> AsyncIterator[EmbeddedBack]:
    """Open a store as a worker sees it. Tests that look inside find the parent's."""
    async with AsyncExitStack() as stack:
        parent = await stack.enter_async_context(open_embedded(settings, clock))
        back: Any = await stack.enter_async_context(worker_of(parent, settings, clock))
        back._store = parent._store
        yield back
