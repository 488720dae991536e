"""LiveMode reads as server-sent events (protocol, 5.7), both roles.

Events `data` carry what the stream holds: JSON messages as an array, text as it is, anything else in base64. After each
of them an event `control` tells the offset behind it. A line break inside text becomes a line break of the event, of
which readers cannot tell LF, CR and CRLF apart: that is the protocol's own loss.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock.wire.http.event_stream import EventParser, RawEvent
from penstock_durable.codec.media import is_json, is_text, join_messages, split_messages
from penstock_durable.codec.offsets import is_offset

__all__ = [
    "COMMENT",
    "MAX_EVENT_BYTES",
    "Control",
    "DataEvent",
    "DurableEvent",
    "DurableEventsClient",
    "DurableEventsServer",
    "EventMode",
    "event_mode",
]

MAX_EVENT_BYTES: Final = 8 * MIB
"""Largest event accepted, in bytes."""
COMMENT: Final = b":\n\n"
"""Bytes that mean nothing, and keep a connection alive (HTML Living Standard, 9.2.7)."""
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class EventMode(Enum):
    """The encoding of events `data`, which follows from the stream's content type."""

    JSON = "json"
    TEXT = "text"
    BASE64 = "base64"


def event_mode(content_type: str) -> EventMode:
    """Return the encoding for a stream with this content type."""
    return EventMode.JSON if is_json(content_type) else EventMode.TEXT if is_text(content_type) else EventMode.BASE64


class DataEvent(Struct, frozen=True):
    """Records: messages of a JSON stream; else pieces whose boundaries mean nothing, of which a client sees one."""

    bodies: tuple[bytes, ...]


class Control(Struct, frozen=True):
    """The position behind all events before. `cursor`: absent once the stream is closed. `closed`: nothing follows, and
    the stream will never have more."""

    next_offset: str
    cursor: int | None = None
    up_to_date: bool = False
    closed: bool = False


DurableEvent = DataEvent | Control


class _ControlShape(msgspec.Struct, rename="camel", omit_defaults=True):
    stream_next_offset: str
    stream_cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,15}\Z")] | None = None
    up_to_date: bool = False
    stream_closed: bool = False


_control: Final = msgspec.json.Decoder(_ControlShape)


class DurableEventsServer:
    """Encodes events."""

    def __init__(self, mode: EventMode) -> None:
        self._mode = mode
        self._ended = False
        self._hung_up = False

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Ignore the body of a GET; b"": the peer has finished."""
        self._hung_up = self._hung_up or not data

    def next_event(self) -> Pull:
        """Return PAUSED or NEED_DATA: readers send no events."""
        return PAUSED if self._hung_up or self._ended else NEED_DATA

    def send(self, event: DurableEvent) -> list[bytes]:
        """Return the bytes that encode `event`. Raises LocalProtocolError after a control event that closed."""
        if self._ended:
            raise LocalProtocolError(f"the stream is closed, so {type(event).__name__} cannot be sent")
        if isinstance(event, DataEvent):
            return [_event(b"data", self._encoded(event))]
        self._ended = event.closed
        cursor = None if event.cursor is None or event.closed else str(event.cursor)
        shape = _ControlShape(event.next_offset, cursor, event.up_to_date, event.closed)
        return [_event(b"control", msgspec.json.encode(shape))]

    @property
    def buffered(self) -> int:
        """Always 0: nothing is held."""
        return 0

    def _encoded(self, event: DataEvent) -> bytes:
        match self._mode:
            case EventMode.JSON:
                return join_messages(event.bodies)
            case EventMode.TEXT:
                return b"".join(event.bodies)
            case EventMode.BASE64:
                return b64encode(b"".join(event.bodies))


def _event(name: bytes, data: bytes) -> bytes:
    lines = _LINE_END.split(data) if b"\n" in data or b"\r" in data else (data,)
    # A parser drops one space after the colon, so a line that begins with one gets another.
    fields = b"".join([b"data:%b%b\n" % (b" " if line[:1] == b" " else b"", line) for line in lines])
    return b"event: %b\n%b\n" % (name, fields)


class DurableEventsClient:
    """Decodes events. Events of other names and comments are skipped, as the standard demands."""

    def __init__(self, mode: EventMode, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._mode = mode
        self._parser = EventParser(max_event_bytes)
        self._finished = False
        self._closed = False
        self._error: RemoteProtocolError | None = None

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the response body; b"" at its end."""
        if not data:
            self._finished = True
        elif not self._closed and self._error is None:
            self._parser.receive(data)

    def next_event(self) -> DurableEvent | Pull:
        """Return the next event; PAUSED at the end of the response, and after the control event that closed."""
        if self._error is not None:
            raise self._error
        if self._closed:
            return PAUSED
        try:
            while (raw := self._parser.next_event()) is not None:
                if (event := self.understand(raw)) is not None:
                    self._closed = isinstance(event, Control) and event.closed
                    return event
        except RemoteProtocolError as error:
            self._error = error
            raise
        return PAUSED if self._finished else NEED_DATA

    def send(self, event: object) -> list[bytes]:
        """Raise LocalProtocolError: readers send no events."""
        raise LocalProtocolError(f"a reader sends no events, so {event!r:.80} cannot be sent")

    @property
    def buffered(self) -> int:
        """Bytes held of an event that is not complete."""
        return 0 if self._closed or self._error is not None else self._parser.buffered

    def understand(self, raw: RawEvent) -> DurableEvent | None:
        """Decode an event that was parsed elsewhere; None if it means nothing here. Raises RemoteProtocolError."""
        match raw.name:
            case "data":
                return DataEvent(tuple(self._bodies(raw.data)))
            case "control":
                return _decode_control(raw.data)
        return None

    def _bodies(self, data: bytes) -> list[bytes]:
        if self._mode is EventMode.TEXT:
            return [data]
        if self._mode is EventMode.BASE64:
            try:
                return [binascii.a2b_base64(data.replace(b"\n", b""), strict_mode=True)]
            except binascii.Error as error:
                raise _remote(f"an event's data is not base64: {error}") from None
        if not data.lstrip(b" \t\r\n").startswith(b"["):
            raise _remote("an event's data is not an array")
        try:
            return split_messages(data)
        except OperationFailed as error:
            raise _remote(f"an event's data: {error.failure.message}") from None


def _decode_control(data: bytes) -> Control:
    try:
        shape = _control.decode(data)
        if not is_offset(shape.stream_next_offset):
            raise _remote(f"streamNextOffset {shape.stream_next_offset!r:.80} is no offset of a record")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _remote(f"a control event is malformed: {error}") from None
    except RecursionError:
        raise _remote("a control event is nested too deeply") from None
    cursor = None if shape.stream_cursor is None else int(shape.stream_cursor)
    return Control(shape.stream_next_offset, cursor, shape.up_to_date, shape.stream_closed)


def _remote(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(Failure(FailureCode.BAD_FORMAT, reason))
