"""Shared parts of all listings: lines with offsets, and the error for undecodable input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Line", "Listing", "Reading", "Undecodable", "farthest", "size"]


class Line(NamedTuple):
    """One line: its offset in the input (None if it has none), its depth, and its text."""

    at: int | None
    depth: int
    text: str

    def __str__(self) -> str:
        place = "" if self.at is None else str(self.at)
        return f"{place:>8}  {'  ' * self.depth}{self.text}"


class Undecodable(Exception):
    """The input cannot be decoded from byte `at` on."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(f"byte {at}: {text}")
        self.at = at


Reading = Callable[[bytes], Iterator[Line]]
"""Yields the lines of an input; raises Undecodable after the last line that it can decode."""


class Listing(NamedTuple):
    """The listing of one protocol: its dialects, and a function that returns the ways to read an input for a side
    ("client", "server" or "auto", as its sender) and a dialect (one of them, or "auto"), the likeliest first."""

    dialects: tuple[str, ...]
    readings: Callable[[str, str], list[Reading]]


def farthest(readings: list[Reading], data: bytes) -> Reading:
    """Return the reading that gets through the input, or else farthest; the first of equals."""
    if len(readings) == 1:
        return readings[0]
    return max(readings, key=lambda reading: _reach(reading, data))  # max keeps the first of equals


def _reach(reading: Reading, data: bytes) -> tuple[bool, int]:
    try:
        for _ in reading(data):
            pass
    except Undecodable as error:
        return False, error.at
    return True, len(data)


def size(count: int) -> str:
    """Return a number of bytes as text."""
    return f"{count} byte{'' if count == 1 else 's'}"
