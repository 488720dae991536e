"""Merged listings of several backs: in order of the clients' names, page by page."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Page
from penstock.model.streams import BasinInfo, StreamInfo

__all__ = ["BackListing", "merged_page"]

MOST_UNORDERED: Final = 10_000
"""Most names that are held in memory for sorting, if the back's order of names differs from the clients'."""
PAGE: Final = 1000
"""Most names requested from a back at once."""

T = TypeVar("T", StreamInfo, BasinInfo)


class BackListing(msgspec.Struct, Generic[T], frozen=True):
    """The listing of one back.

    `fetch(start_after, limit)` returns a page of the back's items; `start_after` is the name to begin after. `shown`
    maps a name on the back to the client's, or to None to leave it out. `ordered`: both kinds of names sort alike.
    """

    fetch: Callable[[str, int], Awaitable[Page[T]]]
    start_after: str
    shown: Callable[[str], str | None]
    ordered: bool


class _Stream(Generic[T]):
    """Iterator over the items of a part."""

    def __init__(self, part: BackListing[T], wanted: Callable[[str], bool], limit: int) -> None:
        self._part: BackListing[T] = part
        self._wanted = wanted
        self._limit = limit
        self._at = part.start_after
        self._more = True
        self._items: deque[T] = deque()

    async def head(self) -> T | None:
        while not self._items and self._more:
            if self._part.ordered:
                self._items.extend(await self._page(min(self._limit + 1, PAGE)))
            else:
                self._items.extend(await self._everything())
        return self._items[0] if self._items else None

    def advance(self) -> None:
        self._items.popleft()

    async def _page(self, limit: int) -> list[T]:
        page = await self._part.fetch(self._at, limit)
        self._more = page.has_more and bool(page.items)
        if page.items:
            self._at = page.items[-1].name
        items = []
        for item in page.items:
            name = self._part.shown(item.name)
            if name is not None and self._wanted(name):
                items.append(item if name == item.name else msgspec.structs.replace(item, name=name))
        return items

    async def _everything(self) -> list[T]:
        everything: list[T] = []
        while self._more:
            everything += await self._page(PAGE)
            if len(everything) > MOST_UNORDERED:
                raise fail(
                    FailureCode.LIMIT_EXCEEDED,
                    f"more than {MOST_UNORDERED} names have another order on the server; list a longer prefix",
                )
        return sorted(everything, key=lambda item: item.name)


async def merged_page(parts: Sequence[BackListing[T]], prefix: str, start_after: str, limit: int) -> Page[T]:
    """Return a page of all parts merged: names that begin with `prefix` and sort after `start_after`, at most `limit`.
    Of items with the same name the first part's is taken."""

    def wanted(name: str) -> bool:
        return name.startswith(prefix) and name > start_after

    streams = [_Stream(part, wanted, limit) for part in parts]
    items: list[T] = []
    while True:
        heads = [
            (head.name, index) for index, stream in enumerate(streams) if (head := await stream.head()) is not None
        ]
        if not heads:
            return Page(items, has_more=False)
        if len(items) >= limit:
            return Page(items, has_more=True)
        name, index = min(heads)
        item = await streams[index].head()
        assert item is not None, "it was there"
        items.append(item)
        for also, other in heads:
            if also == name:
                streams[other].advance()
