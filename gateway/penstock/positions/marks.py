"""A position in the terms of all protocols, and what an index of them can be asked.

An index holds marks of some of a stream's records, in order. All four coordinates rise (or stay) from mark to mark, so
that any of them finds the nearest mark before; what lies between two marks is read from the server.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock_codecs.model import RecordId

__all__ = ["START", "Mark"]


class Mark(NamedTuple):
    """Where one record is. As the end of a stream: where the next record will be at the earliest.

    `seq_num`: how many records were before it since the beginning. `timestamp` in ms and `place`: the halves of its
    S3P identifier; at the end of a stream the smallest identifier that is larger than the last record's. `offset`:
    where its bytes begin.
    """

    seq_num: int
    timestamp: int
    place: int
    offset: int

    @property
    def record_id(self) -> RecordId:
        """The S3P identifier."""
        return RecordId(self.timestamp, self.place)


START: Final = Mark(0, 0, 0, 0)
"""Of a stream that nothing was ever appended to."""
