"""The interface of a server without sequence numbers, in its own terms.

`penstock.backends.sequence_numbering.IndexedBack` makes a whole `Back` of a native one, with a position index beside
it: it numbers the records. A native knows nothing of sequence numbers; it gets positions in the terms of all protocols
(`Mark`) and uses the coordinate that is its own. All methods raise OperationFailed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import msgspec

from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.model.operations import Append, Capability, ListStreams, Page
from penstock.model.records import NO_HEADERS, Headers, StreamRef
from penstock.model.streams import StreamInfo

__all__ = ["Bounds", "Native", "NativeAck", "NativeAppendSession", "Scanned"]


class Bounds(msgspec.Struct, frozen=True):
    """The ends of a stream as far as its server reports them: offsets as in `Scanned`, None if it has none.

    `first_offset`: the first byte that is kept; it may lie inside an event. `sealed`: nothing will ever be appended.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    sealed: bool = False


class Scanned(msgspec.Struct, frozen=True):
    """Consecutive records, maybe none, beginning with the first one at or after the requested mark.

    `timestamps` and `places`: the halves of the records' ids; None if the protocol has no timestamps,
    and then the index stamps them. `offsets`: where each record begins, in bytes or in the native's own units, and
    then the end of the last (one more than there are records); None if the protocol has no offsets. Bodies and
    headers are unwrapped from envelopes if the back's policy says so. `at_tail`: no more records exist at the
    moment. `few`: far fewer than requested, so the tail must be near; for protocols that do not report it. `end`:
    there will never be more (sealed). `inner`: indexes of records that no scan can begin at: all pieces but the
    first of something larger (an event); an index marks none of them. All pieces are in one `Scanned`,
    whatever its bounds.
    """

    bodies: list[bytes]
    headers: Mapping[int, Headers] = msgspec.field(default_factory=lambda: NO_HEADERS)
    timestamps: list[int] | None = None
    places: list[int] | None = None
    offsets: list[int] | None = None
    at_tail: bool = False
    end: bool = False
    inner: frozenset[int] = frozenset()
    few: bool = False


class NativeAck(msgspec.Struct, frozen=True):
    """The acknowledgement of one durable append of `count` records.

    `last`: the id of its last record, as (ms, seq); the other records have the ids directly before it. `end_offset` and
    `length`: the end and the number of its bytes. Each is None if the protocol has no such thing. `parts`: the appends
    that it was split into, if records of others may lie between; then only they give the positions of its records.
    """

    count: int
    last: tuple[int, int] | None = None
    end_offset: int | None = None
    length: int | None = None
    parts: tuple[NativeAck, ...] = ()


class NativeAppendSession(ABC):
    """Pipelined appends, acknowledged in order, like `penstock.core.back.AppendSession`, in native terms."""

    @abstractmethod
    async def send(self, append: Append) -> None:
        """Send the next batch. Headers are enveloped or dropped as the native's policy says, or the batch is refused
        with NOT_REPRESENTABLE; the session goes on. A `send` that is cancelled has no effect."""

    @abstractmethod
    def close(self) -> None:
        """Announce the end of sending."""

    @abstractmethod
    async def receive(self) -> list[NativeAck]:
        """Return acknowledgements in order, at least one; none at the end. Raises as `AppendSession.receive`."""


class Native(ABC):
    """A client of one server."""

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of the server: HEADERS and EMPTY_BODIES if its policy envelopes them, MATCH_SEQ_NUM if it
        has conditional appends, and so on."""

    @property
    def has_byte_offsets(self) -> bool:
        """True if the offsets of this server are those of `penstock.model.byte_operations`, which clients may use.
        Others have a meaning for the native alone."""
        return False

    @property
    @abstractmethod
    def delivery(self) -> Delivery:
        """The guarantee for appends whose acknowledgement was lost."""

    @abstractmethod
    async def bounds(self, stream: StreamRef) -> Bounds:
        """Return the ends of a stream. Raises STREAM_NOT_FOUND if the protocol can tell."""

    @abstractmethod
    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """Return records from `start` on, about `max_bytes` at most (one record always fits); if there are none, wait
        up to `wait` seconds for the first. Raises OFFSET_TRUNCATED (details: offset) if `start` has been truncated."""

    @abstractmethod
    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        """Begin to append."""

    @abstractmethod
    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        """Append if the stream ends at `at`, otherwise raise OFFSET_MISMATCH. Raises NOT_IMPLEMENTED if the protocol
        has no conditional appends."""

    def comparable(self, stream: StreamRef, body: bytes) -> bytes:  # noqa: ARG002
        """Return a form of a body in which it can be compared before and after the server has stored it: the body, for
        a server that keeps every byte."""
        return body

    @abstractmethod
    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        """Remove the records before this one."""

    @abstractmethod
    async def create(self, stream: StreamRef) -> bool:
        """Create a stream. Returns False if it existed."""

    @abstractmethod
    async def delete(self, stream: StreamRef) -> None:
        """Delete a stream. Raises STREAM_NOT_FOUND."""

    @abstractmethod
    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """Return streams by name. Raises NOT_IMPLEMENTED if the protocol cannot list."""
