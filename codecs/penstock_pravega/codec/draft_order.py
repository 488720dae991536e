"""The legal order of draft requests, and the length of blocks (the seed, and the segment fact sheet, section 2).

Both ends enforce it. The content of a block is only counted here; callers keep it if they need it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from penstock.model.byte_events import EVENT_HEADER_BYTES
from penstock_pravega.codec.appends import Violation
from penstock_pravega.codec.draft import BeginAppendBlock, EndAppendBlock, Event, SetupAppend
from penstock_pravega.codec.layout import SegmentMessage
from penstock_pravega.codec.limits import SegmentLimits

__all__ = ["TRANSITIONS", "DraftKind", "DraftRequests", "DraftState"]


class DraftState(Enum):
    """The state of a connection's requests."""

    OPEN = "outside a block"
    BLOCK = "inside a block"
    FULL = "behind the last byte of a block, where EndAppendBlock must stand"
    ENDING = "before the rest of EndAppendBlock"
    SPLIT = "before the rest of a block's last event"


class DraftKind(Enum):
    """The kinds of requests that the order distinguishes."""

    SETUP = auto()
    BEGIN = auto()
    EVENT = auto()
    PADDING = auto()
    PARTIAL = auto()
    LAST_BYTE = auto()
    END = auto()
    END_SPLIT = auto()
    REST = auto()
    OTHER = auto()


class _Row(NamedTuple):
    """The next state, and the clause that allows it: of the seed, or a reading of the fact sheet."""

    next: DraftState
    clause: str


TRANSITIONS: Final = {
    (DraftState.OPEN, DraftKind.OTHER): _Row(DraftState.OPEN, "seed: requests are self-contained; reading 15"),
    (DraftState.OPEN, DraftKind.SETUP): _Row(DraftState.OPEN, "seed: there can be multiple Appends for a connection"),
    (DraftState.OPEN, DraftKind.PARTIAL): _Row(DraftState.OPEN, "seed, Partial Message: for any reason; reading 5"),
    (DraftState.OPEN, DraftKind.BEGIN): _Row(
        DraftState.BLOCK, "seed, BeginAppendBlock: only valid after SetupAppend; reading 9"
    ),
    (DraftState.BLOCK, DraftKind.EVENT): _Row(DraftState.BLOCK, "seed, Event: only valid inside of a block"),
    (DraftState.BLOCK, DraftKind.PADDING): _Row(DraftState.BLOCK, "reading 6: ended early, filled with zero bytes"),
    (DraftState.BLOCK, DraftKind.PARTIAL): _Row(
        DraftState.BLOCK, "seed, last paragraph: a partial message before EndAppendBlock"
    ),
    (DraftState.BLOCK, DraftKind.LAST_BYTE): _Row(DraftState.FULL, "seed, BeginAppendBlock 3; reading 6"),
    (DraftState.FULL, DraftKind.END): _Row(DraftState.OPEN, "seed, EndAppendBlock; reading 7"),
    (DraftState.FULL, DraftKind.END_SPLIT): _Row(
        DraftState.SPLIT, "seed, last paragraph: followed by the remaining partial message"
    ),
    (DraftState.FULL, DraftKind.PARTIAL): _Row(
        DraftState.ENDING, "seed, Partial Message: for any reason; EndAppendBlock itself"
    ),
    (DraftState.ENDING, DraftKind.PARTIAL): _Row(DraftState.ENDING, "seed, Partial Message"),
    (DraftState.ENDING, DraftKind.OTHER): _Row(DraftState.ENDING, "reading 5"),
    (DraftState.ENDING, DraftKind.SETUP): _Row(DraftState.ENDING, "reading 5"),
    (DraftState.ENDING, DraftKind.END): _Row(DraftState.OPEN, "seed, EndAppendBlock; reading 7"),
    (DraftState.SPLIT, DraftKind.PARTIAL): _Row(DraftState.SPLIT, "seed, last paragraph; reading 7"),
    (DraftState.SPLIT, DraftKind.OTHER): _Row(
        DraftState.SPLIT, "reading 5: other messages may stand between the pieces"
    ),
    (DraftState.SPLIT, DraftKind.SETUP): _Row(DraftState.SPLIT, "reading 5"),
    (DraftState.SPLIT, DraftKind.REST): _Row(DraftState.OPEN, "reading 7: complete only after the last Partial"),
}
"""Legal transitions; all others violate the protocol."""

_KINDS: Final[dict[type[SegmentMessage], DraftKind]] = {
    SetupAppend: DraftKind.SETUP,
    BeginAppendBlock: DraftKind.BEGIN,
    Event: DraftKind.EVENT,
    EndAppendBlock: DraftKind.END,
}


class _Block(Struct):
    begin: BeginAppendBlock
    left: int
    """Bytes on the wire until EndAppendBlock."""
    stored: int = 0
    """Bytes of events that are certain."""
    zeros: int = 0
    """Zero bytes since then: empty events, or padding. Only EndAppendBlock can tell (reading 6)."""
    partial: bool = False
    """True while a Partial that began in this block is incomplete."""
    end: EndAppendBlock | None = None


class DraftRequests:
    """Checks the order of one connection's requests, and counts the stored bytes of a block.

    `observer`: requests are seen without our replies, so every SetupAppend is assumed to have succeeded, at any level.
    """

    def __init__(self, limits: SegmentLimits, *, observer: bool = False) -> None:
        self.state = DraftState.OPEN
        self._limits = limits
        self._observer = observer
        self._asked: set[UUID] = set()
        self._levels: dict[UUID, int | None] = {}
        self._block: _Block | None = None

    @property
    def block(self) -> _Block:
        """The open block."""
        assert self._block is not None, "only inside a block"
        return self._block

    def set_up(self, connection: UUID, level: int) -> None:
        """Record that an AppendSetup was sent. Raises Violation without a request for it."""
        if connection not in self._asked:
            raise Violation(f"AppendSetup for connection {connection}, which did not ask for it")
        self._levels[connection] = level

    def check(self, kind: DraftKind, name: str) -> DraftState:
        """Return the state after `kind`; raise Violation if it is not allowed now."""
        row = TRANSITIONS.get((self.state, kind))
        if row is None:
            raise Violation(f"{name} is not allowed {self.state.value}")
        return row.next

    def plain(self, message: SegmentMessage, *, in_partials: bool = False) -> None:
        """Take a message that is neither content of a block nor its end. `in_partials`: Partials made it up."""
        if in_partials and self.state is DraftState.ENDING:  # they began where only EndAppendBlock may
            raise Violation(f"{type(message).__name__} is not allowed behind the last byte of a block")
        following = self.check(_KINDS.get(type(message), DraftKind.OTHER), type(message).__name__)
        if isinstance(message, SetupAppend):
            self._ask(message.connection_id)
        elif isinstance(message, BeginAppendBlock):
            self._begin(message)
            following = following if message.length else self._full(following)
        self.state = following

    def _ask(self, connection: UUID) -> None:
        if connection not in self._asked and len(self._asked) >= self._limits.max_writers:
            raise Violation(f"more than {self._limits.max_writers} writers are set up on one connection")
        self._asked.add(connection)
        if self._observer:
            self._levels[connection] = None

    def _begin(self, begin: BeginAppendBlock) -> None:
        connection, offset = begin.connection_id, begin.connection_offset
        if connection not in self._levels:
            raise Violation(f"BeginAppendBlock of connection {connection}, which is not set up")
        level = self._levels[connection]
        if offset != level if level is not None else offset < 0:
            raise Violation(f"BeginAppendBlock at connection offset {offset}, {level or 0} was expected")
        if begin.length < 0:
            raise Violation(f"BeginAppendBlock with a length of {begin.length}")
        self._block = _Block(begin, begin.length)

    def _full(self, state: DraftState) -> DraftState:
        self.state = state
        return self.check(DraftKind.LAST_BYTE, "the end of the block")

    def _spend(self, size: int, what: str) -> None:
        """Consume bytes of a block's announced length."""
        block = self.block
        if size > block.left:
            raise Violation(f"{what} of {size} bytes, {block.left} are left in the block")
        block.left -= size
        if not block.left:
            self.state = self._full(self.state)

    def events(self, size: int) -> None:
        """Take whole events that are not empty, `size` bytes in all."""
        self.check(DraftKind.EVENT, "Event")
        self._spend(size, "Event")
        self.settle()
        self.block.stored += size

    def settle(self) -> int:
        """Count the zero bytes since the last event as empty events, since something follows them: padding is last.

        Returns how many they are.
        """
        block = self.block
        zeros, block.zeros = block.zeros, 0
        block.stored += zeros
        return zeros

    def zeros(self, size: int) -> None:
        """Take zero bytes: empty events or padding."""
        self.check(DraftKind.PADDING, "padding")
        self._spend(size, "padding")
        self.block.zeros += size

    def partial(self, size: int, *, begins: bool, event: int | None) -> int:
        """Take a Partial of `size` bytes with its header; `event` is the size of the Event that it completes, if any.

        Returns the zero bytes before that event that are events. Ends the block if EndAppendBlock came before.
        """
        following = self.check(DraftKind.PARTIAL, "Partial")
        if self.state is DraftState.SPLIT:
            return 0 if event is None else self._rest(event)
        if self.state is DraftState.FULL and not begins:
            raise Violation(f"the rest of a message in Partials is not allowed {self.state.value}")
        if self.state is not DraftState.BLOCK:
            if event is not None:
                self.check(DraftKind.EVENT, "Event")
            self.state = following
            return 0
        block = self.block
        self._spend(size, "Partial")
        block.partial = (block.partial or begins) and event is None
        zeros = 0 if event is None else self.settle()
        block.stored += event or 0
        return zeros

    def _rest(self, size: int) -> int:
        block = self.block
        assert block.end is not None, "set where the state became SPLIT"
        zeros = block.end.block_length - block.stored - size
        self._empty_events(zeros, f"the event of {size} bytes that Partials made up")
        self.state = self.check(DraftKind.REST, "Event")
        self._close(block.end)
        return zeros

    def end(self, end: EndAppendBlock, *, in_partials: bool = False) -> int | None:
        """End the block. Returns the zero bytes at its end that are events, or None if the rest of its last event is to
        come. `in_partials`: Partials made it up."""
        if in_partials is not (self.state is DraftState.ENDING):
            raise Violation(f"EndAppendBlock is not allowed {self.state.value}")
        self.check(DraftKind.END, "EndAppendBlock")
        block = self.block
        begin = block.begin
        if end.connection_id != begin.connection_id:
            raise Violation(f"EndAppendBlock of connection {end.connection_id} in a block of {begin.connection_id}")
        if end.connection_offset != begin.connection_offset + end.block_length:
            raise Violation(
                f"EndAppendBlock at connection offset {end.connection_offset}, "
                f"{begin.connection_offset} + {end.block_length} was expected"
            )
        missing = end.block_length - block.stored
        if block.partial and missing > 0:
            block.end = end
            self.state = self.check(DraftKind.END_SPLIT, "EndAppendBlock")
            return None
        self._empty_events(missing, "EndAppendBlock")
        self.state = self.check(DraftKind.END, "EndAppendBlock")
        self._close(end)
        return missing

    def _empty_events(self, missing: int, what: str) -> None:
        """Check that the missing bytes of a block's length can be zero bytes seen as empty events."""
        block = self.block
        if missing < 0 or missing > block.zeros or missing % EVENT_HEADER_BYTES:
            raise Violation(
                f"{what} leaves {missing} bytes of the block's length, "
                f"which has {block.stored} bytes of events and {block.zeros} zero bytes"
            )

    def _close(self, end: EndAppendBlock) -> None:
        self._levels[end.connection_id] = end.connection_offset
        self._block = None
