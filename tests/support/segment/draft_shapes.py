"""The shapes of draft blocks as conversations with a real server, each under a connection id of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

from support.segment.client import bytes_of
from support.segment.draft_blocks import SETUP, SHAPES
from support.segment.messages import WRITER

from penstock_pravega.codec import BlockData, SegmentMessage, draft
from penstock_pravega.codec.encoder import Fill

__all__ = ["ALL", "SETUP", "Shape"]


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
