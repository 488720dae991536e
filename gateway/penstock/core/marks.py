"""Positions in the terms of all protocols, and indexes of them.

An index holds marks of some of a stream's records, in order. All four coordinates rise (or stay) from mark to mark, so
that any of them finds the nearest mark before; the records between two marks are read from the server.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.records import RecordId

__all__ = ["START", "Mark"]


class Mark(NamedTuple):
    """The position of one record. For the end of a stream: the lowest position that the next record can have.

    `seq_num`: the number of records before it since the beginning. `timestamp` in ms and `place`: the halves of its
    record id; at the end of a stream the smallest id that is larger than the last record's. `offset`: the
    first of its bytes, or a position that its native server counts otherwise.
    """

    seq_num: int
    timestamp: int
    place: int
    offset: int

    @property
    def record_id(self) -> RecordId:
        """The record id."""
        return RecordId(self.timestamp, self.place)


START: Final = Mark(0, 0, 0, 0)
"""The beginning of a stream, and the end of one that nothing was ever appended to."""
