"""Tables of structs, in the embedded store and in a log that gateways share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.backends.logged_tables import open_logged_tables
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.table_operations import GetTableInfo
from penstock.tables.byte_table import ByteTable
from penstock.tables.struct_table import Conflict, Prefix, StructTable


class Count(msgspec.Struct, frozen=True):
    """A value."""

    count: int


COUNTS = Prefix("count/", Count)
NAME = "#counts"


@pytest.fixture(params=["store", "log"])
async def state(request: Any, tmp_path: Path) -> AsyncIterator[Back]:
    if request.param == "store":
        async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
            yield back
    else:
        async with open_logged_tables(SharedLogEnd(SharedLog()), 1 << 20) as tables:
            yield tables


@pytest.fixture
def table(state: Back) -> StructTable:
    return StructTable(state, "counts")


async def test_a_missing_table_is_empty_and_its_first_write_creates_it(table: StructTable, state: Back) -> None:
    key = COUNTS.key("a")
    assert await table.get(key) is None
    assert await table.page(COUNTS) == ([], False)
    await table.discard(key)
    with pytest.raises(Conflict):
        await table.remove(key, 1)
    with pytest.raises(OperationFailed) as missing:
        await state.perform(GetTableInfo(NAME))
    assert missing.value.failure.code is FailureCode.STREAM_NOT_FOUND
    assert await table.add(key, Count(1))
    entry = await table.get(key)
    assert entry is not None and entry.value == Count(1)


async def test_a_change_needs_the_version_that_it_was_decided_on(table: StructTable) -> None:
    key = COUNTS.key("a")
    first = await table.put(key, Count(1))
    assert not await table.add(key, Count(5))
    second = await table.put(key, Count(2), first.version)
    for attempt in (table.put(key, Count(3), first.version), table.remove(key, first.version)):
        with pytest.raises(Conflict, match="'count/a'"):
            await attempt
    assert await table.change(key, lambda value: Count(value.count + 1)) == Count(3)
    await table.put_any(key, Count(4))
    with pytest.raises(Conflict):
        await table.put(key, Count(0), second.version)
    entry = await table.get(key)
    assert entry is not None and entry.value == Count(4)
    await table.remove(key, entry.version)
    assert await table.get(key) is None and await table.change(key, lambda value: value) is None


async def test_pages_and_all_of_a_prefix(table: StructTable) -> None:
    names = ["a", "b/1", "b/2", "b/3", "c"]
    for number, name in enumerate(names):
        await table.add(COUNTS.key(name), Count(number))
    await table.add(Prefix("counted/", Count).key("b/1"), Count(9))
    assert await table.page(COUNTS, "a", 2) == ([("b/1", Count(1)), ("b/2", Count(2))], True)
    assert await table.page(COUNTS, "b/1", 5, "b/") == ([("b/2", Count(2)), ("b/3", Count(3))], False)
    assert [name async for name, _ in table.each(COUNTS)] == names
    found = await table.get_all([COUNTS.key("c"), COUNTS.key("d")])
    assert [None if entry is None else entry.value for entry in found] == [Count(4), None]
    await table.discard_all(COUNTS)
    assert await table.page(COUNTS) == ([], False)
    assert await table.page(Prefix("counted/", Count)) == ([("b/1", Count(9))], False)


async def test_a_value_that_cannot_be_read_is_named(table: StructTable, state: Back) -> None:
    await ByteTable(state, NAME).put((b"count/a", b"{"))
    with pytest.raises(OperationFailed) as unreadable:
        await table.get(COUNTS.key("a"))
    assert unreadable.value.failure.code is FailureCode.STORAGE
