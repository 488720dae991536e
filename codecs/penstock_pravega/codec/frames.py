"""Split a peer's bytes into messages: an 8-byte header and a body (segment fact sheet, 1.1)."""

from __future__ import annotations

from typing import Final

from penstock.model.failures import FailureCode
from penstock.wire.waiting import WaitingBytes
from penstock_pravega.codec.layout import (
    HEADER,
    HEADER_BYTES,
    Dialect,
    Direction,
    SegmentMessage,
    decode_body,
    message_class,
)
from penstock_pravega.codec.limits import SEGMENT_VERSIONS
from penstock_pravega.codec.wire import MalformedValue

__all__ = ["FrameFault", "Frames", "decode_message"]

_ALLOWED: Final = {
    Direction.REQUEST: (Direction.REQUEST, Direction.BOTH),
    Direction.REPLY: (Direction.REPLY, Direction.BOTH),
}


class FrameFault(Exception):
    """The peer broke the protocol. `at` is the offset of the fault in the connection."""

    def __init__(self, text: str, at: int, code: FailureCode = FailureCode.BAD_FRAME) -> None:
        super().__init__(text)
        self.text = text
        self.at = at
        self.code = code


class Frames:
    """Bytes that one peer sent and that are not taken yet. `direction`: the messages to expect, requests or replies."""

    __slots__ = ("_awaited", "_direction", "_waiting", "at", "base", "data", "dialect", "longest", "start", "version")

    def __init__(self, direction: Direction, dialect: Dialect, longest: int) -> None:
        self.data = bytearray()
        """Bytes that may be taken: all that have come, unless more are awaited (`until`)."""
        self._waiting = WaitingBytes()
        self._awaited = 0  # bytes without which nothing can be taken
        self.at = 0
        """Offset in `data` of the next message."""
        self.base = 0
        """Offset in the connection of the first byte of `data`."""
        self.start = 0
        """Offset in the connection of the last message or bytes taken."""
        self.dialect = dialect
        self.version = SEGMENT_VERSIONS[0]
        self._direction = direction
        self.longest = longest

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes, and drop those already taken."""
        if self.held + len(data) < self._awaited:
            self._waiting.add(data)
            return
        self.base += self.at
        if self._waiting.size:
            with memoryview(self.data) as view:
                self.data = bytearray().join([view[self.at :], *self._waiting.take(), data])
        else:
            del self.data[: self.at]
            self.data += data
        self.at = self._awaited = 0

    def until(self, size: int) -> bool:
        """Return whether fewer than `size` bytes are there: then nothing can be taken before these have come."""
        self._awaited = size if self.held < size else 0
        return self._awaited > 0

    def clear(self) -> None:
        """Drop everything. The buffer is replaced: views of it may live on in a traceback."""
        self.data = bytearray()
        self._waiting.take()
        self.at = self._awaited = 0

    @property
    def held(self) -> int:
        """Bytes that are not taken yet."""
        return len(self.data) - self.at + self._waiting.size

    @property
    def position(self) -> int:
        """Offset in the connection of the next byte to take."""
        return self.base + self.at

    def head(self) -> tuple[type[SegmentMessage], int] | None:
        """Return class and body length of the next message; None without the whole header. Raises Fault."""
        if self.held < HEADER_BYTES:
            return None
        type_id, length = HEADER.unpack_from(self.data, self.at)
        cls = message_class(self.dialect, type_id)
        if cls is None:
            raise FrameFault(f"unknown message type {type_id}", self.position)
        if not 0 <= length <= self.longest:
            shown = length & 0xFFFFFFFF if self.dialect is Dialect.DRAFT else length
            text = f"{cls.__name__} of {shown} bytes, at most {self.longest} are allowed"
            raise FrameFault(text, self.position + 4, FailureCode.LIMIT_EXCEEDED)
        return cls, length

    def take(self, size: int) -> bytes:
        """Take the next `size` bytes, which must be there."""
        self.start = self.position
        end = self.at + size
        with memoryview(self.data) as view:
            taken = bytes(view[self.at : end])
        self._go_to(end)
        return taken

    def _go_to(self, end: int) -> None:
        """Consume the bytes before `end`. An empty buffer is not kept: it may have been a large one."""
        self.at = end
        if end == len(self.data):
            self.base += end
            self.clear()

    def next(self) -> SegmentMessage | None:
        """Take the next message, or return None if it is incomplete. Raises Fault."""
        head = self.head()
        if head is None:
            return None
        cls, length = head
        if cls.direction not in _ALLOWED[self._direction] and not self._inner(cls):
            raise FrameFault(f"{cls.__name__} is not for the {self._direction.value} to send", self.position)
        if self.until(HEADER_BYTES + length):
            return None
        message = self._decode(cls, length)
        self.start = self.position
        self._go_to(self.at + HEADER_BYTES + length)
        return message

    def _inner(self, cls: type[SegmentMessage]) -> bool:
        """Return whether to leave a message to the check of the order of messages, which has the better error."""
        return cls.direction is Direction.INNER and self._direction is Direction.REQUEST

    def _decode(self, cls: type[SegmentMessage], length: int) -> SegmentMessage:
        start = self.at + HEADER_BYTES
        view = memoryview(self.data)[start : start + length]
        try:
            return decode_body(cls, view, self.version)
        except MalformedValue as error:
            raise FrameFault(error.text, self.base + start + error.at) from None
        finally:
            view.release()


def decode_message(data: bytes, dialect: Dialect, version: int, at: int) -> SegmentMessage:
    """Decode a complete message, header included. Raises Fault, with offset `at`, for anything else."""
    if len(data) < HEADER_BYTES:
        raise FrameFault(f"{len(data)} bytes where a message was expected", at)
    type_id, length = HEADER.unpack_from(data)
    cls = message_class(dialect, type_id)
    if cls is None:
        raise FrameFault(f"unknown message type {type_id}", at)
    if length != len(data) - HEADER_BYTES:
        raise FrameFault(f"{cls.__name__} of {length} bytes in {len(data) - HEADER_BYTES} bytes", at)
    try:
        return decode_body(cls, memoryview(data)[HEADER_BYTES:], version)
    except MalformedValue as error:
        raise FrameFault(error.text, at) from None
