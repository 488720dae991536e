"""Split one side's bytes into frames of HTTP/2 (RFC 9113, 4 and 6). DATA is passed on, other frames are held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from penstock.model.limits import KIB
from penstock.wire.http.observer.faults import BytesAt, HttpFault, TimedRange

__all__ = [
    "ACK",
    "END_HEADERS",
    "END_STREAM",
    "LARGEST_FRAME",
    "PADDED",
    "PRIORITY",
    "Frame2",
    "FrameScanner",
    "FrameType",
    "block_fragment",
    "plausible",
]

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20

_HEADER: Final = Struct(">HBBBL")
_HEADER_BYTES: Final = 9
_SMALLEST_MAX: Final = 16 * KIB
LARGEST_FRAME: Final = 2**24 - 1
_MOST_HELD: Final = 1024 * KIB
"""Largest frame that is not DATA. Those are headers and settings, of which no peer takes as much."""
_ENOUGH: Final = 3


class FrameType(IntEnum):
    """Types of RFC 9113, 6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Frame2(NamedTuple):
    """Header of a frame at `offset`; `type` may be unknown to RFC 9113."""

    length: int
    type: int
    flags: int
    stream_id: int
    offset: int
    start_ns: int

    @property
    def name(self) -> str:
        """Name of the type."""
        return FrameType(self.type).name if self.type <= FrameType.CONTINUATION else f"type {self.type:#x}"


_DATA: Final = int(FrameType.DATA)  # an IntEnum takes longer to compare


class _Shape(NamedTuple):
    """Rules of RFC 9113 for a type: on a stream or not (None: either), its length (least and most), and its flags."""

    section: str
    on_stream: bool | None
    least: int
    most: int
    flags: int


_SHAPES: Final[dict[int, _Shape]] = {
    FrameType.DATA: _Shape("6.1", True, 0, LARGEST_FRAME, END_STREAM | PADDED),
    FrameType.HEADERS: _Shape("6.2", True, 0, LARGEST_FRAME, END_STREAM | END_HEADERS | PADDED | PRIORITY),
    FrameType.PRIORITY: _Shape("6.3", True, 5, 5, 0),
    FrameType.RST_STREAM: _Shape("6.4", True, 4, 4, 0),
    FrameType.SETTINGS: _Shape("6.5", False, 0, LARGEST_FRAME, ACK),
    FrameType.PUSH_PROMISE: _Shape("6.6", True, 4, LARGEST_FRAME, END_HEADERS | PADDED),
    FrameType.PING: _Shape("6.7", False, 8, 8, ACK),
    FrameType.GOAWAY: _Shape("6.8", False, 8, LARGEST_FRAME, 0),
    FrameType.WINDOW_UPDATE: _Shape("6.9", None, 4, 4, 0),
    FrameType.CONTINUATION: _Shape("6.10", True, 0, LARGEST_FRAME, END_HEADERS),
}


class FrameScanner:
    """Splitter of bytes into frames. `on_data` gets a piece of DATA's content, its offset and time; `on_frame` a whole
    frame.

    For DATA `on_frame` is called after its content, with an empty payload. `on_padding`: as `on_data`, for the padding
    behind. Raises Fault, after which nothing can be read.
    """

    def __init__(
        self,
        on_data: Callable[[Frame2, memoryview, int, int], None],
        on_frame: Callable[[Frame2, bytes, TimedRange], None],
        on_padding: Callable[[Frame2, memoryview, int, int], None] | None = None,
    ) -> None:
        self._on_data = on_data
        self._on_padding = on_padding
        self._on_frame = on_frame
        self._header = b""  # received part of the next header
        self._header_ns = 0
        self._frame: Frame2 | None = None
        self._left = 0  # bytes of its payload that have not come
        self._padding = -1  # of DATA, once it is known
        self._payload = bytearray()
        self.begun = 0
        """Offset of the frame that came last, complete or not."""
        self.max_frame = _SMALLEST_MAX
        """Largest frame that the receiver accepts (RFC 9113, 4.2)."""

    @property
    def frame(self) -> Frame2 | None:
        """The incomplete frame, once its header is complete."""
        return self._frame

    @property
    def half(self) -> int:
        """Bytes of an incomplete frame."""
        if self._frame is None:
            return len(self._header)
        return _HEADER_BYTES + self._frame.length - self._left

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Take bytes."""
        at, size = 0, len(data)
        while at < size:
            frame = self._frame
            if frame is None:
                at = self._take_header(data, at, offset, time_ns)
                continue
            piece = data[at : at + self._left]
            self._left -= len(piece)
            if frame.type != _DATA:
                self._payload += piece
            else:
                self._data(frame, piece, offset + at, time_ns)
            at += len(piece)
            if not self._left:
                self._complete(frame, offset + at, time_ns)

    def pass_over(self, data: memoryview, contents: Mapping[int, object]) -> int:
        """Pass over whole frames of DATA without flags, at the beginning of a frame, of streams whose content is None,
        and return the number of bytes: a tenth of the time of `receive`, which takes what is behind them."""
        at, size = 0, 0 if self.half else len(data)
        while at + _HEADER_BYTES <= size:
            high, low, kind, flags, stream_id = _HEADER.unpack_from(data, at)
            end = at + _HEADER_BYTES + (high << 8 | low)
            if kind != _DATA or flags or end > size or contents.get(stream_id, contents) is not None:
                break
            at = end
        return at

    def _take_header(self, data: memoryview, at: int, offset: int, time_ns: int) -> int:
        before = len(self._header)
        if not before:
            self._header_ns, self.begun = time_ns, offset + at
        if before or len(data) - at < _HEADER_BYTES:
            self._header += bytes(data[at : at + _HEADER_BYTES - before])
            if len(self._header) < _HEADER_BYTES:
                return len(data)
            high, low, kind, flags, stream_id = _HEADER.unpack(self._header)
            self._header = b""
        else:
            high, low, kind, flags, stream_id = _HEADER.unpack_from(data, at)
        at += _HEADER_BYTES - before
        frame = Frame2(high << 8 | low, kind, flags, stream_id & 0x7FFFFFFF, self.begun, self._header_ns)
        self._check(frame)
        self._frame, self._left, self._padding = frame, frame.length, -1 if flags & PADDED else 0
        if not frame.length:
            self._complete(frame, offset + at, time_ns)
        return at

    def _check(self, frame: Frame2) -> None:
        length, kind, flags, stream_id, _, _ = frame
        most = self.max_frame if kind == _DATA else min(self.max_frame, _MOST_HELD)
        if length > most:
            raise _misframed(frame, 0, f"a frame has at most {most} bytes here", "4.2")
        shape = _SHAPES.get(kind)
        if shape is None:
            return
        if shape.on_stream is not None and shape.on_stream is not (stream_id != 0):
            where = "on a stream" if shape.on_stream else "on stream 0"
            raise _misframed(frame, 5, f"{frame.name} is {where}", shape.section)
        if not (1 if flags & shape.flags & PADDED else shape.least) <= length <= shape.most:
            raise _misframed(frame, 0, f"{frame.name} does not have {length} bytes", shape.section)

    def _data(self, frame: Frame2, piece: memoryview, offset: int, time_ns: int) -> None:
        if self._padding < 0:
            self._padding = piece[0]
            if self._padding >= frame.length:
                rule = "padding is shorter than its frame"
                raise HttpFault(offset, rule, "RFC 9113, section 6.1", BytesAt(offset, bytes(piece[:256])))
            piece, offset = piece[1:], offset + 1
        content = piece[: max(0, len(piece) + self._left - self._padding)] if self._padding else piece
        if content:
            self._on_data(frame, content, offset, time_ns)
        if self._on_padding is not None and len(content) < len(piece):
            self._on_padding(frame, piece[len(content) :], offset + len(content), time_ns)

    def _complete(self, frame: Frame2, end: int, time_ns: int) -> None:
        self._frame = None
        payload = b""
        if self._payload:
            payload = bytes(self._payload)
            self._payload.clear()
        self._on_frame(frame, payload, TimedRange(frame.offset, end, frame.start_ns, time_ns))


def _misframed(frame: Frame2, at: int, rule: str, section: str) -> HttpFault:
    length, kind, flags, stream_id, offset, _ = frame
    header = _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)
    return HttpFault(offset + at, rule, f"RFC 9113, section {section}", BytesAt(offset, header))


def block_fragment(frame: Frame2, payload: bytes) -> tuple[int, int]:
    """Return start and end of the piece of a header block in the payload of HEADERS, PUSH_PROMISE or CONTINUATION.
    Raises HttpFault."""
    start, end = 0, len(payload)
    if frame.type == FrameType.CONTINUATION:
        return start, end
    if frame.flags & PADDED:
        start, end = 1, end - payload[0]
    if frame.type == FrameType.PUSH_PROMISE:
        start += 4
    elif frame.flags & PRIORITY:
        start += 5
    if start > end:
        held = BytesAt(frame.offset + _HEADER_BYTES, payload[:256])
        raise HttpFault(held.offset, f"padding is shorter than {frame.name}", "RFC 9113, section 6.2", held)
    return start, end


def plausible(data: bytes | memoryview, *, whole: bool = False) -> bool:
    """Return whether bytes look like frames: the first header, and all later ones that it leads to.

    `whole`: there must also be whole frames, of the first 16 million streams, up to the end or at least three.
    """
    at = count = 0
    while at + _HEADER_BYTES <= len(data):
        high, low, kind, flags, stream_id = _HEADER.unpack_from(data, at)
        length = high << 8 | low
        shape = _SHAPES.get(kind)
        if shape is None or flags & ~shape.flags or stream_id >> (24 if whole else 31):
            return False
        if shape.on_stream is not None and shape.on_stream != bool(stream_id):
            return False
        if not shape.least <= length <= min(shape.most, _MOST_HELD):
            return False
        at += _HEADER_BYTES + length
        count += at <= len(data)
    return bool(count) and (at == len(data) or count >= _ENOUGH) if whole else at > 0
