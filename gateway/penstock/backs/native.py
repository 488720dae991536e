"""What a server of a protocol without sequence numbers can do: S3P and segment stores, each in its own terms.

`penstock.backs.indexed.IndexedBack` makes a whole `Back` of a native one, with a position index beside it: it numbers
the records. A native knows nothing of sequence numbers; it is told where to read from in the terms of all protocols
(`Mark`) and uses the one that is its own. All methods raise OperationFailed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from penstock.backs.delivery import Delivery
from penstock.positions.marks import Mark
from penstock_codecs.model import NO_HEADERS, Headers, StreamRef
from penstock_codecs.operations import Append, Capability, ListStreams, Page
from penstock_codecs.streams import StreamInfo

__all__ = ["Bounds", "Native", "NativeAck", "NativeAppendSession", "Scanned"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of a stream as far as its server tells: byte offsets, None where the protocol has none (S3P).

    `first_offset`: the first byte that is kept; it may lie inside an event. `sealed`: nothing will ever be appended.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Scanned:
    """Consecutive records, maybe none, beginning with the first one at or after the mark that was asked for.

    `timestamps` and `places`: the halves of the records' S3P identifiers; None where the protocol has no timestamps,
    and then the index stamps them. `offsets`: where the bytes of each record begin, and at last where all end (one more
    than there are records); None where the protocol has no offsets. Bodies and headers are unwrapped from envelopes
    where the back's policy says so.
    `at_tail`: there was nothing more just now. `few`: far less than was asked for, so that the tail must be near, where
    the protocol does not tell. `end`: there will never be more (sealed). `inner`: records that no scan
    can begin at, by index: pieces of something larger (a segment's event), after its first; an index marks none of
    them. All pieces are in one `Scanned`, whatever its bounds.
    """

    bodies: list[bytes]
    headers: Mapping[int, Headers] = field(default_factory=lambda: NO_HEADERS)
    timestamps: list[int] | None = None
    places: list[int] | None = None
    offsets: list[int] | None = None
    at_tail: bool = False
    end: bool = False
    inner: frozenset[int] = frozenset()
    few: bool = False


@dataclass(frozen=True, slots=True)
class NativeAck:
    """One append of `count` records is durable. `last`: the S3P identifier of its last record, as (ms, seq), of which
    the others are the direct predecessors. `end_offset` and `length`: where its bytes end and how many they are. Each
    None where the protocol has no such thing. `parts`: what it was split into, where others' records may lie between;
    then they alone say where its records are."""

    count: int
    last: tuple[int, int] | None = None
    end_offset: int | None = None
    length: int | None = None
    parts: tuple[NativeAck, ...] = ()


class NativeAppendSession(Protocol):
    """Pipelined appends, acknowledged in order; as `penstock.backs.base.AppendSession`, in native terms."""

    async def send(self, append: Append) -> None:
        """Hand over the next batch. The native envelopes or drops headers as its policy says, or refuses the batch:
        raises NOT_REPRESENTABLE, which changes nothing. Cancelled, nothing was handed over."""

    def close(self) -> None:
        """Nothing more will be sent."""

    async def receive(self) -> list[NativeAck]:
        """Acknowledgements in order, at least one; empty at the end; raises as `AppendSession.receive`."""


class Native(Protocol):
    """One server."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can carry: HEADERS and EMPTY_BODIES where its policy envelopes them, MATCH_SEQ_NUM where it can
        append on a condition, and so on."""

    @property
    def delivery(self) -> Delivery:
        """What is promised about lost acknowledgements."""

    async def bounds(self, stream: StreamRef) -> Bounds:
        """The ends of a stream. STREAM_NOT_FOUND where the protocol can tell."""

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """Records from `start` on, about `max_bytes` at most (one record always fits); with none there, wait up to
        `wait` seconds for the first. OFFSET_TRUNCATED (details: offset) where `start` is no longer there (segments)."""

    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        """Begin to append."""

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        """Append on condition that the stream ends at `at`: OFFSET_MISMATCH else. NOT_IMPLEMENTED where the protocol
        has no conditions."""

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        """Remove the records before this one."""

    async def create(self, stream: StreamRef) -> bool:
        """Create a stream; False where it was there already."""

    async def delete(self, stream: StreamRef) -> None:
        """Delete a stream. STREAM_NOT_FOUND."""

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """Streams by name. NOT_IMPLEMENTED where the protocol cannot list."""
