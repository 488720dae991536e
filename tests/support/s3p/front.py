"""An S3P front over a real store, in this process, for tests that run under trio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing
from msgspec.structs import replace
from support.backs import DecodedBack

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.operations import Appended, Capability, CreateBasin
from penstock.model.streams import BasinConfig
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_s3p.codec import Command, ErrorReply, Reply, S3PClient
from penstock_s3p.front import S3PFront, S3PSettings

__all__ = ["BASIN", "Client", "Connect", "WatchedBack", "error_code", "listening", "serving", "store_with_basin"]

BASIN = "penstock"


@asynccontextmanager
async def store_with_basin(directory: Path) -> AsyncIterator[EmbeddedBack]:
    """A store with the default basin, which creates streams unasked wherever a protocol lets it."""
    async with open_embedded(EmbeddedSettings(directory=directory)) as back:
        config = BasinConfig(create_stream_on_append=True, create_stream_on_read=True)
        await back.perform(CreateBasin(BASIN, config))
        yield back


@asynccontextmanager
async def listening(directory: Path, settings: S3PSettings | None = None) -> AsyncIterator[int]:
    """A listener on loopback over a store of its own; gives its port."""
    async with store_with_basin(directory) as back, trio.open_nursery() as nursery:
        front = S3PFront(back, settings)
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(trio.serve_tcp, front.serve, 0, host="127.0.0.1")
        )
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


class Client:
    """A client by the codec's own client end, which refuses replies that do not fit their commands."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.codec = S3PClient()

    async def send(self, *commands: Command, raw: bytes = b"") -> None:
        """Write commands in one piece, and raw bytes behind them."""
        await self.stream.send_all(b"".join(piece for one in commands for piece in self.codec.send(one)) + raw)

    async def reply(self) -> Reply | None:
        """Return the next reply; None if the server closed the connection."""
        while (event := self.codec.next_event()) is NEED_DATA:
            self.codec.receive(await self.stream.receive_some(65536))
        return None if event is PAUSED else event  # type: ignore[return-value]

    async def call(self, *commands: Command) -> list[Reply | None]:
        """Return the replies to pipelined commands."""
        await self.send(*commands)
        return [await self.reply() for _ in commands]

    async def ended(self) -> bool:
        """Return whether the server closes without another byte."""
        return await self.stream.receive_some(65536) == b""


Connect = Callable[[], Client]


@asynccontextmanager
async def serving(front: S3PFront) -> AsyncIterator[Connect]:
    """A front, and a way to connect to it."""
    async with trio.open_nursery() as nursery:

        def connect() -> Client:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(front.serve, theirs)
            return Client(ours)

        yield connect
        nursery.cancel_scope.cancel()


def error_code(reply: Reply | None) -> str:
    assert isinstance(reply, ErrorReply), reply
    return reply.code


class WatchedBack(DecodedBack):
    """A back, and how many reads are under way; `fails` is raised by the next operation instead of doing it.

    `identifies` False: acknowledgements have no identifiers, as after a lost server.
    """

    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.reading = 0
        self.fails: Exception | None = None
        self.identifies = True
        self.capabilities = back.capabilities

    async def perform(self, operation: Any) -> Any:
        if self.fails is not None:
            raise self.fails
        result = await self._inner.perform(operation)
        return result if self.identifies or not isinstance(result, Appended) else replace(result, last_id=None)

    @asynccontextmanager
    async def read_session(self, read: Any) -> AsyncIterator[Any]:
        async with self._inner.read_session(read) as session:
            self.reading += 1
            try:
                yield session
            finally:
                self.reading -= 1
