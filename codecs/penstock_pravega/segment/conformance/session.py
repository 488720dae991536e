"""The connection and the segments of one conformance case.

Requests are encoded message by message, without the codec's order of messages, since cases break it on purpose; replies
are decoded by the codec's client end, which refuses what it cannot read.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import trio

from penstock.core.config_fields import DEFAULT_BASIN
from penstock.model.failures import RemoteProtocolError
from penstock.model.limits import MIB
from penstock.protocols.conformance import (
    Deviation,
    NotApplicable,
    TestedServer,
    closed_in_time,
    require,
    require_equal,
)
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_pravega.codec import Dialect, SegmentClient, SegmentMessage, TableEntry, append_messages, encode
from penstock_pravega.codec.released import (
    AppendSetup,
    CreateSegment,
    CreateTableSegment,
    DataAppended,
    DeleteSegment,
    DeleteTableSegment,
    GetStreamSegmentInfo,
    Hello,
    OperationUnsupported,
    ReadSegment,
    SegmentCreated,
    SegmentRead,
    SetupAppend,
    StreamSegmentInfo,
    TableEntriesUpdated,
    UpdateTableEntries,
)

__all__ = [
    "NO_EVENT",
    "VERSIONS",
    "SegmentTestLine",
    "SegmentTestSession",
    "bytes_of",
    "resized",
    "segment_session",
]

VERSIONS: Final = Hello(16, 5)
NO_EVENT: Final = -(1 << 63)
"""The event number of an unknown writer, the value of an attribute that is not set, and any version of a key."""
_LENGTH_OFFSET: Final = 4
"""Offset of the length in a message."""
_READ_BYTES: Final = 1 << 16

M = TypeVar("M", bound=SegmentMessage)


def bytes_of(*messages: SegmentMessage) -> bytes:
    """Return the bytes of messages, one after the other."""
    return b"".join(piece for message in messages for piece in encode(message))


def resized(message: SegmentMessage, more: int) -> bytes:
    """Return a message with bytes behind its last field, or without its last bytes if `more` is negative."""
    data = bytes_of(message)
    data = data + bytes(more) if more > 0 else data[:more]
    return data[:_LENGTH_OFFSET] + (len(data) - 8).to_bytes(4, "big") + data[8:]


class SegmentTestLine:
    """One connection to the server, in either dialect."""

    def __init__(self, stream: trio.abc.Stream, dialect: Dialect, patience: float) -> None:
        """`patience`: seconds to wait for an answer."""
        self._stream = stream
        self._patience = patience
        self._codec = SegmentClient(dialect)
        self._requests = itertools.count(1000)

    @property
    def request(self) -> int:
        """A request id that was not used before on this connection."""
        return next(self._requests)

    async def begin(self, request: SegmentMessage) -> None:
        """Send a request whose answer the codec takes only if it knows the request."""
        await self._stream.send_all(b"".join(self._codec.send(request)))

    async def greet(self, hello: Hello = VERSIONS) -> Hello:
        """Exchange Hello."""
        await self.begin(hello)
        return await self.reply(Hello)

    async def send(self, *messages: SegmentMessage | bytes) -> None:
        """Send messages, or bytes as they are, in one write."""
        pieces = [message if isinstance(message, bytes) else bytes_of(message) for message in messages]
        await self._stream.send_all(b"".join(pieces))

    async def next(self) -> Any:
        """Return the next reply, or None at the end of the connection. Raises Deviation if neither comes."""
        with trio.move_on_after(self._patience):
            while (event := self._codec.next_event()) is NEED_DATA:
                try:
                    self._codec.receive(await self._stream.receive_some(_READ_BYTES))
                except trio.BrokenResourceError:
                    self._codec.receive(b"")
            return None if event is PAUSED else event
        raise Deviation(f"expected an answer within {self._patience:g} s, got none")

    async def reply(self, kind: type[M]) -> M:
        """Return the next reply, which must be of this kind. Raises NotApplicable if the server lacks the request."""
        reply = await self.next()
        if isinstance(reply, OperationUnsupported):
            raise NotApplicable(f"the server does not support {reply.operation}")
        if not isinstance(reply, kind):
            raise Deviation(f"expected {kind.__name__}, got {'the end of the connection' if reply is None else reply}")
        return reply

    async def ask(self, kind: type[M], *messages: SegmentMessage) -> M:
        """Send messages and return the next reply, which must be of this kind."""
        await self.send(*messages)
        return await self.reply(kind)

    async def ended(self) -> None:
        """Expect the end of the connection, without another reply."""
        require_equal(await self.next(), None)

    # ---- segments ----------------------------------------------------------------------------------------------------

    async def info(self, segment: str) -> StreamSegmentInfo:
        """Return what the server says about a segment that exists."""
        return await self.ask(StreamSegmentInfo, GetStreamSegmentInfo(self.request, segment))

    async def writer(self, segment: str) -> UUID:
        """Set up a new writer."""
        writer = uuid4()
        reply = await self.ask(AppendSetup, SetupAppend(self.request, writer, segment))
        require_equal(reply.last_event_number, NO_EVENT)
        return writer

    async def append(self, writer: UUID, last: int, *bodies: bytes, **form: Any) -> DataAppended:
        """Append events and await the acknowledgement; `form` as in `append_messages`."""
        return await self.ask(DataAppended, *append_messages(writer, bodies, last, self.request, **form))

    async def read(self, segment: str, offset: int, size: int = MIB) -> SegmentRead:
        """Read once."""
        reply = await self.ask(SegmentRead, ReadSegment(segment, offset, size, "", self.request))
        require_equal(reply.offset, offset)
        return reply

    async def holds(self, segment: str, content: bytes, start: int = 0) -> None:
        """Expect these bytes, and no more, from an offset on."""
        received = bytearray()
        while len(received) < len(content):
            reply = await self.read(segment, start + len(received))
            require(bool(reply.data), f"{len(content) - len(received)} more bytes", reply)
            received += reply.data
        require(bytes(received) == content, f"{content!r:.200}", bytes(received))
        require_equal((await self.info(segment)).write_offset, start + len(content))


class SegmentTestSession:
    """A case's connections and segments."""

    def __init__(self, server: TestedServer, dialect: Dialect) -> None:
        self._server = server
        self._dialect = dialect
        self._segments: list[str] = []
        self._tables: list[str] = []
        self._streams: list[trio.abc.Stream] = []

    async def raw(self) -> SegmentTestLine:
        """Open a connection, without Hello."""
        self._streams.append(await self._server.connect())
        return SegmentTestLine(self._streams[-1], self._dialect, self._server.patience)

    async def line(self) -> SegmentTestLine:
        """Open a connection, and exchange Hello in the released dialect."""
        line = await self.raw()
        if self._dialect is Dialect.RELEASED:
            await line.greet()
        return line

    def name(self) -> str:
        """Return a new name of a segment, deleted at the end of the case."""
        self._segments.append(f"{self._server.space or DEFAULT_BASIN}/{self._server.new_name()}/0.#epoch.0")
        return self._segments[-1]

    async def segment(self, *bodies: bytes) -> tuple[SegmentTestLine, str]:
        """Create a segment with these events."""
        line, segment = await self.line(), self.name()
        await line.ask(SegmentCreated, CreateSegment(line.request, segment, 0, 0))
        if bodies:
            await line.append(await line.writer(segment), len(bodies), *bodies)
        return line, segment

    async def table(self, *entries: TableEntry) -> tuple[SegmentTestLine, str, tuple[int, ...]]:
        """Create a table with these entries. Return a connection, the table's name, and the versions."""
        line = await self.line()
        self._tables.append(f"{self._server.space or DEFAULT_BASIN}/{self._server.new_name()}_kvtable/0.#epoch.0")
        table = self._tables[-1]
        await line.ask(SegmentCreated, CreateTableSegment(line.request, table))
        if not entries:
            return line, table, ()
        updated = await line.ask(TableEntriesUpdated, UpdateTableEntries(line.request, table, "", entries))
        return line, table, tuple(updated.versions)

    async def close(self) -> None:
        """Delete the segments and tables, and close the connections."""
        try:
            with suppress(OSError, trio.BrokenResourceError, Deviation, NotApplicable, RemoteProtocolError):
                cleaner = await self.line()
                for segment in self._segments:
                    await cleaner.ask(SegmentMessage, DeleteSegment(cleaner.request, segment))
                for table in self._tables:
                    await cleaner.ask(SegmentMessage, DeleteTableSegment(cleaner.request, table, False))
        finally:
            for stream in self._streams:
                await trio.aclose_forcefully(stream)


def segment_session(server: TestedServer, dialect: Dialect) -> AbstractAsyncContextManager[SegmentTestSession]:
    """Open the session of a case."""
    return closed_in_time(SegmentTestSession(server, dialect), server.patience)
