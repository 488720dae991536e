"""Places in the bytes of one side, and faults at them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Fault", "Held", "Span"]


class Span(NamedTuple):
    """Range of a side's bytes, from the first to behind the last, with the times of these two."""

    start: int
    end: int
    start_ns: int
    end_ns: int

    def to(self, last: Span) -> Span:
        """Return the span from the start of this one to the end of `last`."""
        return Span(self.start, last.end, self.start_ns, last.end_ns)


class Held(NamedTuple):
    """Consecutive bytes of a side that are held elsewhere."""

    offset: int
    data: bytes | bytearray | memoryview


class Fault(Exception):
    """Bytes that break a rule. `offset`: of the first wrong byte in the side's bytes."""

    def __init__(self, offset: int, rule: str, clause: str, held: Held | None = None) -> None:
        super().__init__(rule)
        self.offset = offset
        self.rule = rule
        self.clause = clause
        self.held = held
