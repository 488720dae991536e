"""The messages that the tests of draft blocks speak of, as short words."""

from __future__ import annotations

from uuid import UUID

from support.segment import WRITER

from penstock_codecs.segment import BlockData, draft, join_events

OTHER = UUID(int=7)
HELLO, WORLDWIDE = join_events([b"hello"]), join_events([b"worldwide"])
READ = draft.ReadSegment("seg", 0, 1000)
SETUP = draft.SetupAppend(OTHER, "other")
Begin, End, Event, KeepAlive = draft.BeginAppendBlock, draft.EndAppendBlock, draft.Event, draft.KeepAlive


def begin(length: int, offset: int = 0) -> draft.BeginAppendBlock:
    return Begin(WRITER, offset, length)


def end(size: int, offset: int = 0) -> draft.EndAppendBlock:
    return End(WRITER, offset + size, size)


def data(content: bytes, offset: int = 0) -> BlockData:
    return BlockData(WRITER, offset, content)
