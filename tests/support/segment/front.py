"""A segment front over a real store, in this process, and clients for tests that run under trio."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import trio
import trio.testing
from support.backs import DecodedBack
from support.segment.client import bytes_of

from penstock.core.back import AppendSessionWrapper, Back
from penstock.model.operations import Capability
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_pravega.codec import Dialect, SegmentClient, SegmentMessage, append_messages, draft, released
from penstock_pravega.segment.front import SegmentFront

__all__ = ["SEGMENT", "Client", "Connect", "WatchedBack", "bytes_of", "serving"]

SEGMENT = "scope/stream/0.#epoch.0"
M = TypeVar("M", bound=SegmentMessage)


class Client:
    """A client by the codec's own client end, which refuses what does not fit the protocol."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, dialect: Dialect) -> None:
        self.stream = stream
        self.codec = SegmentClient(dialect)
        self._requests = itertools.count(1000)

    def next_id(self) -> int:
        """Return a request id that was not used before."""
        return next(self._requests)

    async def send(self, *events: Any, raw: bytes = b"") -> None:
        """Write requests in one piece, and raw bytes behind them."""
        await self.stream.send_all(b"".join(piece for event in events for piece in self.codec.send(event)) + raw)

    async def reply(self) -> Any:
        """Return the next reply; None if the server closed the connection."""
        while (event := self.codec.next_event()) is NEED_DATA:
            self.codec.receive(await self.stream.receive_some(1 << 18))
        return None if event is PAUSED else event

    async def replies(self, count: int) -> list[Any]:
        """Return the next `count` replies."""
        return [await self.reply() for _ in range(count)]

    async def call(self, request: Any) -> Any:
        """Return the reply to one request."""
        await self.send(request)
        return await self.reply()

    async def expect(self, kind: type[M], request: Any) -> M:
        """Return the reply to one request, which must be of that class."""
        reply = await self.call(request)
        assert isinstance(reply, kind), reply
        return reply

    async def ended(self) -> bool:
        """Return whether the server closes without another byte."""
        return await self.stream.receive_some(65536) == b""

    # ---- what most tests do ----------------------------------------------------------------------------------------

    async def greet(self, high: int = 16) -> None:
        """Hello, both ways."""
        await self.expect(released.Hello, released.Hello(high, 5))

    async def create(self, segment: str = SEGMENT) -> None:
        """Create a segment."""
        await self.expect(released.SegmentCreated, released.CreateSegment(self.next_id(), segment, 0, 0))

    async def writer(self, segment: str = SEGMENT, writer: UUID | None = None) -> UUID:
        """Set up a writer, in either dialect."""
        writer = writer or uuid4()
        if self.codec.dialect is Dialect.DRAFT:
            await self.expect(draft.AppendSetup, draft.SetupAppend(writer, segment))
        else:
            await self.expect(released.AppendSetup, released.SetupAppend(self.next_id(), writer, segment))
        return writer

    async def append(self, writer: UUID, last: int, *bodies: bytes) -> released.DataAppended:
        """Append events and wait for the acknowledgement."""
        await self.send(*append_messages(writer, bodies, last, self.next_id()))
        reply = await self.reply()
        assert isinstance(reply, released.DataAppended), reply
        return reply

    async def read(self, offset: int = 0, size: int = 1 << 20, segment: str = SEGMENT) -> Any:
        """Return the reply to one read."""
        return await self.call(released.ReadSegment(segment, offset, size, "", self.next_id()))

    async def content(self, segment: str = SEGMENT) -> bytes:
        """Return all bytes of a segment."""
        info = await self.expect(released.StreamSegmentInfo, released.GetStreamSegmentInfo(self.next_id(), segment))
        found = bytearray()
        while (at := info.start_offset + len(found)) < info.write_offset:
            reply = await self.read(at, segment=segment)
            assert isinstance(reply, released.SegmentRead) and reply.data, reply
            found += reply.data
        return bytes(found)


Connect = Callable[..., Any]
"""`await connect()`: a released client that has said Hello; `await connect(Dialect.DRAFT)`: a draft one; with
`greet=False` one that has not said anything."""


@asynccontextmanager
async def serving(front: SegmentFront) -> AsyncIterator[Connect]:
    """A front, and a way to connect to it."""
    async with trio.open_nursery() as nursery:

        async def connect(dialect: Dialect = Dialect.RELEASED, *, greet: bool = True) -> Client:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(front.serve, theirs)
            client = Client(ours, dialect)
            if greet and dialect is Dialect.RELEASED:
                await client.greet()
            return client

        yield connect
        nursery.cancel_scope.cancel()


class WatchedBack(DecodedBack):
    """A back whose operations can be counted, held up and made to fail."""

    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.capabilities = back.capabilities
        self.performed: list[Any] = []
        self.appended: list[Any] = []
        self.sessions = 0
        self.under_way = 0
        self.fails: dict[type, Exception] = {}
        """Exceptions that operations of these classes raise instead of being performed, also appends in a session."""
        self.gate: trio.Event | None = None
        """While it is there and not set, acknowledgements of sessions are held back."""

    async def perform(self, operation: Any) -> Any:
        self.performed.append(operation)
        if type(operation) in self.fails:
            raise self.fails[type(operation)]
        self.under_way += 1
        try:
            return await self._inner.perform(operation)
        finally:
            self.under_way -= 1

    @asynccontextmanager
    async def append_session(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async with self._inner.append_session(*args, **options) as session:
            self.sessions += 1
            try:
                yield _WatchedSession(self, session)
            finally:
                self.sessions -= 1


class _WatchedSession(AppendSessionWrapper):
    def __init__(self, watched: WatchedBack, session: Any) -> None:
        super().__init__(session)
        self._watched = watched
        self._receiving = trio.CancelScope()
        self._failed: Exception | None = None

    async def send(self, append: Any) -> None:
        self._watched.appended.append(append)
        self._failed = self._failed or self._watched.fails.get(type(append))
        if self._failed is None:
            await self._inner.send(append)
        else:
            self._receiving.cancel()

    async def receive(self) -> Sequence[Any]:
        if self._watched.gate is not None:
            await self._watched.gate.wait()
        with trio.CancelScope() as self._receiving:
            if self._failed is None:
                found: Sequence[Any] = await self._inner.receive()
                return found
        assert self._failed is not None
        raise self._failed
