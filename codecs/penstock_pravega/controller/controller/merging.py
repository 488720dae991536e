"""Merging names from several sources, each of which is in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["MergedNames", "Source"]

T = TypeVar("T")

Source = Callable[[str], Awaitable[tuple[list[tuple[str, T]], str | None]]]
"""Returns some names after the given one, in order, each with its value; and the name to continue after, None at the
end. There may be no names, and yet a name to continue after."""


class MergedNames(Generic[T]):
    """The names after `after` of all sources, in order, each once."""

    def __init__(self, sources: Sequence[Source[T]], after: str) -> None:
        self._cursors = [_Cursor(source, after) for source in sources]

    async def next(self) -> tuple[str, list[T]] | None:
        """Return the next name and its values, in the order of the sources that have it; None at the end."""
        heads = [head for cursor in self._cursors if (head := await cursor.head()) is not None]
        if not heads:
            return None
        least = min(heads)
        return least, [value for cursor in self._cursors for value in cursor.take(least)]


class _Cursor(Generic[T]):
    """A read position in one source."""

    def __init__(self, source: Source[T], after: str) -> None:
        self._source = source
        self._after: str | None = after
        self._waiting: list[tuple[str, T]] = []  # in reverse order

    async def head(self) -> str | None:
        """Return the next name, or None at the end."""
        while not self._waiting and self._after is not None:
            names, self._after = await self._source(self._after)
            self._waiting = names[::-1]
        return self._waiting[-1][0] if self._waiting else None

    def take(self, name: str) -> list[T]:
        """Remove the next name if it is this one. Returns its value in a list, which is otherwise empty."""
        return [self._waiting.pop()[1]] if self._waiting and self._waiting[-1][0] == name else []
