"""Recorded bytes of an HTTP/2 server for a live client, within the client's flow-control windows.

Frames are sent as they were recorded, except that the live client's pings are answered. DATA waits for sufficient
windows (RFC 9113, 5.2), since the live client may send its WINDOW_UPDATEs later than the recorded one did. A DATA frame
larger than the initial window of the live client's streams might wait for ever: it is split.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import unpack_from
from typing import Final

from penstock_codecs.http import PREFACE
from penstock_codecs.http.observer.faults import TimedRange
from penstock_codecs.http.observer.frames import ACK, Frame2, FrameScanner, FrameType

__all__ = ["FlowWindows"]

_HEADER_BYTES: Final = 9
_TYPE_AT: Final = 3
_FLAGS_AT: Final = 4
_END_STREAM: Final = 0x1
_PADDED: Final = 0x8
_INITIAL_WINDOW: Final = 65_535
_INITIAL_WINDOW_SIZE: Final = 4
"""Identifier of SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, 6.5.2)."""
_MOST_STREAMS: Final = 10_000
"""Streams whose windows are remembered: the most recently used."""


class FlowWindows:
    """The windows of one connection. `received` takes the client's bytes, `put` the recorded ones; `ready` returns
    those that may be sent."""

    def __init__(self) -> None:
        self._preface = len(PREFACE)
        self._offset = 0
        self._scanner = FrameScanner(lambda _frame, _data, _offset, _time: None, self._frame)
        self._connection = _INITIAL_WINDOW
        self._initial = _INITIAL_WINDOW
        self._streams: OrderedDict[int, int] = OrderedDict()
        """By stream: increments of its window minus bytes sent, without the initial window."""
        self._waiting = bytearray()
        self._pongs: list[bytes] = []

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Process bytes of the client. Raises `penstock_codecs.http.observer.faults.HttpFault` if they are not
        HTTP/2."""
        skipped = min(self._preface, len(data))
        self._preface -= skipped
        piece = memoryview(data)[skipped:]
        self._scanner.receive(piece, self._offset, 0)
        self._offset += len(piece)

    def _frame(self, frame: Frame2, payload: bytes, _span: TimedRange) -> None:
        if frame.type == FrameType.WINDOW_UPDATE:
            (size,) = unpack_from(">L", payload)
            if frame.stream_id:
                self._add(frame.stream_id, size & 0x7FFFFFFF)
            else:
                self._connection += size & 0x7FFFFFFF
        elif frame.type == FrameType.SETTINGS and not frame.flags & ACK:
            for at in range(0, len(payload) - 5, 6):
                name, value = unpack_from(">HL", payload, at)
                if name == _INITIAL_WINDOW_SIZE:
                    self._initial = value
        elif frame.type == FrameType.PING and not frame.flags & ACK:
            self._pongs.append(b"\0\0\x08\x06\x01\0\0\0\0" + payload)

    def _add(self, stream_id: int, size: int) -> None:
        self._streams[stream_id] = self._streams.pop(stream_id, 0) + size
        if len(self._streams) > _MOST_STREAMS:
            self._streams.popitem(last=False)

    def put(self, data: bytes) -> None:
        """Add recorded bytes that are due."""
        self._waiting += data

    def ready(self) -> bytes:
        """Return the whole frames that may be sent now, without recorded answers to pings."""
        out = self._pongs
        self._pongs = []
        while (size := self._next()) is not None:
            frame = bytes(memoryview(self._waiting)[:size])
            del self._waiting[:size]
            if not (frame[_TYPE_AT] == FrameType.PING and frame[_FLAGS_AT] & ACK):
                out.append(frame)
        return b"".join(out)

    def rest(self) -> bytes:
        """Return the remaining bytes, whole frames or not, at the end of the recorded ones."""
        rest = bytes(self._waiting)
        self._waiting.clear()
        return rest

    @property
    def blocked(self) -> bool:
        """True if a DATA frame waits for the client's windows."""
        return len(self._waiting) > _TYPE_AT and self._waiting[_TYPE_AT] == FrameType.DATA and self._whole

    @property
    def _whole(self) -> bool:
        size = int.from_bytes(self._waiting[:3], "big")
        return len(self._waiting) >= _HEADER_BYTES + size

    def _next(self) -> int | None:
        """Return the size of the next frame if it is whole and may be sent, else None."""
        waiting = self._waiting
        if len(waiting) < _HEADER_BYTES or not self._whole:
            return None
        length = int.from_bytes(waiting[:3], "big")
        if waiting[_TYPE_AT] == FrameType.DATA:
            stream_id = int.from_bytes(waiting[5:9], "big") & 0x7FFFFFFF
            window = min(self._connection, self._initial + self._streams.get(stream_id, 0))
            if length > window:
                if window <= 0 or length <= self._initial or waiting[_FLAGS_AT] & _PADDED:
                    return None
                self._cut(length, window)
                length = window
            self._connection -= length
            self._add(stream_id, -length)
        return _HEADER_BYTES + length

    def _cut(self, length: int, first: int) -> None:
        """Split the next frame in two, the first with `first` bytes of data."""
        head = bytes(self._waiting[:_HEADER_BYTES])
        self._waiting[_HEADER_BYTES + first : _HEADER_BYTES + first] = (length - first).to_bytes(3, "big") + head[3:]
        self._waiting[:3] = first.to_bytes(3, "big")
        self._waiting[_FLAGS_AT] &= ~_END_STREAM
