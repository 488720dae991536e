"""Names of streams and of their segments.

A stream of Pravega is one segment or several, among which writers choose by routing key, and only a segment has an
order. So each segment is a stream here, as it is for the gateway: the first one (number 0 of epoch 0) has the stream's
own name `scope/stream`, the others are called `scope/stream/NUMBER.#epoch.EPOCH`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["SegmentName", "first_of", "full_name"]

_NAME: Final = re.compile(r"([^/#]+)/([^/#]+)(?:/(0|[1-9][0-9]{0,9})(?:\.#epoch\.(0|[1-9][0-9]{0,9}))?)?")


class SegmentName(NamedTuple):
    """A segment's name, taken apart."""

    scope: str
    stream: str
    number: int = 0
    epoch: int = 0

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """From `scope/stream`, `scope/stream/NUMBER` (of epoch 0) or a full name; None for any other text."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(found[1], found[2], int(found[3] or 0), int(found[4] or 0))

    @classmethod
    def of_id(cls, scope: str, stream: str, segment_id: int) -> SegmentName:
        """From a controller's number: the epoch in the upper 32 bits, the number in the lower."""
        return cls(scope, stream, segment_id & 0xFFFF_FFFF, segment_id >> 32)

    @property
    def id(self) -> int:
        """See `of_id`."""
        return self.epoch << 32 | self.number

    @property
    def owner(self) -> str:
        """The stream that it is a segment of, `scope/stream`."""
        return f"{self.scope}/{self.stream}"

    def __str__(self) -> str:
        """As segment stores know it."""
        return f"{self.owner}/{self.number}.#epoch.{self.epoch}"


def full_name(stream: str) -> str:
    """The segment that a stream's name means, where no controller is asked: what is no segment's name stays as it is,
    for it may be that of a table, or one that a gateway completes."""
    name = SegmentName.parse(stream)
    return stream if name is None else str(name)


def first_of(head: Sequence[SegmentName]) -> SegmentName | None:
    """The segment that has the stream's own name, of those that a stream begins with; None where it is gone.

    A stream that was deleted and created again goes on with the numbers of the one before: there the only segment of
    epoch 0 is what number 0 has become.
    """
    if len(head) == 1 and head[0].epoch == 0:
        return head[0]
    return next((name for name in head if name.id == 0), None)
