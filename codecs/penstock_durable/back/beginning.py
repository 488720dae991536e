"""The beginning of a stream whose server has removed its first records: its position, and the records from there on.

A server answers 410 for an offset whose data is gone, and tells no position. The next known offset that it has may lie
beyond the first record that is left. So two reads are compared: one from the server's beginning (offset -1), which
counts from 0, and one from a known offset. Where an answer of both ends at the same offset, both are at the same
position, and the difference is the position of the first record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock_durable.back.cursor import ContentCursor
from penstock_durable.back.offsets import KnownOffset
from penstock_durable.codec import StreamContent, TakenRecords

__all__ = ["Beginning", "find_beginning"]

_MOST_BYTES: Final = 8 * MIB
"""Most content that both reads receive, in bytes. It is kept until the position is known."""
_MOST_ANSWERS: Final = 128
"""Most answers that they receive: a server may end an answer after each record."""


class Beginning(NamedTuple):
    """Records that are left. `position`: that of the first. `answers`: bodies of answers from there on, in pieces."""

    position: int
    answers: list[list[bytes]]

    def take(self, content: StreamContent, start: int, max_records: int, max_bytes: int) -> TakenRecords:
        """Return records from `start` on, which is not before `position`. Raises RemoteProtocolError if none begins
        there."""
        reader, ahead = content.reader(), start - self.position
        for pieces in self.answers:
            for piece in pieces:
                reader.receive(piece)
                ahead -= reader.skip(ahead)
                if not ahead and reader.buffered >= max_bytes:
                    return reader.take(max_records, max_bytes)
            reader.end_response()
        return reader.take(max_records, max_bytes)


async def find_beginning(
    left: ContentCursor, known: Sequence[KnownOffset], cursor_at: Callable[[KnownOffset], ContentCursor]
) -> Beginning | None:
    """Return the records that are left. Closes `left`, a read from the server's beginning.

    Returns None if the bounds, or the end, are reached before two answers end at the same offset, and if what is left
    does not begin with a record. `known`: known offsets that are left, in order; the records up to the first of them
    are in the result. Raises OperationFailed as `ContentCursor` does: STREAM_NOT_FOUND if it is another stream.
    """
    answers: list[list[bytes]] = []
    other: ContentCursor | None = None
    room = _MOST_BYTES
    try:
        for _ in range(_MOST_ANSWERS):
            behind = left if other is None or left.offset < other.offset else other  # offsets are ordered as text
            earlier = behind.offset
            response = await behind.skip_answer(room)
            if response is None or behind.offset == earlier:  # too much; or no more, though there was
                break
            room -= sum(map(len, response))
            if behind is left:
                answers.append(response)
            if other is None and left.offset >= known[0].offset:
                other = cursor_at(known[bisect_right(known, left.offset, key=attrgetter("offset")) - 1])
            if other is not None and left.offset == other.offset:
                if (position := other.position - left.position) < 0:
                    raise left.is_another(f"has {-position} more before offset {left.offset} than it had")
                return Beginning(position, answers) if left.buffered == other.buffered else None
        return None
    except OperationFailed as error:
        if isinstance(error.__cause__, RemoteProtocolError):  # the server has cut within a record
            return None
        raise
    finally:
        await left.close()
        if other is not None:
            await other.close()
