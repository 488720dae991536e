"""The back: a server of Numbered Lines, whose numbers are the offsets of its records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from numbered_lines.codec import Line, LinesCodec
from numbered_lines.config import LinesBack
from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.core.native import Bounds, Native, NativeAck, NativeAppendSession, Scanned
from penstock.model.failures import FailureCode, RemoteProtocolError, fail
from penstock.model.operations import Append, Capability, ListStreams, Page
from penstock.model.records import StreamRef
from penstock.model.streams import StreamInfo
from penstock.net.upstream import Upstream
from penstock.protocols.back_opening import BackContext
from penstock.protocols.upstreams import upstream_settings
from penstock.routing.target import Target
from penstock.wire.codec import PAUSED, Pull, Role

__all__ = ["LinesNative", "open_back"]


class _Connection:
    """One connection to a server."""

    def __init__(self, stream: trio.abc.Stream, server: Upstream, dialect: str) -> None:
        self.stream = stream
        self._server = server
        self._codec = LinesCodec(Role.CLIENT, dialect)

    async def say(self, *line: bytes) -> None:
        await self.stream.send_all(b"".join(self._codec.send(line)))

    async def hear(self) -> Line:
        """Return the next line. Raises OperationFailed if it is a refusal, or none comes."""
        try:
            while isinstance(event := self._codec.next_event(), Pull):
                with trio.fail_after(self._server.settings.request_seconds):
                    data = await self.stream.receive_some()
                if event is PAUSED or not data:
                    raise fail(FailureCode.UNAVAILABLE, f"{self._server.settings.where}: the connection ended")
                self._codec.receive(data)
        except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise fail(FailureCode.UNAVAILABLE, f"{self._server.settings.where}: {error}") from None
        if event[0] == b"NO":
            missing = event[1].startswith(b"stream_not_found")
            code = FailureCode.STREAM_NOT_FOUND if missing else FailureCode.UPSTREAM_FAULT
            raise fail(code, f"{self._server.settings.where}: {event[1].decode(errors='replace')}")
        return event


class _Appends(NativeAppendSession):
    def __init__(self, connection: _Connection, name: bytes) -> None:
        self._connection = connection
        self._name = name
        self._sent, self._receive = trio.open_memory_channel[int](1000)

    async def send(self, append: Append) -> None:
        if append.headers or any(b"\n" in body for body in append.bodies):
            raise fail(FailureCode.NOT_REPRESENTABLE, "a line has neither headers nor a line feed")
        for body in append.bodies:
            await self._connection.say(b"PUT", self._name, body)
        await self._sent.send(len(append.bodies))

    def close(self) -> None:
        self._sent.close()

    async def receive(self) -> list[NativeAck]:
        try:
            count = await self._receive.receive()
        except trio.EndOfChannel:
            return []
        last = 0
        for _ in range(count):
            last = int((await self._connection.hear())[1])
        return [NativeAck(count, end_offset=last + 1, length=count)]


class LinesNative(Native):
    """A server, whose numbers are the offsets of its records."""

    capabilities = frozenset({Capability.EMPTY_BODIES, Capability.FOLLOW})
    delivery = Delivery.REFUSE

    def __init__(self, server: Upstream, table: LinesBack) -> None:
        self._server = server
        self._dialect = table.dialect

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Connection]:
        async with await self._server.connect() as stream:
            yield _Connection(stream, self._server, self._dialect)

    async def bounds(self, stream: StreamRef) -> Bounds:
        async with self._connected() as connection:
            await connection.say(b"GET", stream.stream.encode(), b"%d" % 10**17, b"1")
            return Bounds(0, int((await connection.hear())[1]))

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        deadline = trio.current_time() + wait
        while True:
            bodies: list[bytes] = []
            async with self._connected() as connection:
                await connection.say(b"GET", stream.stream.encode(), b"%d" % start.offset, b"%d" % max_records)
                while (line := await connection.hear())[0] == b"ROW":
                    bodies.append(line[2])
            if bodies or trio.current_time() + 0.2 > deadline:
                offsets = list(range(start.offset, start.offset + len(bodies) + 1))
                return Scanned(bodies, offsets=offsets, at_tail=len(bodies) < max_records)
            await trio.sleep(0.2)

    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        return self._appending(stream)

    @asynccontextmanager
    async def _appending(self, stream: StreamRef) -> AsyncIterator[NativeAppendSession]:
        async with self._connected() as connection:
            yield _Appends(connection, stream.stream.encode())

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        raise fail(FailureCode.NOT_IMPLEMENTED, "lines have no conditional appends")

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        raise fail(FailureCode.NOT_IMPLEMENTED, "lines stay")

    async def create(self, stream: StreamRef) -> bool:
        return True  # the first PUT creates it

    async def delete(self, stream: StreamRef) -> None:
        raise fail(FailureCode.NOT_IMPLEMENTED, "lines stay")

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        raise fail(FailureCode.NOT_IMPLEMENTED, "there is no list of streams")


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: LinesBack) -> AsyncIterator[Target]:
    """Open the back until the block ends."""
    server = Upstream(upstream_settings(name, table, table.address, "lines"), watch=context.watch)
    async with (
        context.numbered(LinesNative(server, table), name, table) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "lines", back, "refuse", breaker=server.breaker)
