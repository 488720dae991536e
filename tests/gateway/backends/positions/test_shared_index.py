"""One index through several gateways with the same state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from support.store import Fails
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends.logged_tables import LoggedTables, open_logged_tables
from penstock.backends.positions.index import Outrun, open_index
from penstock.core.marks import START, Mark
from penstock.model.failures import FailureCode
from penstock.tables.byte_table import ByteTable

NAME = "#positions/back/stream"


@pytest.fixture
async def states() -> AsyncIterator[list[LoggedTables]]:
    shared = SharedLog()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared, 0), 1 << 20)) for _ in range(3)]


def mark(number: int) -> Mark:
    return Mark(10 * number, 1000 + number, 0, 500 * number)


@pytest.mark.parametrize("behind", [1, 2, 5, 11])
async def test_pages_that_others_have_filled_are_complete(states: list[LoggedTables], behind: int) -> None:
    """Each adds some marks after the others have added theirs, within a page, at its end, and over several."""
    indexes = [await open_index(state, NAME) for state in states]
    for number in range(40):
        index = indexes[number // behind % 3]
        await index.refresh()
        await index.add(mark(number + 1), mark(number))
    for index in (*indexes, await open_index(states[0], NAME)):
        await index.refresh()
        assert (index.end, index.last_mark) == (mark(40), mark(39))
        assert await index.between(0, 400) == [mark(number) for number in range(40)]
    await indexes[0].trimmed(mark(20))
    for index in (*indexes, await open_index(states[1], NAME)):
        await index.refresh()
        assert index.first == mark(20)
        assert await index.between(0, 400) == [mark(number) for number in range(20, 40)]


async def test_an_addition_that_was_decided_before_another_is_refused(states: list[LoggedTables]) -> None:
    one, other = [await open_index(state, NAME) for state in states[:2]]
    version = one.version
    await other.add(mark(1), mark(0))
    with pytest.raises(Outrun):
        await one.add(mark(2), mark(0), version=version)
    await one.refresh()
    with pytest.raises(Outrun):
        await one.add(mark(2), mark(0), version=version)
    with pytest.raises(Outrun):
        await one.trimmed(mark(2), version)
    await one.add(mark(2), mark(1), version=one.version)
    await other.refresh()
    assert await other.between(0, 20) == [mark(0), mark(1)]


async def test_an_index_that_was_deleted_is_not_that_of_the_next_stream(states: list[LoggedTables]) -> None:
    one, other, late = [await open_index(state, NAME) for state in states]
    await one.add(mark(5), *map(mark, range(5)))
    for index in (other, late):
        await index.refresh()
        assert index.end == mark(5)
    await one.forget()
    new = await open_index(states[0], NAME)
    assert new.end == START
    await new.add(mark(1), mark(0))
    await late.forget()  # that of the stream which it knew
    await other.refresh()
    assert other.gone
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await other.add(mark(6), mark(5))
    for state in states:
        again = await open_index(state, NAME)
        await again.refresh()
        assert (again.end, again.gone) == (mark(1), False)


@pytest.mark.parametrize("changes", ["adds", "trims", "forgets"])
async def test_an_index_of_an_earlier_version_is_taken_over(states: list[LoggedTables], changes: str) -> None:
    """It has no generation, and its pages are not packed."""
    first = await open_index(states[0], NAME)
    await first.add(mark(2), mark(0), mark(1))
    await ByteTable(states[0], NAME).remove(b"g")
    one, other = [await open_index(state, NAME) for state in states[1:]]
    assert one.end == mark(2)
    if changes == "forgets":
        await one.forget()
        assert (await open_index(states[1], NAME)).end == START
        return
    if changes == "trims":
        await one.trimmed(mark(1))
    await other.refresh()
    await other.add(mark(3), mark(2))
    await one.refresh()
    await one.add(mark(4), mark(3))
    await other.refresh()
    assert not one.gone and not other.gone
    assert await other.between(0, 40) == [mark(number) for number in range(changes == "trims", 4)]
