"""Counts the records of S2S sessions that pass through, from the server's frames.

The batches that clients append are not parsed. Acknowledgements are a few bytes for each batch, and give its number of
records: that takes 4.4 us a batch, while passing through one of 100 records of 1 KiB takes 170. The records of batches
that are read are counted by their lengths, see `count_records`, which decompresses them for servers that compress.

An invalid frame ends a count; the session ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from penstock.wire.http import Buffer
from penstock_proto import s2_pb2
from penstock_s2.codec.record_count import count_records
from penstock_s2.codec.s2s.frames import HEAD_BYTES, Frame, FrameError, FrameReader, is_plain
from penstock_s2.codec.s2s.limits import S2S_MAX_FRAME_LENGTH

__all__ = ["AckCounter", "ReadBatchCounter"]

_parse: Final = s2_pb2.AppendAck.FromString


class AckCounter:
    """Counts the batches that the server of an append session acknowledges."""

    def __init__(self) -> None:
        self._reader: FrameReader | None = FrameReader()

    def count(self, pieces: Sequence[Buffer]) -> list[int]:
        """Return the number of records of each batch that is acknowledged in these bytes; see
        `RawSession.count_batches`."""
        counts: list[int] = []
        if self._reader is None:
            return counts
        try:
            for piece in pieces:
                self._reader.feed(piece)
                while isinstance(frame := self._reader.next(), Frame):
                    ack = _parse(bytes(frame.payload))
                    counts.append(max(ack.end.seq_num - ack.start.seq_num, 0))
                if frame is not None:  # a terminal frame
                    self._reader = None
                    break
        except (FrameError, DecodeError):
            self._reader = None
        return counts


class ReadBatchCounter:
    """Counts the batches of a read session.

    Frames may be large: until one is complete its pieces are kept without copying.
    """

    def __init__(self) -> None:
        self._head = b""  # of the current frame
        self._parts: list[memoryview] = []  # of its payload
        self._missing = 0  # bytes of the head or the payload
        self._ended = False
        self._begin_frame()

    def _begin_frame(self) -> None:
        self._head, self._parts, self._missing = b"", [], HEAD_BYTES

    def count(self, pieces: Sequence[Buffer]) -> list[int]:
        """Return the number of records of each batch that is complete with these bytes; see
        `RawSession.count_batches`."""
        counts: list[int] = []
        for piece in pieces:
            view, at = memoryview(piece), 0
            while at < len(view) and not self._ended:
                part = view[at : at + self._missing]
                at += len(part)
                self._missing -= len(part)
                self._add(part, counts)
        return counts

    def _add(self, part: memoryview, counts: list[int]) -> None:
        if len(self._head) == HEAD_BYTES:
            self._parts.append(part)
        else:
            self._head += part
            if not self._missing:
                length = int.from_bytes(self._head[:-1], "big")  # it counts the flags, too
                self._missing = length - 1 if 0 < length <= S2S_MAX_FRAME_LENGTH else 0
        if len(self._head) == HEAD_BYTES and not self._missing:
            self._finish_frame(counts)

    def _finish_frame(self, counts: list[int]) -> None:
        try:
            records = self._records()
        except (FrameError, DecodeError):
            records = None
        self._begin_frame()
        self._ended = records is None
        if records:
            counts.append(records)

    def _records(self) -> int | None:
        """Return the number of records in the frame; None if it is the last one. Raises FrameError and DecodeError."""
        if is_plain(self._head):
            return count_records(self._parts)
        reader = FrameReader()
        reader.feed(b"".join((self._head, *self._parts)))
        frame = reader.next()
        return count_records((frame.payload,)) if isinstance(frame, Frame) else None
