"""Helpers that build conversations in the released segment protocol, for tests of the dialogue."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from support.captures.dialogues import CLIENT, SERVER, Said, conversation, messages
from support.segment.front import SEGMENT, bytes_of
from support.segment.messages import WRITER

from penstock.capture.dialogue import Message, SeenRecord
from penstock_pravega.capture.conversation import SegmentDialogue
from penstock_pravega.codec import append_messages, join_events, released
from penstock_pravega.codec.layout import SegmentMessage as Wire

__all__ = [
    "APPENDS",
    "BODIES",
    "GREETING",
    "HELLO",
    "NEW",
    "OTHER",
    "READS",
    "SETUP",
    "STORED",
    "STORY",
    "asks",
    "rows",
    "says",
    "told",
]

OTHER = UUID("00112233-4455-6677-8899-aabbccddee00")
NEW = -(1 << 63)
BODIES = [b"hello", b"worldwide"]
STORED = join_events(BODIES)
HELLO = released.Hello(16, 5)


def asks(*requests: Wire) -> tuple[Any, bytes]:
    return CLIENT, bytes_of(*requests)


def says(*replies: Wire, **options: Any) -> tuple[Any, bytes]:
    return SERVER, bytes_of(*replies, **options)


GREETING: Said = [asks(HELLO), says(HELLO)]
SETUP: Said = [
    asks(released.SetupAppend(1, WRITER, SEGMENT, "secret")),
    says(released.AppendSetup(1, SEGMENT, WRITER, NEW)),
]
APPENDS: Said = [
    asks(*append_messages(WRITER, BODIES, 2, 1)),
    says(released.DataAppended(WRITER, 2, NEW, 1, 100)),
    asks(*append_messages(WRITER, BODIES, 4, 1, block_size=20), *append_messages(WRITER, BODIES, 6, 1, block_size=50)),
    asks(*append_messages(WRITER, BODIES, 8, 1, block_size=30, room=False)),
    says(released.DataAppended(WRITER, 6, 2, 1, 200)),
]
READS: Said = [
    asks(released.ReadSegment(SEGMENT, 70, 1 << 20, "", 2)),
    says(released.SegmentRead(SEGMENT, 70, True, False, STORED + STORED[:15], 2)),
    asks(released.ReadSegment(SEGMENT, 115, 1 << 20, "", 3)),
    says(released.SegmentRead(SEGMENT, 115, True, False, STORED[15:], 3)),
]
STORY: Said = [*GREETING, *SETUP, *APPENDS, *READS]
Row = tuple[str, bytes, int | None, bool, str]


def told(said: Said) -> list[Message]:
    return messages(SegmentDialogue, conversation("segment"), said)


def rows(records: list[SeenRecord]) -> list[Row]:
    return [(r.action, r.body, r.offset, r.acknowledged, r.failure) for r in records]
