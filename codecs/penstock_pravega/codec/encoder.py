"""Encode our messages, under the same order as the peer's."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.model.failures import LocalProtocolError
from penstock_pravega.codec.appends import BlockAppended, Violation
from penstock_pravega.codec.blocks import BlockData, whole_events
from penstock_pravega.codec.draft import EndAppendBlock, Event, Partial, PartialKind
from penstock_pravega.codec.draft_order import DraftRequests
from penstock_pravega.codec.frames import FrameFault, decode_message
from penstock_pravega.codec.layout import HEADER_BYTES, TYPE_TABLE, Dialect, Direction, SegmentMessage, encode
from penstock_pravega.codec.limits import SEGMENT_MAX_LENGTH, SEGMENT_VERSIONS
from penstock_pravega.codec.partials import Reassembly
from penstock_pravega.codec.released import AppendBlockEnd, Hello
from penstock_pravega.codec.released_order import ReleasedRequests, check_versions

__all__ = ["DraftRequestEncoder", "Fill", "OutgoingEvent", "ReleasedRequestEncoder", "ReplyEncoder"]

MAX_REQUEST: Final = SEGMENT_MAX_LENGTH - HEADER_BYTES
"""Longest request: a real server counts a request's header too (segment fact sheet, 1.1)."""


class Fill(Struct, frozen=True):
    """Zero bytes that fill a block which ends early (draft client only, reading 6). Not a message."""

    length: int


OutgoingEvent = SegmentMessage | BlockAppended | BlockData | Fill


def _check(message: object, dialect: Dialect, *directions: Direction) -> SegmentMessage:
    """Return a message of that dialect that may go in that direction. Raises LocalProtocolError for anything else."""
    if not isinstance(message, SegmentMessage) or TYPE_TABLE[dialect].get(message.type_id) is not type(message):
        raise LocalProtocolError(f"{type(message).__name__} is not a message of the {dialect.value} dialect")
    if message.direction not in directions:
        raise LocalProtocolError(f"{type(message).__name__} must not be sent by this side")
    return message


class ReleasedRequestEncoder:
    """Encoder for requests of the released protocol."""

    def __init__(self, order: ReleasedRequests) -> None:
        self._order = order

    def encode(self, event: OutgoingEvent) -> list[bytes]:
        """Return the bytes of a request. Raises Violation and LocalProtocolError."""
        if isinstance(event, BlockAppended):
            size = len(event.data)
            event = AppendBlockEnd(
                event.writer_id, size, event.data, event.number_of_events, event.last_event_number, event.request_id
            )
        message = _check(event, Dialect.RELEASED, Direction.REQUEST, Direction.BOTH)
        pieces = encode(message, longest=MAX_REQUEST)
        if isinstance(message, Hello):
            check_versions(message)
        self._order.take(message)
        return pieces


class DraftRequestEncoder:
    """Encoder for requests of the draft."""

    def __init__(self, order: DraftRequests) -> None:
        self._order = order
        self._partials = Reassembly(SEGMENT_MAX_LENGTH)

    def encode(self, event: OutgoingEvent) -> list[bytes]:
        """Return the bytes of a request, or of a block's content. Raises Violation and LocalProtocolError."""
        if isinstance(event, Fill):
            self._order.zeros(event.length)
            return [bytes(event.length)]
        if isinstance(event, BlockData):
            return self._data(event)
        message = _check(event, Dialect.DRAFT, Direction.REQUEST, Direction.BOTH, Direction.INNER)
        pieces = encode(message)
        if isinstance(message, Event):
            self._events(sum(map(len, pieces)), empty=not message.data)
        elif isinstance(message, Partial):
            self._partial(message)
        elif isinstance(message, EndAppendBlock):
            self._order.end(message)
        else:
            self._order.plain(message)
        return pieces

    def _data(self, event: BlockData) -> list[bytes]:
        """Return the bytes of whole events. Empty events are counted separately: the peer cannot tell them from padding
        yet."""
        data, at, size = event.data, 0, len(event.data)
        while at < size:
            events = whole_events(data, at, size, size, SEGMENT_MAX_LENGTH)
            if events:
                self._order.events(events)
            elif data[at : at + HEADER_BYTES] == bytes(HEADER_BYTES):
                events = HEADER_BYTES
                self._order.zeros(events)
            else:
                raise LocalProtocolError(f"BlockData: no whole event at byte {at}")
            at += events
        return [data]

    def _events(self, size: int, *, empty: bool) -> None:
        if empty:
            self._order.zeros(size)
        else:
            self._order.events(size)

    def _partial(self, partial: Partial) -> None:
        whole = self._partials.take(partial)
        event = len(whole) if whole is not None and whole[:4] == bytes(4) else None
        size = HEADER_BYTES + 1 + len(partial.data)
        self._order.partial(size, begins=partial.part is PartialKind.BEGIN, event=event)
        if whole is not None and event is None:
            try:
                message = decode_message(whole, Dialect.DRAFT, SEGMENT_VERSIONS[0], 0)
            except FrameFault as fault:
                raise Violation(f"Partials: {fault.text}") from None
            if isinstance(message, EndAppendBlock):
                self._order.end(message, in_partials=True)
            else:
                message = _check(message, Dialect.DRAFT, Direction.REQUEST, Direction.BOTH)
                self._order.plain(message, in_partials=True)


class ReplyEncoder:
    """Encoder for replies of either dialect. `version` is the peer's: one reply has an older layout for older peers."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._greeted = dialect is Dialect.DRAFT
        self._partials = Reassembly(SEGMENT_MAX_LENGTH)

    def encode(self, event: OutgoingEvent, version: int) -> list[bytes]:
        """Return the bytes of a reply. Raises Violation and LocalProtocolError."""
        message = _check(event, self._dialect, Direction.REPLY, Direction.BOTH)
        if not self._greeted and not isinstance(message, Hello):
            raise LocalProtocolError(f"{type(message).__name__} before Hello")
        pieces = encode(message, version=version)
        if isinstance(message, Partial):
            self._partials.take(message)
        self._greeted = True
        return pieces
