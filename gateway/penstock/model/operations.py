"""The operations that all protocols share: the union of what they offer, and the results.

A front converts its client's requests to operations; a back carries them out. Every class names its result's type in
its base, `Operation[Result]`, so that `await back.perform(operation)` is typed. A back declares by `Capability` which
it supports, and fails the others with NOT_IMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

from msgspec import Struct

from penstock.model.records import NO_HEADERS, Headers, RecordId, StreamPosition, StreamRef, WireBytes
from penstock.model.streams import (
    BasinConfig,
    BasinConfigPatch,
    BasinInfo,
    StreamConfig,
    StreamConfigPatch,
    StreamInfo,
)

__all__ = [
    "Append",
    "Appended",
    "Capability",
    "CheckTail",
    "CreateBasin",
    "CreateStream",
    "DeleteBasin",
    "DeleteStream",
    "EnsureBasin",
    "EnsureStream",
    "FromByteOffset",
    "FromRecordId",
    "FromSeqNum",
    "FromTailOffset",
    "FromTimestamp",
    "GetBasinConfig",
    "GetStreamConfig",
    "ListBasins",
    "ListStreams",
    "Locate",
    "Located",
    "Operation",
    "Page",
    "ProvisionResult",
    "Provisioned",
    "Read",
    "ReconfigureBasin",
    "ReconfigureStream",
    "Start",
    "Trim",
    "restamped_records",
]

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Capability(Enum):
    """Abilities of a back beyond append and read from a sequence number."""

    BASINS = auto()
    STREAM_CONFIG = auto()
    HEADERS = auto()
    EMPTY_BODIES = auto()
    TIMESTAMPS = auto()
    STORED_TIMESTAMPS = auto()
    """Timestamps are kept with the records. Where they are kept in the gateway's index, a crash may change some."""
    RECORD_IDS = auto()
    MATCH_SEQ_NUM = auto()
    FENCING = auto()
    TRIM = auto()
    FOLLOW = auto()
    LOCATE = auto()
    BYTES = auto()
    """Operations on bytes (`penstock.model.byte_operations`)."""
    TABLES = auto()
    """Operations on tables (`penstock.model.table_operations`)."""
    LARGE_BATCHES = auto()
    """Appends of more than MAX_BATCH_RECORDS and MAX_BATCH_BYTES."""


class Operation(Struct, Generic[R_co], frozen=True):
    """Base class of all operations; the parameter is the type of the result."""

    @property
    def about(self) -> StreamRef | None:
        """The stream that it is about, of a merge the target; None if it is about none, or many."""
        return getattr(self, "stream", None) or getattr(self, "target", None)


# ---- where a read starts -------------------------------------------------------------------------------------


class FromSeqNum(Struct, frozen=True):
    """Start at this sequence number."""

    seq_num: int


class FromTimestamp(Struct, frozen=True):
    """Start at the first record stamped at or after this time, in ms."""

    timestamp: int


class FromTailOffset(Struct, frozen=True):
    """Start this many records before the tail, or at the first record."""

    offset: int


class FromRecordId(Struct, frozen=True):
    """Start at the first record whose id is at or after this one; it may lie in the future."""

    record_id: RecordId


class FromByteOffset(Struct, frozen=True):
    """Start at the first record whose bytes begin at or after this offset; of those without bytes, the first."""

    offset: int


Start = FromSeqNum | FromTimestamp | FromTailOffset | FromRecordId | FromByteOffset


# ---- records -------------------------------------------------------------------------------------------------


class Append(Operation["Appended"], frozen=True):
    """Append a batch, atomically and contiguously (S2 fact sheet 5.2, S3P 8.2).

    `timestamps` in ms, one per record (None if the client gave none) or None for none at all. `exact_timestamp`: one
    ms for the whole batch: used unchanged whatever the stream's timestamping mode, and refused with
    NON_MONOTONIC_TIMESTAMP if it is before the last record's. `metered` is the batch's metered size in bytes.
    `create_config` is the configuration layer for the new stream if the basin creates streams on append.
    `create_if_missing` False forbids that. `wire`: the same records in an encoding of
    a codec (`penstock.wire.codec.RecordEncoding`), which a back may keep instead of encoding them. `event_times`:
    the timestamps are those of events: where the stream's must differ, a back that can keeps them as EVENT_TIME.
    `writer_seq`: rises with each append of a stream's only writer. A server of Durable Streams never stores an append
    whose number is not above the last one (protocol, 5.2, Stream-Seq), and the append fails with SEQ_NUM_MISMATCH.
    Other backs ignore it.
    """

    stream: StreamRef
    bodies: list[bytes]
    metered: int
    headers: Mapping[int, Headers] = NO_HEADERS
    timestamps: Sequence[int | None] | None = None
    exact_timestamp: int | None = None
    match_seq_num: int | None = None
    fencing_token: str | None = None
    create_config: StreamConfig | None = None
    create_if_missing: bool = True
    wire: WireBytes | None = None
    event_times: bool = False
    writer_seq: int | None = None


class Appended(Struct, frozen=True):
    """An acknowledgement: the records are on disk and visible.

    `start` is the first record's position; `end` the last record's timestamp and its sequence number plus one; `tail`
    the stream's tail, which may be further on. `last_id` is the last record's id, if known. `offset` is the
    length of the stream in bytes after these records, if known (`penstock.model.byte_operations`). `restamped` is the
    number of records whose client gave another timestamp, which is not kept; None if the server does not tell.
    """

    start: StreamPosition
    end: StreamPosition
    tail: StreamPosition
    last_id: RecordId | None = None
    offset: int | None = None
    restamped: int | None = None


def restamped_records(timestamps: Sequence[int | None] | None, appended: Appended) -> int:
    """Return how many records of an append got another timestamp than these of its client, which is not kept. Of a
    server that does not tell, all are taken for restamped if the first or the last one is."""
    if timestamps is None or appended.restamped is not None:
        return appended.restamped or 0
    ends = (timestamps[0], appended.start.timestamp), (timestamps[-1], appended.end.timestamp)
    return len(timestamps) if any(requested not in (None, stored) for requested, stored in ends) else 0


class Read(Struct, frozen=True):
    """Read a stream (S2 fact sheet 5.4, S3P 8.3); `Back.read_session` carries it out.

    `count` records and `max_bytes` metered bytes are never exceeded; `until` is an exclusive timestamp in ms; `wait`:
    seconds to follow the tail for more, restarted by every batch. None: follow for ever if there is no bound, otherwise
    not at all. `clamp`: a start beyond the tail becomes the tail. `encoding`: batches kept in this one may be delivered
    whole, although they have more records or bytes than other batches. `paged`: the client will soon begin another read
    where it ends this one, so that a back keeps for it what it has read, and reads nothing ahead in this one.
    """

    stream: StreamRef
    start: Start
    clamp: bool = False
    count: int | None = None
    max_bytes: int | None = None
    until: int | None = None
    wait: float | None = None
    create_config: StreamConfig | None = None
    create_if_missing: bool = True
    encoding: str | None = None
    paged: bool = False

    @property
    def bounded(self) -> bool:
        """True if count, bytes or until end the read."""
        return self.count is not None or self.max_bytes is not None or self.until is not None

    @property
    def exhausted(self) -> bool:
        """True if the bounds permit no record: then any start is satisfiable, as in s2-lite since 0.43."""
        return self.count == 0 or self.max_bytes == 0

    @property
    def may_follow(self) -> bool:
        """True if a start at the tail is satisfiable (fact sheet 5.4)."""
        return not self.bounded or (self.wait is not None and self.wait > 0)


class CheckTail(Operation[StreamPosition], frozen=True):
    """Get the next sequence number and the last timestamp of a stream."""

    stream: StreamRef
    create_if_missing: bool = True


class Trim(Operation[StreamPosition], frozen=True):
    """Remove the records before `start`; never beyond the tail, never backwards. Result: the first kept position."""

    stream: StreamRef
    start: FromSeqNum | FromRecordId | FromTimestamp


class Located(Struct, frozen=True):
    """A record's position in every protocol's terms; at the tail, that of the next record."""

    seq_num: int
    timestamp: int
    record_id: RecordId | None
    at_tail: bool
    offset: int | None = None
    """Offset of the record's first byte, if known (`penstock.model.byte_operations`)."""
    gap: int = 0
    """Number of sequence numbers without a record directly before this one, from a start by number on; those of trimmed
    records do not count."""

    @property
    def before_gap(self) -> int:
        """The first of those sequence numbers, or the record's own. From a start at 0: the first not trimmed."""
        return self.seq_num - self.gap


class Locate(Operation[Located], frozen=True):
    """Convert a position: the first retained record at or after `start`, or the tail."""

    stream: StreamRef
    start: Start


# ---- basins and streams --------------------------------------------------------------------------------------


class ProvisionResult(Enum):
    """The effect of a create or ensure; the value is the spelling of header `s2-provision-result`."""

    CREATED = "created"
    UPDATED = "updated"
    NOOP = "noop"


class Provisioned(Struct, Generic[T], frozen=True):
    """A basin or stream, and the effect of the request for it."""

    info: T
    result: ProvisionResult


class Page(Struct, Generic[T], frozen=True):
    """A part of a listing, sorted by name. `failed`: servers whose part is missing, each with the reason."""

    items: list[T]
    has_more: bool
    failed: Mapping[str, str] = {}


class CreateBasin(Operation[Provisioned[BasinInfo]], frozen=True):
    """Create a basin; RESOURCE_ALREADY_EXISTS unless the same request token created it with the same configuration."""

    basin: str
    config: BasinConfig = BasinConfig()
    request_token: str | None = None


class EnsureBasin(Operation[Provisioned[BasinInfo]], frozen=True):
    """Create a basin, or change it to this configuration."""

    basin: str
    config: BasinConfig = BasinConfig()


class GetBasinConfig(Operation[BasinConfig], frozen=True):
    """Get a basin's configuration."""

    basin: str


class ReconfigureBasin(Operation[BasinConfig], frozen=True):
    """Change parts of a basin's configuration; the result is the new one."""

    basin: str
    patch: BasinConfigPatch


class DeleteBasin(Operation[None], frozen=True):
    """Delete a basin and its streams."""

    basin: str


class ListBasins(Operation[Page[BasinInfo]], frozen=True):
    """List the basins whose names begin with `prefix` and come after `start_after`, at most `limit`. `partial`: for an
    overview: if one of several servers fails, list those of the others; and list basins that a server without
    configurable basins has streams in."""

    prefix: str = ""
    start_after: str = ""
    limit: int = 1000
    partial: bool = False


class CreateStream(Operation[Provisioned[StreamInfo]], frozen=True):
    """Create a stream; RESOURCE_ALREADY_EXISTS unless the same request token created it with the same configuration."""

    stream: StreamRef
    config: StreamConfig = StreamConfig()
    request_token: str | None = None


class EnsureStream(Operation[Provisioned[StreamInfo]], frozen=True):
    """Create a stream, or change it to this configuration."""

    stream: StreamRef
    config: StreamConfig = StreamConfig()


class GetStreamConfig(Operation[StreamConfig], frozen=True):
    """Get a stream's configuration, resolved: no field is None."""

    stream: StreamRef


class ReconfigureStream(Operation[StreamConfig], frozen=True):
    """Change parts of a stream's configuration; the result is the new one, resolved."""

    stream: StreamRef
    patch: StreamConfigPatch


class DeleteStream(Operation[None], frozen=True):
    """Delete a stream and its records; its name is free at once."""

    stream: StreamRef


class ListStreams(Operation[Page[StreamInfo]], frozen=True):
    """List the streams whose names begin with `prefix` and come after `start_after`, at most `limit`. `partial`: if one
    of several servers fails, list those of the others. `exact`: only the stream named `prefix` is wanted, which the
    embedded store then need not read from its file; the page may have others behind it."""

    basin: str
    prefix: str = ""
    start_after: str = ""
    limit: int = 1000
    partial: bool = False
    exact: bool = False
