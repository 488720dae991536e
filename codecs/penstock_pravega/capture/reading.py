"""Read requests and replies of the segment protocol in recorded bytes, by the codec's frames, layouts and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.capture.dialogue.sides import PlacedEvent, UnreadableBytes
from penstock.model.byte_events import join_events
from penstock_pravega.capture.clauses import segment_clause
from penstock_pravega.capture.dialect_detection import DetectedDialect
from penstock_pravega.codec.appends import Violation
from penstock_pravega.codec.blocks import BlockData
from penstock_pravega.codec.decoder import DraftRequestDecoder
from penstock_pravega.codec.draft import BeginAppendBlock, EndAppendBlock, Partial, PartialKind
from penstock_pravega.codec.draft import SetupAppend as DraftSetupAppend
from penstock_pravega.codec.draft_order import DraftRequests
from penstock_pravega.codec.draft_order import DraftState as DraftState
from penstock_pravega.codec.frames import FrameFault, Frames, decode_message
from penstock_pravega.codec.layout import HEADER_BYTES, Dialect, Direction, SegmentMessage
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.codec.partials import Reassembly
from penstock_pravega.codec.released import (
    AppendBlock,
    AppendBlockEnd,
    ConditionalAppend,
    ConditionalBlockEnd,
    Hello,
    SetupAppend,
)
from penstock_pravega.codec.released_order import ReleasedRequests, ReleasedState, check_versions

__all__ = ["DecodedMessage", "SegmentReader"]

LIMITS: Final = SegmentLimits()
_WRITES: Final = (AppendBlock, AppendBlockEnd, ConditionalAppend, ConditionalBlockEnd)


class DecodedMessage(NamedTuple):
    """A message, or the content of a draft block. `stored`: the events that an append stores, None if unknown.
    `partials`: the number of Partials in which it came."""

    message: SegmentMessage | BlockData
    stored: bytes | None = None
    partials: int = 0


class _PlacedFrames(Frames):
    """Frames with the places of the current message's first Partial and of EndAppendBlock."""

    __slots__ = ("block_end", "last", "partial_from", "partials")

    def __init__(self, direction: Direction, offset: int) -> None:
        super().__init__(direction, Dialect.DRAFT, LIMITS.max_message_bytes)
        self.base = offset
        self.last: SegmentMessage | None = None
        self.partials = 0
        self.partial_from = offset
        self.block_end: tuple[int, int] | None = None

    def next(self) -> SegmentMessage | None:
        """Return the next message, or None if it is incomplete. Raises Fault."""
        message = super().next()
        if isinstance(message, Partial):
            if message.part is PartialKind.BEGIN:
                self.partials, self.partial_from = 0, self.start
            self.partials += 1
        elif isinstance(message, EndAppendBlock):
            self.block_end = (self.start, self.position)
        if message is not None:
            self.last = message
        return message

    @property
    def whole(self) -> tuple[int, int, int]:
        """Return the place of the message completed last, and the number of its Partials."""
        if isinstance(self.last, Partial):
            return self.partial_from, self.position, self.partials
        return self.start, self.position, 0


class SegmentReader:
    """Reader of one side's bytes from an offset on; `late`: it does not begin with the conversation."""

    def __init__(self, direction: Direction, detected: DetectedDialect, offset: int, *, late: bool) -> None:
        self._direction = direction
        self._detected = detected
        self._late = late
        self._frames = _PlacedFrames(direction, offset)
        self._decoder: _Decoder | None = None
        self._after: PlacedEvent | None = None  # to be returned after its Problem

    def receive(self, data: bytes) -> None:
        """Take the bytes that follow."""
        self._frames.receive(data)

    @property
    def begun(self) -> int:
        """Offset of the current message, block or append."""
        return self._frames.position if self._decoder is None else self._decoder.begun

    def next(self) -> PlacedEvent | None:
        """Return the next message, or piece of a block. Raises Unreadable."""
        if self._after is not None:
            after, self._after = self._after, None
            return after
        if self._decoder is None and not self._choose():
            return None
        assert self._decoder is not None, "just chosen"
        self._frames.version = self._detected.version
        try:
            placed = self._decoder.next()
        except FrameFault as fault:
            raise self._refuse(fault) from None
        except _Misplaced as misplaced:
            self._after = misplaced.placed
            raise _unreadable(str(misplaced), misplaced.placed.start, fatal=False) from None
        except Violation as violation:
            raise _unreadable(str(violation), self._frames.start) from None
        if placed is not None:
            self._detected.dialect = self._frames.dialect
            if isinstance(placed.event.message, Hello):
                self._detected.version = min(self._detected.version, placed.event.message.high_version)
        return placed

    def _choose(self) -> bool:
        if not self._late and not self._detected.decide(self._frames.data):
            return False
        self._frames.dialect = self._detected.dialect or self._detected.guess
        requests, released = self._direction is Direction.REQUEST, self._frames.dialect is Dialect.RELEASED
        self._decoder = _HEARINGS[requests, released](self._frames, self._late)
        return True

    def _refuse(self, fault: FrameFault) -> UnreadableBytes:
        """Report a malformed field of a complete message, and go on with the next one."""
        inside = fault.at >= self._frames.position + HEADER_BYTES
        if inside and isinstance(self._decoder, (_ReleasedRequests, _Replies)):
            head = self._frames.head()
            assert head is not None, "its body was read"
            self._frames.take(HEADER_BYTES + head[1])
            return _unreadable(fault.text, fault.at, fatal=False)
        return _unreadable(fault.text, fault.at)


def _unreadable(rule: str, at: int, *, fatal: bool = True) -> UnreadableBytes:
    return UnreadableBytes(rule, segment_clause(rule), at, fatal=fatal)


class _Misplaced(Exception):
    """A message that is not allowed here. It was decoded nevertheless, and so are the next ones."""

    def __init__(self, text: str, placed: PlacedEvent) -> None:
        super().__init__(text)
        self.placed = placed


class _Decoder:
    """One dialect, one direction."""

    def __init__(self, frames: _PlacedFrames, late: bool) -> None:
        self._frames = frames
        self._late = late

    @property
    def begun(self) -> int:
        return self._frames.position

    def next(self) -> PlacedEvent | None:
        raise NotImplementedError


class _ReleasedRequests(_Decoder):
    """Requests of the released protocol. After a violation, and in the middle, writers are assumed to be set up."""

    def __init__(self, frames: _PlacedFrames, late: bool) -> None:
        super().__init__(frames, late)
        self._order = ReleasedRequests(LIMITS, ReleasedState.OPEN if late else ReleasedState.START)
        self._block_at = 0
        self._known: set[object] = set()

    @property
    def begun(self) -> int:
        return self._block_at if self._order.block_open else self._frames.position

    def next(self) -> PlacedEvent | None:
        message = self._frames.next()
        if message is None:
            return None
        start, end, _ = self._frames.whole
        try:
            stored = self._take(message, start)
        except Violation as violation:
            self._order = ReleasedRequests(LIMITS, ReleasedState.OPEN)
            self._known.clear()
            self._late = True
            raise _Misplaced(str(violation), PlacedEvent(DecodedMessage(message), start, end)) from None
        return PlacedEvent(DecodedMessage(message, stored), start, end)

    def _take(self, message: SegmentMessage, start: int) -> bytes | None:
        if isinstance(message, AppendBlock):
            self._block_at = start
        cut = False
        if self._late and isinstance(message, _WRITES) and not self._order.block_open:
            if message.writer_id not in self._known:
                self._known.add(message.writer_id)
                self._order.take(SetupAppend(-1, message.writer_id, ""))
            # The block of an end that announces more than it has was not read.
            cut = isinstance(message, AppendBlockEnd) and message.size_of_whole_events != len(message.data)
        if isinstance(message, Hello):
            check_versions(message)
            if self._late:
                return None
        taken = self._order.take(message)
        if isinstance(message, ConditionalAppend):
            return join_events([message.event])
        if isinstance(message, ConditionalBlockEnd):
            return message.data
        return b"".join(taken) if isinstance(taken, list) and not cut else None


class _DraftOrder(DraftRequests):
    """Requests without our replies; in the middle of a conversation all connections are assumed to be set up."""

    def __init__(self, late: bool) -> None:
        super().__init__(LIMITS, observer=True)
        self._late = late
        self._known: set[object] = set()

    def plain(self, message: SegmentMessage, *, in_partials: bool = False) -> None:
        """Handle a message that is neither content of a block nor its end; see `DraftRequests.plain`."""
        if self._late and isinstance(message, BeginAppendBlock) and message.connection_id not in self._known:
            self._known.add(message.connection_id)
            super().plain(DraftSetupAppend(message.connection_id, ""))
        super().plain(message, in_partials=in_partials)


class _DraftRequests(_Decoder):
    """Requests of the draft."""

    def __init__(self, frames: _PlacedFrames, late: bool) -> None:
        super().__init__(frames, late)
        self._order = _DraftOrder(late)
        self._decoder = DraftRequestDecoder(frames, self._order, LIMITS)
        self._content = frames.position  # where that begins of a block which was not reported

    @property
    def begun(self) -> int:
        if not self._decoder.unfinished:
            return self._frames.position
        return self._content if self._order.state is not DraftState.OPEN else self._frames.partial_from

    def next(self) -> PlacedEvent | None:
        event = self._decoder.next()
        if event is None:
            return None
        start, end, partials = self._frames.whole
        if isinstance(event, BlockData):
            if isinstance(self._frames.last, EndAppendBlock):
                end = self._frames.start
            elif partials and self._order.state is DraftState.OPEN and self._frames.block_end is None:
                end = start  # EndAppendBlock came in Partials
            start, self._content = self._content, end
            return PlacedEvent(DecodedMessage(event, event.data), start, end)
        assert isinstance(event, SegmentMessage), "the draft has no appends in one piece"
        if isinstance(event, EndAppendBlock) and self._frames.block_end is not None:
            (start, end), partials = self._frames.block_end, 0  # it waited for the rest of an event behind it
            self._frames.block_end = None
        if isinstance(event, BeginAppendBlock):
            self._content = end
        return PlacedEvent(DecodedMessage(event, None, partials), start, end)


class _Replies(_Decoder):
    """Replies of either dialect; in the draft any of them may come in Partials."""

    def __init__(self, frames: _PlacedFrames, late: bool) -> None:
        super().__init__(frames, late)
        self._partials = Reassembly(LIMITS.max_message_bytes)
        self._greeted = late or frames.dialect is Dialect.DRAFT

    @property
    def begun(self) -> int:
        return self._frames.partial_from if self._partials.open else self._frames.position

    def next(self) -> PlacedEvent | None:
        while (message := self._message()) is not None:
            if isinstance(message, Partial):
                whole = self._partials.take(message)
                if whole is None:
                    continue
                message = decode_message(whole, Dialect.DRAFT, self._frames.version, self._frames.start)
            start, end, partials = self._frames.whole
            placed = PlacedEvent(DecodedMessage(message, None, partials), start, end)
            self._check(message, placed)
            return placed
        return None

    def _message(self) -> SegmentMessage | None:
        """Decode a reply. One has an older layout: if the versions are unknown, the layout that fits is taken."""
        head = self._frames.head()
        if head is None or head[0].older is None:
            return self._frames.next()
        try:
            return self._frames.next()
        except FrameFault:
            self._frames.version = head[0].older.before - 1
            return self._frames.next()

    def _check(self, message: SegmentMessage, placed: PlacedEvent) -> None:
        """Check that the released server answers Hello first (1.2)."""
        name = type(message).__name__
        if message.direction not in (Direction.REPLY, Direction.BOTH):
            raise Violation(f"{name} is not for the server to send")
        hello, greeted = isinstance(message, Hello), self._greeted
        self._greeted = True
        if isinstance(message, Hello):
            try:
                check_versions(message)
            except Violation as violation:
                raise _Misplaced(str(violation), placed) from None
        if hello and greeted and not self._late:
            raise _Misplaced("a second Hello", placed)
        if not hello and not greeted:
            raise _Misplaced(f"{name} before Hello", placed)


_HEARINGS: Final[dict[tuple[bool, bool], Callable[[_PlacedFrames, bool], _Decoder]]] = {
    (True, True): _ReleasedRequests,
    (True, False): _DraftRequests,
    (False, True): _Replies,
    (False, False): _Replies,
}
