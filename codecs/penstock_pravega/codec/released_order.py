"""The legal order of released requests (segment fact sheet, 1.2 and 1.4). Both ends enforce it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

from penstock_pravega.codec.appends import BlockAppended, Violation, stored_pieces
from penstock_pravega.codec.layout import SegmentMessage
from penstock_pravega.codec.limits import SEGMENT_VERSIONS, SegmentLimits
from penstock_pravega.codec.released import (
    AppendBlock,
    AppendBlockEnd,
    ConditionalAppend,
    ConditionalBlockEnd,
    Event,
    Hello,
    Padding,
    PartialEvent,
    SetupAppend,
)

__all__ = ["TRANSITIONS", "ReleasedKind", "ReleasedRequests", "ReleasedState", "check_versions"]

_WRITES: Final = (AppendBlock, AppendBlockEnd, ConditionalAppend, ConditionalBlockEnd)


class ReleasedState(Enum):
    """The state of a connection's requests."""

    START = "before Hello"
    OPEN = "outside an append"
    BLOCK = "between AppendBlock and AppendBlockEnd"


class ReleasedKind(Enum):
    """The kinds of requests that the order distinguishes."""

    HELLO = auto()
    SETUP = auto()
    BLOCK = auto()
    END = auto()
    CONDITIONAL = auto()
    INNER = auto()
    OTHER = auto()


class _Row(NamedTuple):
    """The next state, and the clause of the segment fact sheet that allows it."""

    next: ReleasedState
    clause: str


TRANSITIONS: Final = {
    (ReleasedState.START, ReleasedKind.HELLO): _Row(ReleasedState.OPEN, "1.2: client sends it first"),
    (ReleasedState.OPEN, ReleasedKind.OTHER): _Row(ReleasedState.OPEN, "1.3"),
    (ReleasedState.OPEN, ReleasedKind.SETUP): _Row(ReleasedState.OPEN, "1.4: several may share a connection"),
    (ReleasedState.OPEN, ReleasedKind.BLOCK): _Row(ReleasedState.BLOCK, "1.4: after SetupAppend of that writer"),
    (ReleasedState.OPEN, ReleasedKind.END): _Row(
        ReleasedState.OPEN, "1.4: legal without AppendBlock; after SetupAppend of that writer"
    ),
    (ReleasedState.OPEN, ReleasedKind.CONDITIONAL): _Row(ReleasedState.OPEN, "1.4: after SetupAppend of that writer"),
    (ReleasedState.BLOCK, ReleasedKind.END): _Row(ReleasedState.OPEN, "1.4: nothing else may come between"),
}
"""Legal transitions; all others violate the protocol."""

_KINDS: Final[dict[type[SegmentMessage], ReleasedKind]] = {
    Hello: ReleasedKind.HELLO,
    SetupAppend: ReleasedKind.SETUP,
    AppendBlock: ReleasedKind.BLOCK,
    AppendBlockEnd: ReleasedKind.END,
    ConditionalAppend: ReleasedKind.CONDITIONAL,
    ConditionalBlockEnd: ReleasedKind.CONDITIONAL,
    Event: ReleasedKind.INNER,
    Padding: ReleasedKind.INNER,
    PartialEvent: ReleasedKind.INNER,
}


class ReleasedRequests:
    """Checks the order of one connection's requests, and assembles their appends."""

    def __init__(self, limits: SegmentLimits, start: ReleasedState = ReleasedState.START) -> None:
        self.state = start
        self._limits = limits
        self._last_numbers: dict[UUID, int | None] = {}
        self._block: AppendBlock | None = None

    @property
    def held(self) -> int:
        """Bytes of an AppendBlock that waits for its end."""
        return 0 if self._block is None else len(self._block.data)

    @property
    def block_open(self) -> bool:
        """True while an AppendBlock waits for its end."""
        return self._block is not None

    def take(self, message: SegmentMessage) -> SegmentMessage | list[bytes | memoryview] | None:
        """Return what a request yields: itself, None (AppendBlock), or the pieces to store (AppendBlockEnd).

        Raises Violation. The versions in a Hello are not checked: see `check_versions`.
        """
        kind = _KINDS.get(type(message), ReleasedKind.OTHER)
        row = TRANSITIONS.get((self.state, kind))
        if row is None:
            raise Violation(f"{type(message).__name__} is not allowed {self.state.value}")
        taken: SegmentMessage | list[bytes | memoryview] | None = message
        if isinstance(message, _WRITES):
            taken = self._write(message)
        elif isinstance(message, SetupAppend):
            self._set_up(message.writer_id)
        self.state = row.next
        return taken

    def _set_up(self, writer: UUID) -> None:
        if writer not in self._last_numbers and len(self._last_numbers) >= self._limits.max_writers:
            raise Violation(f"more than {self._limits.max_writers} writers are set up on one connection")
        self._last_numbers[writer] = None

    def _write(
        self, message: AppendBlock | AppendBlockEnd | ConditionalAppend | ConditionalBlockEnd
    ) -> SegmentMessage | list[bytes | memoryview] | None:
        writer = message.writer_id
        if writer not in self._last_numbers:
            raise Violation(f"{type(message).__name__} of writer {writer}, which was not set up")
        if isinstance(message, AppendBlock):
            self._block = message
            return None
        if isinstance(message, AppendBlockEnd):
            pieces = stored_pieces(self._block, message)
            size = sum(map(len, pieces))
            if size > self._limits.max_append_bytes:
                raise Violation(f"an append of {size} bytes, at most {self._limits.max_append_bytes} are allowed")
            self._number(writer, message.last_event_number)
            self._block = None
            return pieces
        self._number(writer, message.event_number)
        return message

    def _number(self, writer: UUID, number: int) -> None:
        """Record a writer's event number. An equal number passes: InvalidEventNumber answers it, as it does stale ones
        after a reconnect."""
        last = self._last_numbers[writer]
        if last is not None and number < last:
            raise Violation(f"event number {number} of writer {writer} after {last}")
        self._last_numbers[writer] = number


def check_versions(hello: Hello) -> None:
    """Raise Violation if the peer speaks no wire version that we do (1.2)."""
    high, low = SEGMENT_VERSIONS
    if hello.low_version > hello.high_version:
        raise Violation(f"Hello with versions {hello.low_version} to {hello.high_version}")
    if hello.low_version > high or hello.high_version < low:
        raise Violation(f"the peer speaks versions {hello.low_version} to {hello.high_version}, we {low} to {high}")


def block_appended(end: AppendBlockEnd, pieces: list[bytes | memoryview]) -> BlockAppended:
    """Return the append that an AppendBlockEnd completes; without an AppendBlock its bytes are not copied."""
    data = end.data if len(pieces) == 1 and pieces[0] is end.data else b"".join(pieces)
    return BlockAppended(end.writer_id, data, end.number_of_events, end.last_event_number, end.request_id)
