"""Parse an event stream: HTML Living Standard, 9.2.5 "Parsing an event stream" and 9.2.6, bounded and resumable.

Lines end with LF, CR or CRLF. Data is returned as the bytes that were sent; the standard decodes it as UTF-8 with
replacement characters, which is left to callers that want text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.failures import Failure, FailureCode, RemoteProtocolError

__all__ = ["EventParser", "RawEvent"]

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A
_CR: Final = 0x0D
_SPACE: Final = 0x20
_MAX_RETRY_DIGITS: Final = 15


class RawEvent(NamedTuple):
    """One event: its type ("message" if none was given), its data, the last event id then in force, and whether this
    event set it."""

    name: str
    data: bytes
    last_event_id: str
    sets_id: bool


class EventParser:
    """Parses the lines of one event stream into events.

    At most `limit` bytes are held of one event: its current line, its data so far, its type and the id in force.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._start = 0  # start of the current line
        self._scanned = 0  # no line end before this offset
        self._first_line = True
        self._after_cr = False
        self._name = b""
        self._data: list[bytes] = []
        self._data_size = 0
        self._id = b""
        self._sets_id = False
        self.retry_ms: int | None = None
        """Milliseconds to wait before reconnecting, if the server gave a number."""

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._buffer) - self._start + self._held

    @property
    def unread(self) -> int:
        """Bytes after the last line that was read, which is where the last event ends."""
        return len(self._buffer) - self._start

    @property
    def _held(self) -> int:
        """Bytes held of the current event, apart from its current line."""
        return self._data_size + len(self._name) + len(self._id)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take more of the stream."""
        self._buffer += data

    def next_event(self) -> RawEvent | None:
        """Return the next event, or None if it is incomplete.

        Raises RemoteProtocolError(LIMIT_EXCEEDED) if an event is larger than the limit.
        """
        while (end := self._line_end()) >= 0:
            start, self._start = self._start, end + 1
            self._scanned = self._start
            self._after_cr = self._buffer[end] == _CR
            if self._first_line:
                self._first_line = False
                start += len(_BOM) if self._buffer.startswith(_BOM, start, end) else 0
            if start < end:
                self._field(start, end)
            elif (event := self._dispatch()) is not None:
                return event
        del self._buffer[: self._start]
        self._scanned -= self._start
        self._start = 0
        return None

    def _line_end(self) -> int:
        """Return the offset of the CR or LF that ends the current line; -1 if it has not arrived."""
        buffer = self._buffer
        if self._after_cr and self._start < len(buffer):
            self._after_cr = False
            if buffer[self._start] == _LF:
                self._start += 1
                self._scanned = max(self._scanned, self._start)
        lf = buffer.find(b"\n", self._scanned)
        cr = buffer.find(b"\r", self._scanned, len(buffer) if lf < 0 else lf)
        end = lf if cr < 0 else cr
        self._scanned = len(buffer) if end < 0 else end
        if self._scanned - self._start + self._held > self._limit:
            reason = f"an event is larger than {self._limit} bytes"
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, reason))
        return end

    def _field(self, start: int, end: int) -> None:
        buffer = self._buffer
        colon = buffer.find(b":", start, end)
        if colon == start:
            return  # a comment
        name_end = end if colon < 0 else colon
        value_start = name_end + 1
        if value_start < end and buffer[value_start] == _SPACE:
            value_start += 1
        name = bytes(buffer[start:name_end])
        if name == b"data":
            value = bytes(memoryview(buffer)[value_start:end])
            self._data.append(value)
            self._data_size += len(value) + 1
        elif name == b"event":
            self._name = bytes(buffer[value_start:end])
        elif name == b"id":
            value = bytes(buffer[value_start:end])
            if b"\0" not in value:
                self._id = value
                self._sets_id = True
        elif name == b"retry":
            value = bytes(buffer[value_start:end])
            if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                self.retry_ms = int(value)

    def _dispatch(self) -> RawEvent | None:
        """Handle a blank line: return the event, or None if it had no data."""
        event = None
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            event = RawEvent(_text(self._name) or "message", data, _text(self._id), self._sets_id)
        self._name = b""
        self._sets_id = False
        self._data = []
        self._data_size = 0
        return event


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
