"""A cache of values that are costly to open, such as position indexes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import trio

__all__ = ["RecentlyUsed"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(Generic[V]):
    __slots__ = ("opening", "users", "value")

    def __init__(self) -> None:
        self.users = 0
        self.opening = trio.Lock()
        self.value: V | None = None


class RecentlyUsed(Generic[K, V]):
    """One value for each key. Values in use stay, and of the others the `most` that were used last.

    `open_one` makes the value of a key; `use` raises what it raises. `on_idle` is called with a value each time its
    last user leaves.
    """

    def __init__(
        self, open_one: Callable[[K], Awaitable[V]], most: int, on_idle: Callable[[V], object] | None = None
    ) -> None:
        self._open = open_one
        self._most = most
        self._on_idle = on_idle
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> Iterator[V]:
        """Iterate over the values in memory."""
        return (entry.value for entry in self._entries.values() if entry.value is not None)

    @asynccontextmanager
    async def use(self, key: K) -> AsyncIterator[V]:
        """Use the value of a key until the block ends; it is opened if it is not in memory."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        entry.users += 1
        try:
            if entry.value is None:
                async with entry.opening:
                    if entry.value is None:
                        entry.value = await self._open(key)
            yield entry.value
        finally:
            entry.users -= 1
            if not entry.users and self._entries.get(key) is entry:
                self._idle(key, entry)

    def forget(self, key: K) -> None:
        """Drop the entry: the next use opens the value again; current users keep theirs."""
        self._entries.pop(key, None)

    def _idle(self, key: K, entry: _Entry[V]) -> None:
        if entry.value is None:
            del self._entries[key]
            return
        if self._on_idle is not None:
            self._on_idle(entry.value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            idle = [each for each, other in self._entries.items() if not other.users]
            for each in idle[: max(len(idle) - self._most, 0)]:
                del self._entries[each]
