"""The records in bodies of Durable Streams, and their numbers.

An offset of Penstock is a sequence number, so its records have one. Offsets of other servers are opaque, and so are the
boundaries in streams of bytes: what an answer holds of such a stream is one record here, however many appends it was,
and has a number if it was one append.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.capture.dialogue.columns import LazyRecords, numbered
from penstock.capture.dialogue.messages import DELIVERED, SeenRecord
from penstock.capture.pcapng import Conversation
from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.model.records import NO_HEADERS, Headers
from penstock_durable.codec import (
    DEFAULT_TYPE,
    Control,
    MessageContent,
    PositionAnswer,
    content_of,
    parse_offset,
    split_messages,
)
from penstock_durable.codec.content import broken

__all__ = ["BodyRecords", "delivered", "first_number", "number_of", "position_fields", "read_body"]

_MOST: Final = 1 << 62


class BodyRecords(NamedTuple):
    """Records of one body. `counted`: each has a number of its own."""

    bodies: Sequence[bytes]
    headers: Mapping[int, Headers] = NO_HEADERS
    counted: bool = True


def read_body(content_type: str | None, body: bytes, *, answer: bool) -> BodyRecords:
    """Return the records of a body, none of an empty one. `answer`: of JSON it is an array. Raises OperationFailed,
    RemoteProtocolError for JSON that is broken."""
    if not body:
        return BodyRecords(())
    try:
        content = content_of(content_type or DEFAULT_TYPE)
    except OperationFailed:  # that is no content type; the request's head is a problem already
        content = None
    if content is None:
        return BodyRecords((body,))
    if isinstance(content, MessageContent):
        if answer and not body.lstrip(b" \t\r\n").startswith(b"["):
            raise broken("an answer that is not an array")
        return BodyRecords(split_messages(body))
    reader, bodies, headers = content.reader(), list[bytes](), dict[int, Headers]()
    try:
        reader.receive(body)
        while (taken := reader.take(_MOST, _MOST)).bodies:
            headers |= {len(bodies) + index: pairs for index, pairs in taken.headers.items()}
            bodies += taken.bodies
    except RemoteProtocolError:  # it is a stream of bytes to other clients, and an answer may begin amid a record
        return BodyRecords((body,))
    return BodyRecords(bodies, headers, counted=False)


def number_of(offset: str | None) -> int | None:
    """Return the sequence number of an offset, None if it is a sentinel or another server's."""
    try:
        place = None if offset is None else parse_offset(offset)
    except OperationFailed:
        return None
    return place if isinstance(place, int) else None


def first_number(records: BodyRecords, start: int | None, behind: int | None, *, exact: bool) -> int | None:
    """Return the number of the first of some records, None if they have none.

    `start`: where they begin, as far as it is known; `behind`: the number behind them. `exact`: boundaries are kept, so
    the records are those before `behind` even if `start` is unknown.
    """
    count = len(records.bodies)
    if not records.counted or behind is None or behind < count:
        return None
    known = (exact or behind == count) if start is None else behind - start == count
    return behind - count if known else None


def delivered(
    records: BodyRecords, first: int | None, stream: str, conversation: Conversation, time_ns: int
) -> Sequence[SeenRecord]:
    """Return the records that a server sent, numbered from `first` on."""
    make = partial(numbered, DELIVERED, stream, records.bodies, records.headers, first, time_ns)
    return LazyRecords(len(records.bodies), conversation, make)


def position_fields(position: PositionAnswer | Control) -> dict[str, Any]:
    """Return the fields of a position; what is not said is left out."""
    fields: dict[str, Any] = {"next_offset": position.next_offset}
    if position.up_to_date:
        fields["up_to_date"] = True
    if position.closed:
        fields["closed"] = True
    if position.cursor is not None:
        fields["cursor"] = position.cursor
    return fields
