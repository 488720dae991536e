"""Which draft request may come when, and what a block comes to (the seed, and the segment fact sheet, section 2).

Both ends hold requests to this. What stands in a block is counted here, and kept by whoever wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

from penstock_codecs.limits import SegmentLimits
from penstock_codecs.segment.appends import Violation
from penstock_codecs.segment.draft import BeginAppendBlock, EndAppendBlock, Event, SetupAppend
from penstock_codecs.segment.events import EVENT_HEADER_BYTES
from penstock_codecs.segment.layout import Message

__all__ = ["TRANSITIONS", "DraftRequests", "Kind", "State"]


class State(Enum):
    """Where the requests of a connection are."""

    OPEN = "outside a block"
    BLOCK = "inside a block"
    FULL = "behind the last byte of a block, where EndAppendBlock must stand"
    SPLIT = "before the rest of a block's last event"


class Kind(Enum):
    """What the order of requests tells apart."""

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


class Row(NamedTuple):
    """What follows, and the clause that allows it: of the seed, or a reading of the fact sheet."""

    next: State
    clause: str


TRANSITIONS: Final = {
    (State.OPEN, Kind.OTHER): Row(State.OPEN, "seed: requests are self-contained; reading 15"),
    (State.OPEN, Kind.SETUP): Row(State.OPEN, "seed: there can be multiple Appends for a connection"),
    (State.OPEN, Kind.PARTIAL): Row(State.OPEN, "seed, Partial Message: for any reason; reading 5"),
    (State.OPEN, Kind.BEGIN): Row(State.BLOCK, "seed, BeginAppendBlock: only valid after SetupAppend; reading 9"),
    (State.BLOCK, Kind.EVENT): Row(State.BLOCK, "seed, Event: only valid inside of a block"),
    (State.BLOCK, Kind.PADDING): Row(State.BLOCK, "reading 6: ended early, filled with zero bytes"),
    (State.BLOCK, Kind.PARTIAL): Row(State.BLOCK, "seed, last paragraph: a partial message before EndAppendBlock"),
    (State.BLOCK, Kind.LAST_BYTE): Row(State.FULL, "seed, BeginAppendBlock 3; reading 6"),
    (State.FULL, Kind.END): Row(State.OPEN, "seed, EndAppendBlock; reading 7"),
    (State.FULL, Kind.END_SPLIT): Row(State.SPLIT, "seed, last paragraph: followed by the remaining partial message"),
    (State.SPLIT, Kind.PARTIAL): Row(State.SPLIT, "seed, last paragraph; reading 7"),
    (State.SPLIT, Kind.OTHER): Row(State.SPLIT, "reading 5: other messages may stand between the pieces"),
    (State.SPLIT, Kind.SETUP): Row(State.SPLIT, "reading 5"),
    (State.SPLIT, Kind.REST): Row(State.OPEN, "reading 7: complete only after the last Partial"),
}
"""What is not here is a violation of the protocol."""

_KINDS: Final[dict[type[Message], Kind]] = {
    SetupAppend: Kind.SETUP,
    BeginAppendBlock: Kind.BEGIN,
    Event: Kind.EVENT,
    EndAppendBlock: Kind.END,
}


@dataclass(slots=True)
class _Block:
    begin: BeginAppendBlock
    left: int
    """Bytes on the wire until EndAppendBlock."""
    stored: int = 0
    """Bytes of events that are certain."""
    zeros: int = 0
    """Zero bytes since: empty events, or padding. Only EndAppendBlock can tell (reading 6)."""
    partial: bool = False
    """Whether a Partial that began in this block is not complete."""
    end: EndAppendBlock | None = None


class DraftRequests:
    """The requests of one connection: whether they are legal, and how many bytes of a block count.

    `observer`: requests are heard without our replies, so a SetupAppend is taken to have succeeded at any level.
    """

    def __init__(self, limits: SegmentLimits, *, observer: bool = False) -> None:
        self.state = State.OPEN
        self._limits = limits
        self._observer = observer
        self._asked: set[UUID] = set()
        self._levels: dict[UUID, int | None] = {}
        self._block: _Block | None = None

    @property
    def block(self) -> _Block:
        """The block that is open."""
        assert self._block is not None, "only inside a block"
        return self._block

    def set_up(self, connection: UUID, level: int) -> None:
        """An AppendSetup was sent. Raises Violation where nobody asked for it."""
        if connection not in self._asked:
            raise Violation(f"AppendSetup for connection {connection}, which did not ask for it")
        self._levels[connection] = level

    def check(self, kind: Kind, name: str) -> State:
        """The state after something; raises Violation where it is not allowed now."""
        row = TRANSITIONS.get((self.state, kind))
        if row is None:
            raise Violation(f"{name} is not allowed {self.state.value}")
        return row.next

    def plain(self, message: Message) -> None:
        """A message that is no content of a block, nor its end."""
        following = self.check(_KINDS.get(type(message), Kind.OTHER), type(message).__name__)
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

    def _full(self, state: State) -> State:
        self.state = state
        return self.check(Kind.LAST_BYTE, "the end of the block")

    def _spend(self, size: int, what: str) -> None:
        """Bytes of a block's announced length."""
        block = self.block
        if size > block.left:
            raise Violation(f"{what} of {size} bytes, {block.left} are left in the block")
        block.left -= size
        if not block.left:
            self.state = self._full(self.state)

    def events(self, size: int) -> None:
        """Whole events that are not empty, `size` bytes in all."""
        self.check(Kind.EVENT, "Event")
        self._spend(size, "Event")
        self.settle()
        self.block.stored += size

    def settle(self) -> int:
        """Something follows the zero bytes since the last event, so they are empty events: padding stands last.

        Gives how many they are.
        """
        block = self.block
        zeros, block.zeros = block.zeros, 0
        block.stored += zeros
        return zeros

    def zeros(self, size: int) -> None:
        """Zero bytes: empty events or padding."""
        self.check(Kind.PADDING, "padding")
        self._spend(size, "padding")
        self.block.zeros += size

    def partial(self, size: int, *, begins: bool, event: int | None) -> int:
        """A Partial of `size` bytes with its header; `event` is the size of the Event that it completes, if any.

        Gives the zero bytes before that event which are events. It ends the block where EndAppendBlock waited for it.
        """
        self.check(Kind.PARTIAL, "Partial")
        if self.state is State.SPLIT:
            return 0 if event is None else self._rest(event)
        if self.state is State.OPEN:
            if event is not None:
                self.check(Kind.EVENT, "Event")
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
        self.state = self.check(Kind.REST, "Event")
        self._close(block.end)
        return zeros

    def end(self, end: EndAppendBlock) -> int | None:
        """Gives the zero bytes at the end of the block that are events, or None: wait for the rest of the last one."""
        self.check(Kind.END, "EndAppendBlock")
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
            self.state = self.check(Kind.END_SPLIT, "EndAppendBlock")
            return None
        self._empty_events(missing, "EndAppendBlock")
        self.state = self.check(Kind.END, "EndAppendBlock")
        self._close(end)
        return missing

    def _empty_events(self, missing: int, what: str) -> None:
        """Holds what is still missing from a block's length to the zero bytes that may be empty events."""
        block = self.block
        if missing < 0 or missing > block.zeros or missing % EVENT_HEADER_BYTES:
            raise Violation(
                f"{what} leaves {missing} bytes of the block's length, "
                f"which has {block.stored} bytes of events and {block.zeros} zero bytes"
            )

    def _close(self, end: EndAppendBlock) -> None:
        self._levels[end.connection_id] = end.connection_offset
        self._block = None
