"""Going through names out of several places at once, each of which is in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Merged", "Source"]

T = TypeVar("T")

Source = Callable[[str], Awaitable[tuple[list[tuple[str, T]], str | None]]]
"""Gives some names after the one given, in order, each with what is there; and after which to go on, None at the end.
There may be no names, and yet something to go on with."""


class Merged(Generic[T]):
    """The names after `after` of all sources, in order, each once."""

    def __init__(self, sources: Sequence[Source[T]], after: str) -> None:
        self._cursors = [_Cursor(source, after) for source in sources]

    async def next(self) -> tuple[str, list[T]] | None:
        """The next name, and what the sources that have it have there, in the order of the sources; None at the end."""
        heads = [head for cursor in self._cursors if (head := await cursor.head()) is not None]
        if not heads:
            return None
        least = min(heads)
        return least, [value for cursor in self._cursors for value in cursor.take(least)]


class _Cursor(Generic[T]):
    """Where one source is being read."""

    def __init__(self, source: Source[T], after: str) -> None:
        self._source = source
        self._after: str | None = after
        self._waiting: list[tuple[str, T]] = []  # the last comes first

    async def head(self) -> str | None:
        """The next name; None at the end."""
        while not self._waiting and self._after is not None:
            found, self._after = await self._source(self._after)
            self._waiting = found[::-1]
        return self._waiting[-1][0] if self._waiting else None

    def take(self, name: str) -> list[T]:
        """What is at this name, if it is the next."""
        return [self._waiting.pop()[1]] if self._waiting and self._waiting[-1][0] == name else []
