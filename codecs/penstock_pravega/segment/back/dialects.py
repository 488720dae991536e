"""Messages of appends in each dialect, and their numbers: event numbers, or connection offsets in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from penstock.model.byte_operations import NO_ATTRIBUTE
from penstock.model.failures import FailureCode, fail
from penstock_pravega.codec import BlockData, Dialect, SegmentMessage, draft, released, split_events
from penstock_pravega.codec.limits import SEGMENT_MAX_LENGTH
from penstock_pravega.segment.back.in_flight import AppendInFlight

__all__ = ["APPEND_DIALECTS", "AppendDialect"]

_MOST: Final = SEGMENT_MAX_LENGTH - 1024
"""Largest append that certainly fits into a message, in bytes."""


class AppendDialect(Protocol):
    """Appends in one dialect. Numbers are `WriterPosition.position`; a new writer's is NO_ATTRIBUTE."""

    def next_number(self, before: int, size: int, count: int, /) -> int:
        """Return the number after an append of `count` events in `size` bytes."""

    def check(self, before: int, number: int, data: bytes, /) -> None:
        """Raise OperationFailed if the dialect cannot append this.

        LIMIT_EXCEEDED, NOT_IMPLEMENTED (the number) or NOT_REPRESENTABLE (the bytes).
        """

    def setup(self, request_id: int, writer: UUID, segment: str, token: str, /) -> SegmentMessage:
        """Return the request that sets a writer up."""

    def level(self, reply: Any, /) -> int:
        """Return the writer's number from the reply to `setup`."""

    def append(
        self, writer: UUID, slots: Sequence[AppendInFlight], request_id: int, /
    ) -> Sequence[SegmentMessage | BlockData]:
        """Return the messages of an append, or of several without conditions."""

    def stored(self, reply: Any, /) -> tuple[int, int | None] | None:
        """Return an acknowledgement's number, and the end of the append if it is given.

        None: the reply is no acknowledgement.
        """

    def resume(self, known: int, level: int, first: AppendInFlight, /) -> bool:
        """Cut off the part of the first append that is stored already.

        `known` is the last number that is accounted for. Returns False if `level` shows that another client appended as
        this writer, or that the segment was replaced.
        """


def _check_size(data: bytes) -> None:
    if len(data) > _MOST:
        raise fail(FailureCode.LIMIT_EXCEEDED, f"an append of {len(data)} bytes, a segment store takes {_MOST}")


class _Released:
    """Released dialect. An append is stored as a whole or not at all; numbers may skip but must rise."""

    def next_number(self, before: int, _: int, count: int, /) -> int:
        return count + max(before, 0)

    def check(self, _: int, __: int, data: bytes, /) -> None:
        """Check the size; any higher number is allowed."""
        _check_size(data)

    def setup(self, request_id: int, writer: UUID, segment: str, token: str, /) -> SegmentMessage:
        return released.SetupAppend(request_id, writer, segment, token)

    def level(self, reply: Any, /) -> int:
        return int(reply.last_event_number)

    def append(
        self, writer: UUID, slots: Sequence[AppendInFlight], request_id: int, /
    ) -> Sequence[SegmentMessage | BlockData]:
        last, count = slots[-1], sum(slot.count for slot in slots)
        data = last.data if len(slots) == 1 else b"".join(slot.data for slot in slots)
        if last.expected is not None:
            return [released.ConditionalBlockEnd(writer, last.number, last.expected, data, request_id)]
        return [released.AppendBlockEnd(writer, len(data), data, count, last.number, request_id)]

    def stored(self, reply: Any, /) -> tuple[int, int | None] | None:
        if not isinstance(reply, released.DataAppended):
            return None
        end = reply.current_segment_write_offset
        return reply.event_number, end if end >= 0 else None

    def resume(self, known: int, level: int, _: AppendInFlight, /) -> bool:
        return level == known


class _Draft:
    """Draft dialect. Numbers count bytes; a block may be stored in part, and its rest is sent again."""

    def next_number(self, before: int, size: int, _: int, /) -> int:
        return size + max(before, 0)

    def check(self, before: int, number: int, data: bytes, /) -> None:
        _check_size(data)
        if number != max(before, 0) + len(data):
            raise fail(
                FailureCode.NOT_IMPLEMENTED,
                f"the draft's writers count bytes: {len(data)} bytes after {max(before, 0)} cannot make {number}",
            )
        try:
            split_events(data)
        except ValueError as error:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"the draft appends whole events only: {error}") from None

    def setup(self, _: int, writer: UUID, segment: str, __: str, /) -> SegmentMessage:
        return draft.SetupAppend(writer, segment)

    def level(self, reply: Any, /) -> int:
        return int(reply.connection_offset_ack_level) or NO_ATTRIBUTE

    def append(self, writer: UUID, slots: Sequence[AppendInFlight], _: int, /) -> Sequence[SegmentMessage | BlockData]:
        messages: list[SegmentMessage | BlockData] = []
        for slot in slots:
            size = len(slot.data)
            start = slot.number - size
            messages.append(draft.BeginAppendBlock(writer, start, size))
            messages.append(BlockData(writer, start, slot.data))
            messages.append(draft.EndAppendBlock(writer, slot.number, size))
        return messages

    def stored(self, reply: Any, /) -> tuple[int, int | None] | None:
        return (reply.connection_offset_ack_level, None) if isinstance(reply, draft.DataAppended) else None

    def resume(self, _: int, level: int, first: AppendInFlight, /) -> bool:
        left = first.number - max(level, 0)
        if not 0 < left <= len(first.data):
            return False
        first.data = first.data[-left:]
        return True


APPEND_DIALECTS: Final[Mapping[Dialect, AppendDialect]] = {Dialect.RELEASED: _Released(), Dialect.DRAFT: _Draft()}
