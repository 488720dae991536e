"""Values that are kept while they are in use, and the last ones after that."""

from __future__ import annotations

import pytest
import trio

from penstock.backends.positions.cache import RecentlyUsed


async def test_those_in_use_stay_and_of_the_others_the_last() -> None:
    opened: list[str] = []
    idle: list[str] = []

    async def open_one(key: str) -> str:
        await trio.lowlevel.checkpoint()
        opened.append(key)
        return key.upper()

    cache = RecentlyUsed(open_one, 2, idle.append)
    async with cache.use("a") as first:
        for key in "bcd":
            async with cache.use(key) as value:
                assert value == key.upper()
        async with cache.use("a") as again:
            assert again is first
    assert opened == ["a", "b", "c", "d"] and sorted(cache.values()) == ["A", "D"]
    assert idle == ["B", "C", "D", "A"]
    async with cache.use("b"):
        pass
    assert opened[-1] == "b" and len(cache) == 2


async def test_many_who_ask_at_once_share_one() -> None:
    opened = []

    async def open_one(key: int) -> object:
        await trio.lowlevel.checkpoint()
        opened.append(key)
        return object()

    cache = RecentlyUsed(open_one, 1)
    got = set()

    async def ask() -> None:
        async with cache.use(1) as value:
            got.add(id(value))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert opened == [1] and len(got) == 1


async def test_what_could_not_be_opened_is_tried_again() -> None:
    fails = [True, False]

    async def open_one(key: int) -> int:
        await trio.lowlevel.checkpoint()
        if fails.pop(0):
            raise ValueError
        return key

    cache = RecentlyUsed(open_one, 1)
    with pytest.raises(ValueError):
        async with cache.use(1):
            pass
    assert len(cache) == 0
    async with cache.use(1) as value:
        assert value == 1


async def test_what_is_forgotten_is_opened_anew() -> None:
    async def open_one(_key: int) -> object:
        await trio.lowlevel.checkpoint()
        return object()

    cache = RecentlyUsed(open_one, 1)
    async with cache.use(1) as first:
        cache.forget(1)
        async with cache.use(1) as second:
            assert second is not first
    assert list(cache.values()) == [second]
