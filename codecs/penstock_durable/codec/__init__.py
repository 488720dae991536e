"""Durable Streams: requests over HTTP, offsets, JSON messages, and live reads as server-sent events, both roles.

Source: the Durable Streams Protocol 1.0 (PROTOCOL.md of durable-streams), whose sections are named where they apply,
and its server conformance suite 0.3.6 where the two differ or the document is silent.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.wire.codec import Codec, CodecPlugin, Role
from penstock_durable.codec.answers import (
    BEGINNING,
    AppendAnswer,
    PositionAnswer,
    append_answer,
    append_headers,
    failure_of_answer,
    position_answer,
    read_query,
)
from penstock_durable.codec.content import ContentReader, StreamContent, TakenRecords
from penstock_durable.codec.cursors import MOST_AHEAD, next_cursor
from penstock_durable.codec.errors import failure_to_status, spell_failure
from penstock_durable.codec.events import (
    COMMENT,
    MAX_EVENT_BYTES,
    Control,
    DataEvent,
    DurableEvent,
    DurableEventsClient,
    DurableEventsServer,
    EventMode,
    event_mode,
)
from penstock_durable.codec.media import DEFAULT_TYPE, check_message, essence, is_json, join_messages, split_messages
from penstock_durable.codec.messages import MessageContent
from penstock_durable.codec.offsets import FIRST, Sentinel, parse_offset, spell_offset
from penstock_durable.codec.records import OVERHEAD_BYTES, RECORDS_TYPE, RecordContent
from penstock_durable.codec.requests import (
    AppendRequest,
    CreateRequest,
    Fork,
    LiveMode,
    Producer,
    ReadRequest,
    append_request,
    check_conditions,
    create_request,
    read_request,
)

__all__ = [
    "BEGINNING",
    "COMMENT",
    "DEFAULT_TYPE",
    "FIRST",
    "MAX_EVENT_BYTES",
    "MOST_AHEAD",
    "OVERHEAD_BYTES",
    "PLUGIN",
    "RECORDS_TYPE",
    "AppendAnswer",
    "AppendRequest",
    "ContentReader",
    "Control",
    "CreateRequest",
    "DataEvent",
    "DurableEvent",
    "DurableEventsClient",
    "DurableEventsServer",
    "EventMode",
    "Fork",
    "LiveMode",
    "MessageContent",
    "PositionAnswer",
    "Producer",
    "ReadRequest",
    "RecordContent",
    "Sentinel",
    "StreamContent",
    "TakenRecords",
    "append_answer",
    "append_headers",
    "append_request",
    "check_conditions",
    "check_message",
    "content_of",
    "create_request",
    "essence",
    "event_mode",
    "failure_of_answer",
    "failure_to_status",
    "is_json",
    "join_messages",
    "next_cursor",
    "parse_offset",
    "position_answer",
    "read_query",
    "read_request",
    "spell_failure",
    "spell_offset",
    "split_messages",
]


def content_of(content_type: str) -> StreamContent | None:
    """Return what the records of streams with this content type are; None if it is bytes without boundaries. Raises
    BAD_HEADER."""
    if is_json(content_type):
        return MessageContent()
    return RecordContent() if essence(content_type) == RECORDS_TYPE else None


def _make(role: Role, dialect: str) -> Codec[Any, Any]:
    mode = EventMode(dialect)
    return DurableEventsClient(mode) if role is Role.CLIENT else DurableEventsServer(mode)


def _sample(role: Role, dialect: str) -> bytes:
    """Return the bytes of a server; a client sends nothing."""
    if role is Role.SERVER:
        return b""
    server = DurableEventsServer(EventMode(dialect))
    events: list[DurableEvent] = [
        DataEvent((b'{"n":1}', b"[2, 3]")),
        Control(spell_offset(2), cursor=7),
        DataEvent((b' "a line\\nand another"',)),
        Control(spell_offset(3), cursor=8, up_to_date=True),
        Control(spell_offset(3), up_to_date=True, closed=True),
    ]
    return b"".join(piece for event in events for piece in server.send(event))


PLUGIN: Final = CodecPlugin("durable", _make, tuple(mode.value for mode in EventMode), _sample, MAX_EVENT_BYTES)
