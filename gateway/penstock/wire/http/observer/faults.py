"""Places in the bytes of one side, and faults at them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BytesAt", "HttpFault", "TimedRange"]


class TimedRange(NamedTuple):
    """Range of a side's bytes, from the first to behind the last, with the times of these two."""

    start: int
    end: int
    start_ns: int
    end_ns: int

    def to(self, last: TimedRange) -> TimedRange:
        """Return the span from the start of this one to the end of `last`."""
        return TimedRange(self.start, last.end, self.start_ns, last.end_ns)


class BytesAt(NamedTuple):
    """Consecutive bytes of a side that are held elsewhere."""

    offset: int
    data: bytes | bytearray | memoryview


class HttpFault(Exception):
    """Bytes that break a rule. `offset`: of the first wrong byte in the side's bytes."""

    def __init__(self, offset: int, rule: str, clause: str, held: BytesAt | None = None) -> None:
        super().__init__(rule)
        self.offset = offset
        self.rule = rule
        self.clause = clause
        self.held = held
