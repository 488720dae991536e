"""Names of streams and of their segments.

A Pravega stream has one segment or several, among which writers choose by routing key, and only a segment has an order.
So each segment is a stream here, as it is in the gateway: the first one (number 0 of epoch 0) has the stream's own name
`scope/stream`, the others are called `scope/stream/NUMBER.#epoch.EPOCH`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["StreamSegmentName", "first_of", "full_name"]

_NAME: Final = re.compile(r"([^/#]+)/([^/#]+)(?:/(0|[1-9][0-9]{0,9})(?:\.#epoch\.(0|[1-9][0-9]{0,9}))?)?")


class StreamSegmentName(NamedTuple):
    """The parts of a segment's name."""

    scope: str
    stream: str
    number: int = 0
    epoch: int = 0

    @classmethod
    def parse(cls, name: str) -> StreamSegmentName | None:
        """Return the parts of `scope/stream`, `scope/stream/NUMBER` (of epoch 0) or a full name; None for any other
        text."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match[1], match[2], int(match[3] or 0), int(match[4] or 0))

    @classmethod
    def of_id(cls, scope: str, stream: str, segment_id: int) -> StreamSegmentName:
        """Return the name for a controller's segment id: the epoch in the upper 32 bits, the number in the lower."""
        return cls(scope, stream, segment_id & 0xFFFF_FFFF, segment_id >> 32)

    @property
    def id(self) -> int:
        """Segment id of the controller; see `of_id`."""
        return self.epoch << 32 | self.number

    @property
    def owner(self) -> str:
        """Name of the segment's stream, `scope/stream`."""
        return f"{self.scope}/{self.stream}"

    def __str__(self) -> str:
        """Return the name that segment stores use."""
        return f"{self.owner}/{self.number}.#epoch.{self.epoch}"


def full_name(stream: str) -> str:
    """Return the segment's full name for a stream's name, without asking a controller. Any other text is returned
    unchanged: it may name a table, or be a name that a gateway completes."""
    name = StreamSegmentName.parse(stream)
    return stream if name is None else str(name)


def first_of(head: Sequence[StreamSegmentName]) -> StreamSegmentName | None:
    """Return the segment in a stream's head that has the stream's own name, or None if it is gone.

    A stream that was deleted and created again continues the numbering of the old one: then the only segment of epoch 0
    takes the part of number 0.
    """
    if len(head) == 1 and head[0].epoch == 0:
        return head[0]
    return next((name for name in head if name.id == 0), None)
