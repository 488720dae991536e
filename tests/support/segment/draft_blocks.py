"""Draft blocks for tests: messages as short words, and every shape that a block may have."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from support.segment.messages import WRITER

from penstock_pravega.codec import BlockData, draft, join_events
from penstock_pravega.codec.encoder import Fill

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


def split(*cuts: int, body: bytes = b"worldwide") -> list[draft.Partial]:
    return draft.partials(Event(body), cuts)


ONE = split(6)
"""Wire: 8 + 1 + 6 before the end, 11 bytes after it."""
TWO = split(1, 9)
NINE_LEFT = split(8)
"""The rest is as long as the wrapper, so the block's length is what was announced."""
END_PARTS = draft.partials(end(13), [30])
READ_PARTS = draft.partials(READ, [2, 9])

SHAPES: dict[str, tuple[list[Any], list[Any]]] = {
    "whole events": ([begin(13), Event(b"hello"), end(13)], [begin(13), data(HELLO), end(13)]),
    "skip-copied": (
        [begin(30), data(HELLO + WORLDWIDE), end(30)],
        [begin(30), data(HELLO + WORLDWIDE), end(30)],
    ),
    "skip-copied, empty events in it": (
        [begin(46), data(bytes(8) + HELLO + bytes(8) + WORLDWIDE), end(46)],
        [begin(46), data(bytes(8) + HELLO + bytes(8) + WORLDWIDE), end(46)],
    ),
    "nothing": ([begin(0), end(0)], [begin(0), end(0)]),
    "ended early": ([begin(20), Event(b"hello"), Fill(7), end(13)], [begin(20), data(HELLO), end(13)]),
    "ended at once": ([begin(9), Fill(9), end(0)], [begin(9), end(0)]),
    "empty events before padding": (
        [begin(50), Event(b"hello"), Event(b""), Event(b""), Fill(21), end(29)],
        [begin(50), data(HELLO + bytes(16)), end(29)],
    ),
    "empty events before others": (
        [begin(21), Event(b""), Event(b"hello"), end(21)],
        [begin(21), data(bytes(8) + HELLO), end(21)],
    ),
    "split": (
        [begin(28), Event(b"hello"), ONE[0], end(30), ONE[1]],
        [begin(28), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split, nothing but that": ([begin(15), ONE[0], end(17), ONE[1]], [begin(15), data(WORLDWIDE), end(17)]),
    "split into three": (
        [begin(23), Event(b"hello"), TWO[0], end(30), TWO[1], TWO[2]],
        [begin(23), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split, two parts before the end": (
        [begin(40), Event(b"hello"), TWO[0], TWO[1], end(30), TWO[2]],
        [begin(40), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split with the same length": (
        [begin(17), NINE_LEFT[0], end(17), NINE_LEFT[1]],
        [begin(17), data(WORLDWIDE), end(17)],
    ),
    "split, then padding": (
        [begin(60), Event(b"hello"), ONE[0], Fill(32), end(30), ONE[1]],
        [begin(60), data(HELLO + WORLDWIDE), end(30)],
    ),
    "empty events around a split": (
        [begin(52), Event(b""), Event(b"hello"), ONE[0], Event(b""), Event(b""), end(46), ONE[1]],
        [begin(52), data(bytes(8) + HELLO + bytes(8) + WORLDWIDE), end(46)],
    ),
    "other messages before the rest": (
        [begin(28), Event(b"hello"), ONE[0], end(30), KeepAlive(b"xyz"), READ, SETUP, ONE[1], READ],
        [begin(28), KeepAlive(b"xyz"), READ, SETUP, data(HELLO + WORLDWIDE), end(30), READ],
    ),
    "split, all of it inside": (
        [begin(48), Event(b"hello"), ONE[0], ONE[1], end(30)],
        [begin(48), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split inside, an event between": (
        [begin(48), ONE[0], Event(b"hello"), ONE[1], end(30)],
        [begin(48), data(HELLO + WORLDWIDE), end(30)],
    ),
    "a request in parts around a block": (
        [READ_PARTS[0], READ_PARTS[1], begin(13), Event(b"hello"), end(13), READ_PARTS[2]],
        [begin(13), data(HELLO), end(13), READ],
    ),
    "a request begun in parts inside a block": (
        [begin(24), Event(b"hello"), READ_PARTS[0], end(13), READ_PARTS[1], READ_PARTS[2]],
        [begin(24), data(HELLO), end(13), READ],
    ),
    "an end in parts": (
        [begin(13), Event(b"hello"), *draft.partials(end(13), [3, 30]), begin(0, 13), *draft.partials(end(0, 13), [8])],
        [begin(13), data(HELLO), end(13), begin(0, 13), end(0, 13)],
    ),
    "other messages before the rest of an end": (
        [begin(20), Event(b"hello"), Fill(7), END_PARTS[0], KeepAlive(b"xyz"), READ, SETUP, END_PARTS[1]],
        [begin(20), KeepAlive(b"xyz"), READ, SETUP, data(HELLO), end(13)],
    ),
    "two blocks": (
        [begin(13), Event(b"hello"), end(13), begin(17, 13), Event(b"worldwide"), end(17, 13)],
        [begin(13), data(HELLO), end(13), begin(17, 13), data(WORLDWIDE, 13), end(17, 13)],
    ),
    "a block in parts": (
        [*draft.partials(begin(13), [5]), Event(b"hello"), end(13)],
        [begin(13), data(HELLO), end(13)],
    ),
}
"""Bytes of a client and the server's events, as the seed's last paragraph and its readings allow."""
