"""Error replies (segment fact sheet, 1.3).

`offset`: the offset of a read, the event number of an append, otherwise -1. Clients match outstanding reads by it.
"""

from __future__ import annotations

from penstock_pravega.codec.layout import Dialect, Direction, Older, SegmentMessage, Tail, message
from penstock_pravega.codec.wire import I32, I64, Name, Text, Uuid

__all__ = [
    "AuthTokenCheckFailed",
    "ErrorMessage",
    "InvalidEventNumber",
    "NoSuchSegment",
    "OperationUnsupported",
    "SegmentAlreadyExists",
    "SegmentIsSealed",
    "SegmentIsTruncated",
    "WrongHost",
]


@message(50, Direction.REPLY, Dialect.RELEASED)
class WrongHost(SegmentMessage, frozen=True):
    """The segment is served elsewhere."""

    request_id: I64
    segment: Name
    correct_host: Text
    server_stack_trace: Tail[Text] = ""


@message(51, Direction.REPLY, Dialect.RELEASED)
class SegmentIsSealed(SegmentMessage, frozen=True):
    """The segment is sealed against appends."""

    request_id: I64
    segment: Name
    server_stack_trace: Tail[Text] = ""
    offset: Tail[I64] = -1


@message(52, Direction.REPLY, Dialect.RELEASED, Dialect.DRAFT)
class SegmentAlreadyExists(SegmentMessage, frozen=True):
    """A segment to create exists already."""

    request_id: I64
    segment: Name
    server_stack_trace: Tail[Text] = ""


@message(53, Direction.REPLY, Dialect.RELEASED)
class NoSuchSegment(SegmentMessage, frozen=True):
    """The segment was never created, or was deleted."""

    request_id: I64
    segment: Name
    server_stack_trace: Tail[Text] = ""
    offset: Tail[I64] = -1


@message(
    55,
    Direction.REPLY,
    Dialect.RELEASED,
    older=Older(16, ("writer_id", "event_number", "server_stack_trace"), {"request_id": -1}),
)
class InvalidEventNumber(SegmentMessage, frozen=True):
    """The writer's event number is not above its last one; the server closes the connection after it.

    Up to wire version 15 it has no request id, and the trace comes last.
    """

    writer_id: Uuid
    request_id: I64
    server_stack_trace: Text
    event_number: I64


@message(56, Direction.REPLY, Dialect.RELEASED)
class SegmentIsTruncated(SegmentMessage, frozen=True):
    """The requested offset is before `start_offset`, where the segment begins now."""

    request_id: I64
    segment: Name
    start_offset: I64
    server_stack_trace: Tail[Text] = ""
    offset: Tail[I64] = -1


@message(57, Direction.REPLY, Dialect.RELEASED)
class OperationUnsupported(SegmentMessage, frozen=True):
    """The server does not support the operation."""

    request_id: I64
    operation: Text
    server_stack_trace: Tail[Text] = ""


@message(60, Direction.REPLY, Dialect.RELEASED)
class AuthTokenCheckFailed(SegmentMessage, frozen=True):
    """A delegation token was refused. `error_code`: -1 not specified, 0 failed, 1 expired; no other, since a real
    client crashes on it."""

    request_id: I64
    server_stack_trace: Tail[Text] = ""
    error_code: Tail[I32] = -1


@message(61, Direction.REPLY, Dialect.RELEASED)
class ErrorMessage(SegmentMessage, frozen=True):
    """Any other error. `error_code`: -1 not specified, 0 illegal argument."""

    request_id: I64
    segment: Name
    message: Text
    error_code: I32
