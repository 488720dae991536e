"""Walk through the content of a draft block as it arrives (segment fact sheet, section 2, reading 6).

A block may be announced at 2 GiB. It is delivered in pieces of whole events, so at most one piece and one event are
held. Everything delivered is certain: zero bytes, which may turn out to be padding, are only counted until
EndAppendBlock tells which they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from msgspec import Struct

from penstock.model.byte_events import EVENT_HEADER_BYTES
from penstock_pravega.codec.draft import BeginAppendBlock, Event, Partial
from penstock_pravega.codec.draft_order import DraftRequests, DraftState
from penstock_pravega.codec.frames import FrameFault, Frames
from penstock_pravega.codec.layout import HEADER_BYTES, show_value

__all__ = ["BlockData", "Pieces", "walk_block", "whole_events"]

_TYPE_AND_LENGTH: Final = struct.Struct(">Q")
ZERO_WINDOW: Final = 4096
"""Bytes to search for zeros at a time; at 8 bytes at a time, 1 GiB of padding would take 20 seconds."""
_ZEROS: Final = bytes(65_536)
"""Runs of at least this many zeros are compared and not copied."""


class BlockData(Struct, frozen=True):
    """Whole Event messages of a draft block, all of which are to be stored; `offset` is their connection offset.

    The ends of pieces do not depend on how the bytes arrived. A client sends the content of a block the same way.
    """

    connection_id: UUID
    offset: int
    data: bytes

    def __repr__(self) -> str:
        return show_value(self)


class Pieces:
    """The events of one block, gathered into pieces: a piece ends with the event that fills it."""

    def __init__(self, full: int) -> None:
        self._full = full
        self._parts: list[bytes] = []
        self._connection = UUID(int=0)
        self._offset = 0
        self.size = 0
        """Bytes gathered."""

    @property
    def room(self) -> int:
        """Bytes missing to a full piece."""
        return self._full - self.size

    def begin(self, begin: BeginAppendBlock) -> None:
        """Start a block."""
        self._connection = begin.connection_id
        self._offset = begin.connection_offset

    def add(self, events: bytes) -> Iterator[BlockData]:
        """Add whole events, of which only the last may fill the piece; yield the piece if it is full."""
        self._parts.append(events)
        self.size += len(events)
        if self.size >= self._full:
            yield from self.flush()

    def empty_events(self, size: int) -> Iterator[BlockData]:
        """Add empty events of `size` bytes in all; yield the pieces that they fill."""
        while size:
            step = min(size, -(-self.room // EVENT_HEADER_BYTES) * EVENT_HEADER_BYTES)
            yield from self.add(bytes(step))
            size -= step

    def flush(self) -> Iterator[BlockData]:
        """Yield the gathered events, if any."""
        if self.size:
            data = b"".join(self._parts)
            piece = BlockData(self._connection, self._offset, data)
            self._parts.clear()
            self._offset += self.size
            self.size = 0
            yield piece


def walk_block(frames: Frames, order: DraftRequests, pieces: Pieces) -> Iterator[BlockData | None]:
    """Yield the pieces of a block, up to its end or a Partial, and None whenever bytes are missing. Raises Fault,
    Violation."""
    while order.state is DraftState.BLOCK:
        left = order.block.left
        end = min(len(frames.data), frames.at + left)
        size = whole_events(frames.data, frames.at, end, frames.at + pieces.room, frames.longest)
        if size and order.block.zeros:
            yield from pieces.empty_events(order.settle())
        elif size:
            order.events(size)
            yield from pieces.add(frames.take(size))
        elif frames.held < min(left, HEADER_BYTES):
            yield None
        elif zeros := leading_zeros(frames, left):
            order.zeros(zeros)
            frames.at += zeros
        elif not _wait(frames, left):
            return
        else:
            yield None


def whole_events(data: bytes | bytearray, at: int, end: int, full: int, longest: int) -> int:
    """Return the bytes of whole events, none empty or longer than `longest`, from `at` on: up to `end`, or including
    the first that reaches `full`.

    Type and length are read as one number. Measured per event of 100 B: 0.13 us; decoding it as a message 3 us.
    """
    header = _TYPE_AND_LENGTH.unpack_from
    start, last = at, end - HEADER_BYTES
    while at <= last and at < full:
        (length,) = header(data, at)
        following = at + HEADER_BYTES + length
        if not 0 < length <= longest or following > end:
            break
        at = following
    return at - start


def leading_zeros(frames: Frames, left: int) -> int:
    """Return the number of zero bytes that come next: a whole number of empty events, or all that is left of the
    block."""
    if left >= len(_ZEROS) and frames.data.startswith(_ZEROS, frames.at):
        return len(_ZEROS)
    end = min(frames.at + ZERO_WINDOW, len(frames.data), frames.at + left)
    window = frames.data[frames.at : end]
    zeros = len(window) - len(window.lstrip(b"\0"))
    return zeros if zeros == left else zeros - zeros % EVENT_HEADER_BYTES


def _wait(frames: Frames, left: int) -> bool:
    """Return True to wait for the rest of the next message, which is not a whole event, or False if it is a complete
    Partial."""
    if left < HEADER_BYTES:
        raise FrameFault(f"{left} bytes at the end of a block are neither a message nor padding", frames.position)
    head = frames.head()
    assert head is not None, "the walk has seen its header"
    cls, length = head
    if cls not in (Event, Partial):
        raise FrameFault(f"{cls.__name__} inside a block, which has {left} bytes left", frames.position)
    if HEADER_BYTES + length > left:
        raise FrameFault(f"{cls.__name__} of {length} bytes in a block, which has {left} bytes left", frames.position)
    return frames.until(HEADER_BYTES + length)
