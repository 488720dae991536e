"""A segment client over a real socket, either dialect, with our codec in the client role, which refuses invalid
messages.

Messages that break the protocol on purpose are written as bytes with `send_bytes`.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_pravega.codec import (
    Dialect,
    SegmentClient,
    SegmentMessage,
    TableEntry,
    TableKey,
    append_messages,
    draft,
    encode,
    join_events,
    released,
)
from penstock_pravega.codec.layout import HEADER_BYTES

Address = tuple[str, int]
M = TypeVar("M", bound=SegmentMessage)
UNKNOWN_WRITER = -(1 << 63)
WHOLE = 1 << 20
"""Number of bytes that a read asks for."""


def bytes_of(*messages: SegmentMessage, **options: Any) -> bytes:
    """Return the bytes of messages, one after the other."""
    return b"".join(piece for message in messages for piece in encode(message, **options))


class SegmentSocket:
    """One connection, and the requests that both dialects have."""

    dialect = Dialect.RELEASED

    def __init__(self, address: Address, timeout: float = 20, *, source: str = "") -> None:
        """`source`: the address that it connects from, where that matters."""
        self.socket = socket.create_connection(address, timeout=timeout, source_address=(source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.codec = SegmentClient(self.dialect)
        self._requests = itertools.count(1000)

    # ---- messages ------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return a request id that was not used before."""
        return next(self._requests)

    def send(self, *events: Any) -> None:
        """Say messages in one piece."""
        self.socket.sendall(b"".join(piece for event in events for piece in self.codec.send(event)))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes past our codec."""
        self.socket.sendall(data)

    def reply(self, timeout: float | None = None) -> Any:
        """Return the next reply. Raises EOFError if the server closed the connection, and TimeoutError."""
        if timeout is not None:
            self.socket.settimeout(timeout)
        while (event := self.codec.next_event()) is NEED_DATA:
            self.codec.receive(self.socket.recv(1 << 20))
        if event is PAUSED:
            raise EOFError("the server closed the connection")
        return event

    def expect(self, kind: type[M], *events: Any) -> M:
        """Say messages; the next reply, which must be of that class."""
        self.send(*events)
        reply = self.reply()
        assert isinstance(reply, kind), reply
        return reply

    def ended(self, timeout: float = 5) -> bool:
        """Return whether the server closes without another byte."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(65536) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- segments ------------------------------------------------------------------------------------------------

    def create(self, segment: str) -> str:
        """Create a segment and return its name."""
        reply = self.expect(released.SegmentCreated, released.CreateSegment(self.next_id(), segment, 0, 0))
        assert reply.segment == segment
        return segment

    def info(self, segment: str) -> released.StreamSegmentInfo:
        """Return the server's information about an existing segment."""
        return self.expect(released.StreamSegmentInfo, released.GetStreamSegmentInfo(self.next_id(), segment))

    def seal(self, segment: str) -> None:
        """Seal a segment."""
        self.expect(released.SegmentSealed, released.SealSegment(self.next_id(), segment))

    def truncate(self, segment: str, offset: int) -> None:
        """Forget the bytes before an offset."""
        self.expect(released.SegmentTruncated, released.TruncateSegment(self.next_id(), segment, offset))

    def delete(self, segment: str) -> None:
        """Delete a segment and its bytes."""
        self.expect(released.SegmentDeleted, released.DeleteSegment(self.next_id(), segment))

    def read(self, segment: str, offset: int, size: int = WHOLE) -> Any:
        """Return the reply to one read: a SegmentRead of the dialect, or an error."""
        raise NotImplementedError

    def read_bytes(self, segment: str, offset: int, size: int) -> bytes:
        """Return `size` bytes from an offset on, in as many reads as it takes."""
        found = bytearray()
        while len(found) < size:
            reply = self.read(segment, offset + len(found), size - len(found))
            assert isinstance(reply, released.SegmentRead | draft.SegmentRead), reply
            assert reply.offset == offset + len(found)
            assert reply.data, "an empty answer"
            found += reply.data
        assert len(found) == size, "more than was asked for"
        return bytes(found)

    def content(self, segment: str) -> bytes:
        """Return all bytes of a segment."""
        info = self.info(segment)
        return self.read_bytes(segment, info.start_offset, info.write_offset - info.start_offset)


class ReleasedSocket(SegmentSocket):
    """A connection in the released dialect. `version` is the highest that it announces."""

    def __init__(self, address: Address, timeout: float = 20, version: int = 16) -> None:
        super().__init__(address, timeout)
        try:
            self.hello = self.expect(released.Hello, released.Hello(version, 5))
        except BaseException:
            self.socket.close()
            raise

    # ---- appends -------------------------------------------------------------------------------------------------

    def setup(self, segment: str, writer: UUID) -> int:
        """Set up a writer and return the number of its last stored event."""
        request = self.next_id()
        reply = self.expect(released.AppendSetup, released.SetupAppend(request, writer, segment))
        assert (reply.request_id, reply.segment, reply.writer_id) == (request, segment, writer)
        return reply.last_event_number

    def writer(self, segment: str) -> UUID:
        """Set up a new writer and return its id."""
        writer = uuid4()
        assert self.setup(segment, writer) == UNKNOWN_WRITER
        return writer

    def append(self, writer: UUID, bodies: Sequence[bytes], last: int, **form: Any) -> released.DataAppended:
        """Append events and wait for the acknowledgement; `form` as in `append_messages`."""
        messages = append_messages(writer, bodies, last, self.next_id(), **form)
        return self.expect(released.DataAppended, *messages)

    def append_raw(self, writer: UUID, data: bytes, last: int) -> released.DataAppended:
        """Append bytes that are no events, as byte streams do."""
        request = self.next_id()
        return self.expect(released.DataAppended, released.AppendBlockEnd(writer, len(data), data, 1, last, request))

    def new(self, segment: str, *bodies: bytes) -> str:
        """Create a segment, append these events in one append, and return its name."""
        self.create(segment)
        if bodies:
            self.append(self.writer(segment), bodies, len(bodies))
        return segment

    def read(self, segment: str, offset: int, size: int = WHOLE) -> Any:
        self.send(released.ReadSegment(segment, offset, size, "", self.next_id()))
        return self.reply()

    # ---- tables --------------------------------------------------------------------------------------------------

    def create_table(self, table: str) -> str:
        """Create a table and return its name."""
        self.expect(released.SegmentCreated, released.CreateTableSegment(self.next_id(), table))
        return table

    def put(self, table: str, *entries: tuple[bytes, bytes, int]) -> Any:
        """Update entries, given as key, value, expected version: the new versions, or the error."""
        found = tuple(TableEntry(TableKey(key, version), value) for key, value, version in entries)
        self.send(released.UpdateTableEntries(self.next_id(), table, "", found))
        reply = self.reply()
        return reply.versions if isinstance(reply, released.TableEntriesUpdated) else reply

    def get(self, table: str, *keys: bytes) -> list[tuple[bytes, bytes, int]]:
        """Entries as key, value, version."""
        message = released.ReadTable(self.next_id(), table, "", tuple(TableKey(key) for key in keys))
        return rows(self.expect(released.TableRead, message).entries)


def rows(entries: Sequence[TableEntry]) -> list[tuple[bytes, bytes, int]]:
    """Entries as key, value, version."""
    return [(entry.key.key, entry.value, entry.key.version) for entry in entries]


class DraftSocket(SegmentSocket):
    """A connection in the draft dialect."""

    dialect = Dialect.DRAFT

    def setup(self, segment: str, connection: UUID) -> int:
        """Set up a connection id and return the connection offset up to which everything is stored."""
        reply = self.expect(draft.AppendSetup, draft.SetupAppend(connection, segment))
        assert (reply.segment, reply.connection_id) == (segment, connection)
        return reply.connection_offset_ack_level

    def block(self, connection: UUID, offset: int, bodies: Sequence[bytes]) -> list[SegmentMessage]:
        """Return the messages of a block of whole events, announced with its true length."""
        size = len(join_events(bodies))
        events = [draft.Event(body) for body in bodies]
        begin = draft.BeginAppendBlock(connection, offset, size)
        return [begin, *events, draft.EndAppendBlock(connection, offset + size, size)]

    def append(self, connection: UUID, offset: int, bodies: Sequence[bytes]) -> int:
        """Append a block and wait until all of it is acknowledged; the offset after it."""
        self.send(*self.block(connection, offset, bodies))
        return self.acknowledged(connection, offset + len(join_events(bodies)))

    def acknowledged(self, connection: UUID, offset: int) -> int:
        """Wait until a connection offset is acknowledged; acknowledgements may come in steps."""
        level = -1
        while level < offset:
            reply = self.reply()
            assert isinstance(reply, draft.DataAppended), reply
            assert reply.connection_id == connection
            assert level < reply.connection_offset_ack_level <= offset
            level = reply.connection_offset_ack_level
        return level

    def read(self, segment: str, offset: int, size: int = WHOLE) -> Any:
        self.send(draft.ReadSegment(segment, offset, size))
        return self.reply()


def header(type_id: int, length: int) -> bytes:
    """Return a handwritten message header."""
    return type_id.to_bytes(4, "big", signed=True) + (length & 0xFFFFFFFF).to_bytes(4, "big")


assert len(header(0, 0)) == HEADER_BYTES
