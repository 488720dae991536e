"""Decode a peer's bytes to messages: requests of both dialects, and replies."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NoReturn, Protocol

from penstock_pravega.codec.appends import BlockAppended, Violation
from penstock_pravega.codec.blocks import BlockData, Pieces, walk_block
from penstock_pravega.codec.draft import BeginAppendBlock, EndAppendBlock, Partial, PartialKind
from penstock_pravega.codec.draft_order import DraftRequests, DraftState
from penstock_pravega.codec.frames import Frames, decode_message
from penstock_pravega.codec.layout import HEADER_BYTES, Dialect, Direction, SegmentMessage
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.codec.partials import Reassembly
from penstock_pravega.codec.released import AppendBlockEnd, Hello
from penstock_pravega.codec.released_order import ReleasedRequests, block_appended, check_versions

__all__ = ["DraftRequestDecoder", "MessageDecoder", "ReleasedRequestDecoder", "ReplyDecoder"]

DecodedEvent = SegmentMessage | BlockAppended | BlockData


class MessageDecoder(Protocol):
    """Decoder for one dialect and direction."""

    def next(self) -> DecodedEvent | None:
        """Return the next event, or None if bytes are missing. Raises Fault, and Violation if the order is broken."""

    @property
    def held(self) -> int:
        """Bytes taken from the frames and not yet delivered."""

    @property
    def unfinished(self) -> str | None:
        """Description of what the peer has begun and not ended, or None."""


class ReleasedRequestDecoder:
    """Decoder for requests of the released protocol."""

    def __init__(self, frames: Frames, order: ReleasedRequests) -> None:
        self._frames = frames
        self._order = order
        self._unchecked: Hello | None = None

    def next(self) -> DecodedEvent | None:
        """Return the next request; AppendBlock and AppendBlockEnd together are one.

        A Hello is returned before its versions are refused: the real server answers it, and then closes (1.2).
        """
        if self._unchecked is not None:
            check_versions(self._unchecked)
            self._unchecked = None
        while (message := self._frames.next()) is not None:
            taken = self._order.take(message)
            if isinstance(taken, list):
                assert isinstance(message, AppendBlockEnd), "nothing else gives pieces"
                return block_appended(message, taken)
            if taken is not None:
                if isinstance(taken, Hello):
                    self._frames.version = min(self._frames.version, taken.high_version)
                    self._unchecked = taken
                return taken
        return None

    @property
    def held(self) -> int:
        """Bytes of an AppendBlock that waits for its end."""
        return self._order.held

    @property
    def unfinished(self) -> str | None:
        """Description of an AppendBlock without its end, or None."""
        return "an append: AppendBlockEnd is missing" if self._order.block_open else None


class DraftRequestDecoder:
    """Decoder for requests of the draft. The content of a block is delivered in pieces of whole events."""

    def __init__(self, frames: Frames, order: DraftRequests, limits: SegmentLimits) -> None:
        self._frames = frames
        self._order = order
        self._partials = Reassembly(limits.max_message_bytes)
        self._pieces = Pieces(limits.block_piece_bytes)
        self._end: EndAppendBlock | None = None
        self._requests = self._decode()

    @property
    def held(self) -> int:
        """Bytes of a piece, and of a message in Partials."""
        return self._pieces.size + self._partials.held

    @property
    def unfinished(self) -> str | None:
        """Description of an open block or message in Partials, or None."""
        if self._order.state is not DraftState.OPEN:
            return f"a block, {self._order.state.value}"
        return "a message in Partials" if self._partials.open else None

    def next(self) -> DecodedEvent | None:
        """Return the next request, or piece of a block. EndAppendBlock is returned after all of its block."""
        return next(self._requests)

    def _decode(self) -> Generator[DecodedEvent | None, None, NoReturn]:
        while True:
            if self._order.state is DraftState.BLOCK:
                yield from walk_block(self._frames, self._order, self._pieces)
            message = self._frames.next()
            if message is None:
                yield None
            elif isinstance(message, Partial):
                yield from self._partial(message)
            elif isinstance(message, EndAppendBlock):
                yield from self._ended(message)
            else:
                yield self._plain(message)

    def _plain(self, message: SegmentMessage, *, in_partials: bool = False) -> SegmentMessage:
        self._order.plain(message, in_partials=in_partials)
        if isinstance(message, BeginAppendBlock):
            self._pieces.begin(message)
        return message

    def _ended(self, end: EndAppendBlock, *, in_partials: bool = False) -> Iterator[DecodedEvent]:
        zeros = self._order.end(end, in_partials=in_partials)
        if zeros is None:
            self._end = end
        else:
            yield from self._pieces.empty_events(zeros)
            yield from self._pieces.flush()
            yield end

    def _partial(self, partial: Partial) -> Iterator[DecodedEvent]:
        whole = self._partials.take(partial)
        event = len(whole) if whole is not None and whole[:4] == bytes(4) else None
        size = HEADER_BYTES + 1 + len(partial.data)
        zeros = self._order.partial(size, begins=partial.part is PartialKind.BEGIN, event=event)
        if whole is None:
            return
        if event is None:
            message = decode_message(whole, Dialect.DRAFT, self._frames.version, self._frames.start)
            if message.direction is Direction.REPLY:
                raise Violation(f"{type(message).__name__} is not for the client to send")
            if isinstance(message, EndAppendBlock):
                yield from self._ended(message, in_partials=True)
            else:
                yield self._plain(message, in_partials=True)
            return
        yield from self._pieces.empty_events(zeros)
        yield from self._pieces.add(whole)
        if self._end is not None:
            yield from self._pieces.flush()
            yield self._end
            self._end = None


class ReplyDecoder:
    """Decoder for replies of either dialect; in the draft any of them may come in Partials."""

    def __init__(self, frames: Frames, limits: SegmentLimits) -> None:
        self._frames = frames
        self._partials = Reassembly(limits.max_message_bytes)
        self._greeted = frames.dialect is Dialect.DRAFT

    @property
    def held(self) -> int:
        """Bytes of a message in Partials."""
        return self._partials.held

    @property
    def unfinished(self) -> str | None:
        """Description of an incomplete message in Partials, or None."""
        return "a message in Partials" if self._partials.open else None

    def next(self) -> DecodedEvent | None:
        """Return the next reply, or None if bytes are missing."""
        while (message := self._frames.next()) is not None:
            if isinstance(message, Partial):
                whole = self._partials.take(message)
                if whole is None:
                    continue
                message = decode_message(whole, Dialect.DRAFT, self._frames.version, self._frames.start)
                if message.direction not in (Direction.REPLY, Direction.BOTH):
                    raise Violation(f"{type(message).__name__} is not for the server to send")
            self._check(message)
            return message
        return None

    def _check(self, message: SegmentMessage) -> None:
        """Check that the released server answers Hello first (1.2)."""
        if isinstance(message, Hello):
            check_versions(message)
            if self._greeted:
                raise Violation("a second Hello")
            self._greeted = True
            self._frames.version = min(self._frames.version, message.high_version)
        elif not self._greeted:
            raise Violation(f"{type(message).__name__} before Hello")
