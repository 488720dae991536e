"""A back of segment stores in front of our own segment front, in this process, and what can go wrong between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from msgspec.structs import replace
from support.backs import DecodedBack

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append
from penstock.model.records import StreamRef
from penstock.net.http.serving import serve_http
from penstock.net.upstream import UpstreamSettings
from penstock_pravega.codec import join_events
from penstock_pravega.controller.front import ControllerFront
from penstock_pravega.segment.back import SegmentBack, SegmentBackSettings, open_segment
from penstock_pravega.segment.back.direct import SegmentDirect
from penstock_pravega.segment.front import SegmentFront

__all__ = ["CONTROLLER", "EVENTS", "STORE", "STREAM", "BytesElsewhere", "Wires", "append_of", "opened"]

STORE = UpstreamSettings(name="store", host="127.0.0.1", port=6000, request_seconds=60)
"""Patient, since tests' time passes when nothing happens, and disks take real time."""
CONTROLLER = replace(STORE, port=9090)
STREAM = StreamRef("scope-of-streams", "stream")
EVENTS = [b"one", b"two two", b"3" * 300]


def append_of(*bodies: bytes, stream: StreamRef = STREAM, **more: Any) -> Append:
    """A batch."""
    return Append(stream, list(bodies), len(join_events(bodies)), **more)


class _Cut(trio.abc.HalfCloseableStream):
    """A connection that breaks after a number of bytes in one direction: later ones never arrive."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, wires: Wires) -> None:
        self._stream = stream
        self._wires = wires

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        room = self._wires.room("out", len(data))
        await self._stream.send_all(bytes(data)[:room])
        if room < len(data):
            await self._break()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        self._check()
        data = await self._stream.receive_some(max_bytes)
        if self._stream in self._wires.muted:
            await trio.sleep_forever()
        room = self._wires.room("in", len(data))
        if room < len(data):
            await self._break()
        return data

    def _check(self) -> None:
        if self._stream in self._wires.broken:
            raise trio.BrokenResourceError

    async def _break(self) -> None:
        self._wires.broken.add(self._stream)
        await trio.aclose_forcefully(self._stream)
        raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        if self._stream in self._wires.open:
            self._wires.open.remove(self._stream)
        await self._stream.aclose()


class Wires:
    """The network, the `real` one or in memory: the listeners at its ports, and cuts of its connections.

    `cuts`: a direction and a number of bytes each. A connection takes the next one and breaks after that many bytes in
    that direction; when there are no more, nothing breaks.
    """

    def __init__(self, nursery: trio.Nursery, *, real: bool = False) -> None:
        self._nursery = nursery
        self._real = real
        self.listeners: dict[int, Callable[[Any], Any]] = {}
        self.cuts: list[tuple[str, int]] = []
        self.dialled: list[int] = []
        self.broken: set[Any] = set()
        self.muted: set[Any] = set()
        """Connections on which nothing is heard any more."""
        self.open: list[Any] = []
        """Connections that were not closed by this end."""

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """See `penstock.net.upstream.Dial`."""
        await trio.lowlevel.checkpoint()
        self.dialled.append(port)
        if self._real:
            stream = await trio.open_tcp_stream(host, port)
            self.open.append(stream)
            return _Cut(stream, self)
        if port not in self.listeners:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.listeners[port], theirs)
        self.open.append(ours)
        return _Cut(ours, self)

    def room(self, direction: str, size: int) -> int:
        """Return how many of `size` bytes get through before the next cut."""
        if not self.cuts or self.cuts[0][0] != direction:
            return size
        left = self.cuts[0][1]
        if size <= left:
            self.cuts[0] = (direction, left - size)
            return size
        del self.cuts[0]
        return left

    async def cut_all(self) -> None:
        """Break all connections there are."""
        for stream in self.open:
            self.broken.add(stream)
            await trio.aclose_forcefully(stream)
        self.open.clear()


class BytesElsewhere(DecodedBack):
    """A segment store's own operations are asked of that, the others of the store that it has them in, too."""

    def __init__(self, back: Back, direct: SegmentDirect) -> None:
        super().__init__(back)
        self._direct = direct

    async def perform(self, operation: Any) -> Any:
        try:
            return await self._direct.perform(operation)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
                raise
        return await self._inner.perform(operation)

    @asynccontextmanager
    async def append_session(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async with self._direct.append_session(*args, **options) as session:
            yield session


@asynccontextmanager
async def opened(
    front: SegmentFront | Callable[[Any], Any] | None = None, managed_by: ControllerFront | None = None, **settings: Any
) -> AsyncIterator[tuple[SegmentBack, Wires]]:
    """A back, and the wires between it and the front at `STORE` and the controller; without both, the real network."""
    async with trio.open_nursery() as nursery:
        wires = Wires(nursery, real=front is None and managed_by is None)
        if front is not None:
            wires.listeners[STORE.port] = front.serve if isinstance(front, SegmentFront) else front
        if managed_by is not None:
            wires.listeners[CONTROLLER.port] = lambda stream: serve_http(stream, managed_by.handle)
        async with open_segment(SegmentBackSettings(**{"store": STORE, **settings}), wires.dial) as back:
            yield back, wires
        nursery.cancel_scope.cancel()
