"""An S3P server (our own front over a store) that connections can be lost to, and a back over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.clocks import threads_hold
from support.native import MemoryTables
from support.s3p.front import store_with_basin
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings, open_indexed
from penstock.model.operations import CreateStream
from penstock.model.records import StreamRef
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_s3p.back import S3PBackSettings, S3PNative, open_s3p
from penstock_s3p.front import S3PFront, S3PSettings

STREAM = StreamRef("penstock", "orders")


class Cut(trio.abc.Stream):
    """A connection that is lost after `out` bytes sent or `back` bytes received (None: never).

    The part of a piece up to the limit still reaches the server.
    """

    def __init__(self, stream: trio.abc.Stream, out: int | None, back: int | None) -> None:
        self._stream = stream
        self.out = out
        self.back = back
        self.closed: Callable[[], object] = bool

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self.out is not None:
            taken, self.out = data[: self.out], self.out - len(data)
            if self.out < 0:
                if taken:
                    await self._stream.send_all(taken)
                await self._stream.aclose()
                raise trio.BrokenResourceError("cut")
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._stream.receive_some(max_bytes))
        if self.back is not None:
            self.back -= len(data)
            if self.back < 0:
                await self._stream.aclose()
                raise trio.BrokenResourceError("cut")
        return data

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        self.closed()
        await self._stream.aclose()


class Server:
    """An S3P server over a store.

    `cuts`: limits of the next connections, as (bytes sent, bytes received); `down`: connections are refused.
    """

    def __init__(self, store: EmbeddedBack, nursery: trio.Nursery, settings: S3PSettings | None = None) -> None:
        self.store = store
        self.front = S3PFront(store, settings)
        self.cuts: list[tuple[int | None, int | None]] = []
        self.down = False
        self.dialled = 0
        self.open: set[Cut] = set()
        self._nursery = nursery

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.dialled += 1
        if self.down:
            raise OSError("connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.front.serve, theirs)
        cut = Cut(ours, *(self.cuts.pop(0) if self.cuts else (None, None)))
        cut.closed = partial(self.open.discard, cut)
        self.open.add(cut)
        return cut

    def upstream(self, **options: Any) -> Upstream:
        settings = UpstreamSettings(name="s3p", host="127.0.0.1", port=7500, breaker_failures=1000, **options)
        return Upstream(settings, dial=self.dial)

    @asynccontextmanager
    async def native(self, **options: Any) -> AsyncIterator[S3PNative]:
        async with open_s3p(self.upstream(), S3PBackSettings(**options)) as native:
            yield native

    @asynccontextmanager
    async def back(self, exclusive: bool = False, **options: Any) -> AsyncIterator[IndexedBack]:
        """A whole back with a new index."""
        settings = IndexedSettings(exclusive=exclusive)
        async with (
            self.native(**options) as native,
            open_indexed(native, "s3p", MemoryTables(), settings) as back,
        ):
            yield back


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
async def server(tmp_path: Path, clock: MockClock) -> AsyncIterator[Server]:
    async with store_with_basin(tmp_path) as store, trio.open_nursery() as nursery:
        await store.perform(CreateStream(STREAM))
        yield Server(store, nursery)
        nursery.cancel_scope.cancel()
