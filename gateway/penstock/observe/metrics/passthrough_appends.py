"""Metrics of passthrough sessions: their records are counted from the server's frames.

The batches that clients append are not parsed. Acknowledgements are a few bytes for each batch, and give its number of
records: that takes 4.4 us a batch, while passing through one of 100 records of 1 KiB takes 170. The records of batches
that are read are counted by their lengths, see `count_records`, which decompresses them for servers that compress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from google.protobuf.message import DecodeError

from penstock.observe.metrics.meters import FlowMeters, Meter
from penstock_codecs.http import Buffer
from penstock_codecs.s2.record_count import count_records
from penstock_codecs.s2s.frames import HEAD_BYTES, Frame, FrameError, FrameReader, is_plain
from penstock_codecs.s2s.limits import S2S_MAX_FRAME_LENGTH
from penstock_proto import s2_pb2

__all__ = ["PassthroughAppends", "PassthroughReads"]

_parse: Final = s2_pb2.AppendAck.FromString


class _Answers:
    """The server's frames of one session. An invalid frame ends the count; the session ends with it."""

    def __init__(self) -> None:
        self._reader: FrameReader | None = FrameReader()

    def answered(self, pieces: Sequence[Buffer]) -> None:
        """Count the frames in the server's bytes."""
        if self._reader is None:
            return
        try:
            for piece in pieces:
                self._reader.feed(piece)
                while isinstance(frame := self._reader.next(), Frame):
                    self._count(frame)
                if frame is not None:  # a terminal frame
                    self._reader = None
                    return
        except (FrameError, DecodeError):
            self._reader = None

    def _count(self, frame: Frame) -> None:
        """Count the contents of a frame. Raises DecodeError."""
        raise NotImplementedError


class PassthroughReads:
    """The server's frames of a read session. Frames may be large: until one is complete its pieces are kept without
    copying. An invalid frame ends the count; the session ends with it."""

    def __init__(self, flow: FlowMeters) -> None:
        self._flow = flow
        self._head = b""  # of the current frame
        self._parts: list[memoryview] = []  # of its payload
        self._missing = 0  # bytes of the head or the payload
        self._ended = False
        self._next()

    def _next(self) -> None:
        self._head, self._parts, self._missing = b"", [], HEAD_BYTES

    def answered(self, pieces: Sequence[Buffer]) -> None:
        """Count the frames in the server's bytes."""
        for piece in pieces:
            view, at = memoryview(piece), 0
            while at < len(view) and not self._ended:
                part = view[at : at + self._missing]
                at += len(part)
                self._missing -= len(part)
                self._take(part)

    def _take(self, part: memoryview) -> None:
        if len(self._head) == HEAD_BYTES:
            self._parts.append(part)
        else:
            self._head += part
            if not self._missing:
                length = int.from_bytes(self._head[:-1], "big")  # it counts the flags, too
                self._missing = length - 1 if 0 < length <= S2S_MAX_FRAME_LENGTH else 0
        if len(self._head) == HEAD_BYTES and not self._missing:
            self._finish_frame()

    def _finish_frame(self) -> None:
        try:
            records = self._records()
        except (FrameError, DecodeError):
            records = None
        self._next()
        self._ended = records is None
        self._flow.records.value += records or 0
        self._flow.batches.value += bool(records)

    def _records(self) -> int | None:
        """Return the number of records in the frame; None if it is the last one. Raises FrameError and DecodeError."""
        if is_plain(self._head):
            return count_records(self._parts)
        reader = FrameReader()
        reader.feed(b"".join((self._head, *self._parts)))
        frame = reader.next()
        return count_records((frame.payload,)) if isinstance(frame, Frame) else None


class PassthroughAppends(_Answers):
    """The frames of an append session, in both directions."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter
        self._sent: deque[float] = deque()  # send times of batches that are not acknowledged

    def sent(self, frames: int) -> None:
        """Start timing the batches of so many frames, which are on their way to the server."""
        self._sent.extend([perf_counter()] * frames)

    def _count(self, frame: Frame) -> None:
        ack = _parse(bytes(frame.payload))
        flow = self._meter.appends
        flow.records.value += max(ack.end.seq_num - ack.start.seq_num, 0)
        flow.batches.value += 1
        if self._sent:
            self._meter.append_seconds.observe(perf_counter() - self._sent.popleft())
