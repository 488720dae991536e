"""The shapes of draft blocks as conversations with a real server, each under a connection id of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

from support.segment.client import DraftSocket, bytes_of
from support.segment.draft_blocks import READ, SETUP, SHAPES
from support.segment.messages import WRITER

from penstock_codecs.segment import BlockData, SegmentMessage, draft, join_events
from penstock_codecs.segment.encoder import Fill

__all__ = ["ALL", "Shape", "expect_set_ups", "make_segments", "replies_to"]


READ_EVENT = b"hello"
"""All that the segment holds which the shapes read."""


class Shape(NamedTuple):
    """Bytes sent after the setup of a connection id, the content they store, the replies other than acknowledgements,
    and the number of empty blocks.
    """

    data: bytes
    content: bytes
    others: Counter[type[SegmentMessage]]
    empty: int

    def said_by(self, connection: UUID) -> bytes:
        """Return the bytes for a connection id."""
        return self.data.replace(WRITER.bytes, connection.bytes)


_ANSWERS: dict[type[Any], type[SegmentMessage]] = {
    draft.KeepAlive: draft.KeepAlive,
    draft.ReadSegment: draft.SegmentRead,
    draft.SetupAppend: draft.AppendSetup,
}


def _bytes(message: Any) -> bytes:
    if isinstance(message, Fill):
        return bytes(message.length)
    return message.data if isinstance(message, BlockData) else bytes_of(message)


def _shape(said: list[Any], heard: list[Any]) -> Shape:
    content = b"".join(one.data for one in heard if isinstance(one, BlockData))
    others = Counter(_ANSWERS[type(one)] for one in heard if type(one) in _ANSWERS)
    empty = sum(isinstance(one, draft.EndAppendBlock) and not one.block_length for one in heard)
    return Shape(b"".join(map(_bytes, said)), content, others, empty)


ALL: dict[str, Shape] = {name: _shape(*shape) for name, shape in SHAPES.items()}


def expect_set_ups(client: DraftSocket, shape: Shape) -> None:
    """Tell the client's codec about the shape's SetupAppend, which is sent as bytes, so that it accepts the
    AppendSetup.
    """
    if draft.AppendSetup in shape.others:
        client.codec.send(SETUP)


def make_segments(client: DraftSocket) -> None:
    """Create the other segments that the shapes read and set up.

    The one that is read is not empty, so that no read waits.
    """
    for message in (READ, SETUP):
        client.create(message.segment)
    client.setup(READ.segment, WRITER)
    client.append(WRITER, 0, [READ_EVENT])


def replies_to(client: DraftSocket, shape: Shape, connection: UUID) -> None:
    """Take all replies to a shape, which may come in any order but for the acknowledgements."""
    left, level, empty = Counter(shape.others), 0, 0
    while left or level < len(shape.content) or empty < shape.empty:
        reply = client.reply()
        if isinstance(reply, draft.DataAppended):
            assert reply.connection_id == connection
            assert level <= reply.connection_offset_ack_level <= len(shape.content)
            empty += reply.connection_offset_ack_level == level
            level = reply.connection_offset_ack_level
            continue
        if isinstance(reply, draft.SegmentRead):
            assert reply.data == join_events([READ_EVENT])
        left[type(reply)] -= 1
        assert left[type(reply)] >= 0, reply
        left = +left
