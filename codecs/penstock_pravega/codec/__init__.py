"""The segment protocol, both roles and both dialects (segment fact sheet).

`released` and `draft` define the messages, each once as fields; `conversation` has the two ends of a connection.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from penstock.model.byte_events import join_events, split_events
from penstock.wire.codec import Codec, CodecPlugin, Role
from penstock.wire.listing import Listing
from penstock_pravega.codec import draft, released
from penstock_pravega.codec.appends import BlockAppended, append_messages
from penstock_pravega.codec.blocks import BlockData
from penstock_pravega.codec.conversation import DEFAULT_LIMITS, SegmentClient, SegmentServer
from penstock_pravega.codec.encoder import Fill
from penstock_pravega.codec.layout import TYPE_TABLE, Dialect, Direction, SegmentMessage, encode
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.codec.lists import ChunkInfo, MergeAttributeUpdate, MergedSegment, TableEntry, TableKey
from penstock_pravega.codec.scanning import NoEvent, ScannedRecords, take_records

__all__ = [
    "PLUGIN",
    "TYPE_TABLE",
    "BlockAppended",
    "BlockData",
    "ChunkInfo",
    "Dialect",
    "Direction",
    "Fill",
    "MergeAttributeUpdate",
    "MergedSegment",
    "NoEvent",
    "ScannedRecords",
    "SegmentClient",
    "SegmentLimits",
    "SegmentMessage",
    "SegmentServer",
    "TableEntry",
    "TableKey",
    "append_messages",
    "draft",
    "encode",
    "join_events",
    "released",
    "split_events",
    "take_records",
]

_WRITER: Final = UUID("00112233-4455-6677-8899-aabbccddeeff")
_SEGMENT: Final = "scope/stream/0.#epoch.0"
_EVENTS: Final = [b"hello", b"worldwide"]
_LIMITS: Final = DEFAULT_LIMITS


def _make(role: Role, dialect: str) -> Codec[Any, Any]:
    """Return a codec. The draft's client has sent the sample's SetupAppend, since it accepts only answers to its
    requests."""
    if role is Role.SERVER:
        return SegmentServer(observer=True)
    client = SegmentClient(Dialect(dialect))
    if client.dialect is Dialect.DRAFT:
        client.send(draft.SetupAppend(_WRITER, _SEGMENT))
    return client


def _released_requests() -> list[SegmentMessage]:
    """Return every form of append, and one message with a list."""
    return [
        released.Hello(16, 5),
        released.SetupAppend(1, _WRITER, _SEGMENT),
        *append_messages(_WRITER, _EVENTS, 2, 1),
        *append_messages(_WRITER, _EVENTS, 4, 1, block_size=20),
        *append_messages(_WRITER, _EVENTS, 6, 1, block_size=50),
        *append_messages(_WRITER, _EVENTS, 8, 1, block_size=30, room=False),
        released.KeepAlive(),
        released.ReadSegment(_SEGMENT, 0, 1 << 20),
        released.UpdateTableEntries(2, "table", "", (TableEntry(TableKey(b"k", -1), b"v"),)),
    ]


def _released_replies() -> list[SegmentMessage]:
    return [
        released.Hello(16, 5),
        released.AppendSetup(1, _SEGMENT, _WRITER, -(1 << 63)),
        released.DataAppended(_WRITER, 2, -1, 1, 30),
        released.SegmentRead(_SEGMENT, 0, True, False, join_events(_EVENTS), 3),
        released.TableRead(2, "table", (TableEntry(TableKey(b"k", 7), b"v"),)),
        released.InvalidEventNumber(_WRITER, 1, "", 2),
    ]


def _draft_requests() -> list[SegmentMessage]:
    """Return a block whose last event is split around its end, one that ends early, and messages in Partials."""
    begin, end = draft.partials(draft.Event(b"worldwide"), [6])
    read = draft.ReadSegment(_SEGMENT, 0, 1000)
    return [
        draft.SetupAppend(_WRITER, _SEGMENT),
        draft.BeginAppendBlock(_WRITER, 0, 28),
        draft.Event(b"hello"),
        begin,
        draft.EndAppendBlock(_WRITER, 30, 30),
        draft.KeepAlive(b"x"),
        end,
        draft.BeginAppendBlock(_WRITER, 30, 21),
        draft.Event(b"hello"),
        draft.Event(b""),
        draft.EndAppendBlock(_WRITER, 43, 13),
        *draft.partials(read, [3, 9]),
    ]


def _draft_replies() -> list[SegmentMessage]:
    return [
        draft.AppendSetup(_SEGMENT, _WRITER, 0),
        draft.DataAppended(_WRITER, 30),
        draft.SegmentRead(_SEGMENT, 0, draft.Flags(at_tail=True), join_events(_EVENTS)),
        *draft.partials(draft.NoSuchSegment(_SEGMENT), [7]),
    ]


_SAMPLES: Final = {
    (Role.SERVER, "released"): _released_requests,
    (Role.CLIENT, "released"): _released_replies,
    (Role.SERVER, "draft"): _draft_requests,
    (Role.CLIENT, "draft"): _draft_replies,
}


def _sample(role: Role, dialect: str) -> bytes:
    return b"".join(piece for message in _SAMPLES[role, dialect]() for piece in encode(message))


def _listing() -> Listing:
    from penstock_pravega.codec.listing import LISTING  # here, because only `penstock decode` needs it

    return LISTING


PLUGIN: Final = CodecPlugin(
    "segment",
    _make,
    tuple(dialect.value for dialect in Dialect),
    _sample,
    limit=2 * (_LIMITS.max_message_bytes + 8) + _LIMITS.block_piece_bytes,
    listing=_listing,
)
