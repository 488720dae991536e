"""Metrics of passthrough sessions: their records are counted from the server's frames.

The batches that clients append are not parsed. Acknowledgements are a few bytes for each batch, and give its number of
records: that takes 4.4 us a batch, while passing through one of 100 records of 1 KiB takes 170. Batches that are read
are parsed for the number of their records, which takes 5 us for such a batch, and decompressed if the server
compresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from google.protobuf.message import DecodeError

from penstock.observe.metrics.meters import FlowMeters, Meter
from penstock_codecs.http import Buffer
from penstock_codecs.s2s.frames import MAX_HELD, Frame, FrameError, FrameReader
from penstock_proto import s2_pb2

__all__ = ["PassthroughAppends", "PassthroughReads"]

_parse: Final = s2_pb2.AppendAck.FromString
_parse_batch: Final = s2_pb2.ReadBatch.FromString
_LENGTH_BYTES: Final = 3
"""Size of a frame's length field (S2 fact sheet, 2.1), which counts the bytes after it."""


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


class PassthroughReads(_Answers):
    """The server's frames of a read session. Frames may be large: until one is complete its pieces are kept without
    copying."""

    def __init__(self, flow: FlowMeters) -> None:
        super().__init__()
        self._flow = flow
        self._parts: list[memoryview] = []  # of the current frame
        self._held, self._wanted = 0, _LENGTH_BYTES  # bytes of it

    def answered(self, pieces: Sequence[Buffer]) -> None:
        """Count the frames in the server's bytes."""
        for piece in pieces:
            view, at = memoryview(piece), 0
            while at < len(view) and self._reader is not None:
                part = view[at : at + self._wanted - self._held]
                at += len(part)
                self._take(part)

    def _take(self, part: memoryview) -> None:
        self._parts.append(part)
        self._held += len(part)
        if self._held == self._wanted == _LENGTH_BYTES:
            self._wanted += int.from_bytes(b"".join(self._parts), "big")
        if self._held == self._wanted:
            whole, self._parts = b"".join(self._parts), []
            self._held, self._wanted = 0, _LENGTH_BYTES
            super().answered((whole,))
        elif self._wanted > MAX_HELD:  # not a frame
            self._reader, self._parts = None, []

    def _count(self, frame: Frame) -> None:
        records = len(_parse_batch(bytes(frame.payload)).records)
        self._flow.records.value += records
        self._flow.batches.value += records > 0


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
