"""Tables of keys and values: conditions, positions, pages, and what a failing disk or a restart leaves of them."""

from collections.abc import Sequence

import pytest
import trio
import trio.testing
from support.store import Blocked, Fails, Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import KIB, MAX_TABLE_KEY_BYTES, MAX_TABLE_VALUE_BYTES, MIB
from penstock.model.operations import Capability
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    TableDelta,
    TableInfo,
    TableItem,
    TablePage,
    UpdateTable,
    VersionedKey,
)

TABLE = "scope/group_kvtable/0.#epoch.0"


@pytest.fixture
async def store(back: EmbeddedBack) -> EmbeddedBack:
    """With one table in it."""
    await back.perform(CreateTable(TABLE))
    return back


async def put(back: EmbeddedBack, *items: tuple[bytes, bytes, int]) -> tuple[int, ...]:
    return await back.perform(UpdateTable(TABLE, tuple(TableItem(*item) for item in items)))


async def remove(back: EmbeddedBack, *keys: tuple[bytes, int], match: int | None = None) -> None:
    await back.perform(RemoveTableKeys(TABLE, tuple(VersionedKey(*key) for key in keys), match))


async def everything(back: EmbeddedBack) -> list[tuple[bytes, bytes, int]]:
    return [tuple(item) for item in (await back.perform(ListTable(TABLE))).items]


async def test_the_life_of_a_table(store: EmbeddedBack) -> None:
    assert Capability.TABLES in store.capabilities
    assert await store.perform(GetTableInfo(TABLE)) == TableInfo(start=0, length=0, entries=0, key_length=0)
    with Fails(FailureCode.RESOURCE_ALREADY_EXISTS, TABLE):
        await store.perform(CreateTable(TABLE))
    assert await put(store, (b"a", b"1", ANY_VERSION), (b"b", b"2", NOT_EXISTS)) == (0, 1)
    assert await put(store, (b"a", b"3", 0)) == (2,)
    assert await store.perform(ReadTable(TABLE, (b"b", b"x", b"a", b"b"))) == (
        (b"b", b"2", 1),
        None,
        (b"a", b"3", 2),
        (b"b", b"2", 1),
    )
    await remove(store, (b"b", 1), (b"x", ANY_VERSION))
    assert await store.perform(GetTableInfo(TABLE)) == TableInfo(start=0, length=4, entries=1, key_length=0)
    assert await put(store, (b"b", b"", NOT_EXISTS)) == (4,)
    with Fails(FailureCode.TABLE_NOT_EMPTY):
        await store.perform(DeleteTable(TABLE, must_be_empty=True))
    await remove(store, (b"a", ANY_VERSION), (b"b", ANY_VERSION))
    await store.perform(DeleteTable(TABLE, must_be_empty=True))
    with Fails(FailureCode.STREAM_NOT_FOUND, TABLE):
        await store.perform(GetTableInfo(TABLE))
    await store.perform(CreateTable(TABLE))
    assert await everything(store) == []


async def test_a_deleted_table_takes_its_items_with_it(store: EmbeddedBack) -> None:
    await store.perform(CreateTable("other"))
    await store.perform(UpdateTable("other", (TableItem(b"a", b"kept"),)))
    await put(store, (b"a", b"1", ANY_VERSION))
    await store.perform(DeleteTable(TABLE))
    await store.perform(CreateTable(TABLE))
    assert await everything(store) == []
    assert await store.perform(ReadTable("other", (b"a",))) == ((b"a", b"kept", 0),)


@pytest.mark.parametrize(
    "operation",
    [
        DeleteTable("none"),
        GetTableInfo("none"),
        GetTableInfo("half a pair \ud800"),
        UpdateTable("none", (TableItem(b"a", b"1"),)),
        RemoveTableKeys("none", ()),
        ReadTable("none", ()),
        ListTable("none"),
        ReadTableDelta("none", 0, 1),
    ],
    ids=lambda operation: f"{type(operation).__name__} {operation.table!a}",
)
async def test_without_a_table(store: EmbeddedBack, operation: GetTableInfo) -> None:
    with Fails(FailureCode.STREAM_NOT_FOUND, "there is no table"):
        await store.perform(operation)


async def test_versions_are_held_against_the_table_as_it_was(store: EmbeddedBack) -> None:
    """Pravega's clients begin a synchronizer's table with the same key several times, none of which may be there."""
    assert await put(store, *[(b"key", b"%d" % number, NOT_EXISTS) for number in range(3)]) == (0, 1, 2)
    assert await everything(store) == [(b"key", b"2", 2)]
    with Fails(FailureCode.TABLE_KEY_VERSION):
        await put(store, (b"key", b"x", 2), (b"key", b"y", 3))
    assert await put(store, (b"key", b"x", 2), (b"key", b"y", 2)) == (3, 4)
    await remove(store, (b"key", 4), (b"key", 4))
    assert (await store.perform(GetTableInfo(TABLE))).length == 6


MISMATCHES = [
    ((b"there", NOT_EXISTS), FailureCode.TABLE_KEY_VERSION),
    ((b"there", 1), FailureCode.TABLE_KEY_VERSION),
    ((b"missing", 0), FailureCode.TABLE_KEY_NOT_FOUND),
]


@pytest.mark.parametrize(("key", "code"), MISMATCHES)
async def test_a_condition_that_does_not_hold_changes_nothing(
    store: EmbeddedBack, key: tuple[bytes, int], code: FailureCode
) -> None:
    await put(store, (b"there", b"1", ANY_VERSION))
    name, version = key
    with Fails(code) as update:
        await put(store, (b"new", b"x", ANY_VERSION), (name, b"x", version))
    with Fails(code) as removal:
        await remove(store, (b"there", ANY_VERSION), (name, version))
    assert update.failure.details == removal.failure.details == {"key": name}
    assert await everything(store) == [(b"there", b"1", 0)]


async def test_a_missing_key_in_a_table_whose_keys_have_one_length(store: EmbeddedBack) -> None:
    """Pravega does not tell whether such a key is missing or has another version."""
    await store.perform(CreateTable("fixed", key_length=3))
    with Fails(FailureCode.TABLE_KEY_VERSION):
        await store.perform(UpdateTable("fixed", (TableItem(b"key", b"", 0),)))
    with Fails(FailureCode.TABLE_KEY_VERSION):
        await store.perform(RemoveTableKeys("fixed", (VersionedKey(b"key", 0),)))
    await store.perform(RemoveTableKeys("fixed", (VersionedKey(b"key", NOT_EXISTS),)))


async def test_the_length_of_the_table_as_a_condition(store: EmbeddedBack) -> None:
    update = UpdateTable(TABLE, (TableItem(b"a", b"1"),), match_length=0)
    assert await store.perform(update) == (0,)
    with Fails(FailureCode.OFFSET_MISMATCH) as fails:
        await store.perform(update)
    assert fails.failure.details == {"offset": 1}
    with Fails(FailureCode.OFFSET_MISMATCH):
        await remove(store, (b"a", ANY_VERSION), match=0)
    await remove(store, (b"a", ANY_VERSION), match=1)
    await remove(store, (b"a", ANY_VERSION), match=2)
    assert await store.perform(GetTableInfo(TABLE)) == TableInfo(start=0, length=2, entries=0, key_length=0)


async def test_keys_of_one_length(back: EmbeddedBack) -> None:
    await back.perform(CreateTable(TABLE, key_length=2))
    assert (await back.perform(GetTableInfo(TABLE))).key_length == 2
    assert await put(back, (b"ab", b"", ANY_VERSION)) == (0,)
    with Fails(FailureCode.INVALID, "the keys of this table have 2"):
        await put(back, (b"abc", b"", ANY_VERSION))
    with Fails(FailureCode.INVALID, "the keys of this table have 2"):
        await remove(back, (b"a", ANY_VERSION))
    for length in (-1, MAX_TABLE_KEY_BYTES + 1):
        with Fails(FailureCode.INVALID, "0 to 8192"):
            await back.perform(CreateTable("bad", key_length=length))


async def test_bounds_of_keys_values_and_names(store: EmbeddedBack) -> None:
    largest = (b"k" * MAX_TABLE_KEY_BYTES, b"v" * MAX_TABLE_VALUE_BYTES, NOT_EXISTS)
    assert await put(store, largest, (b"", b"", NOT_EXISTS)) == (0, 1)
    assert await everything(store) == [(b"", b"", 1), (*largest[:2], 0)]
    with Fails(FailureCode.LIMIT_EXCEEDED, "the key has 8193 bytes"):
        await put(store, (largest[0] + b"k", b"", ANY_VERSION))
    with Fails(FailureCode.LIMIT_EXCEEDED, "the value has 1040385 bytes"):
        await put(store, (b"a", largest[1] + b"v", ANY_VERSION))
    for name in ("", "x" * 1025, "half a pair \ud800"):
        with Fails(FailureCode.INVALID, "a table's name"):
            await store.perform(CreateTable(name))
    await store.perform(CreateTable("é\0" * 341))


async def test_reading_by_key_is_bounded(store: EmbeddedBack) -> None:
    await put(store, (b"a", bytes(512 * KIB), ANY_VERSION))
    assert len(await store.perform(ReadTable(TABLE, (b"a",) * 15))) == 15
    with Fails(FailureCode.LIMIT_EXCEEDED, "request fewer keys"):
        await store.perform(ReadTable(TABLE, (b"a",) * 16))


async def keys_of(back: EmbeddedBack, **options: object) -> tuple[list[bytes], bool]:
    page = await back.perform(ListTable(TABLE, **options))  # type: ignore[arg-type]
    return [item.key for item in page.items], page.has_more


async def test_listing(store: EmbeddedBack) -> None:
    keys = [b"", b"a", b"a\0", b"ab", b"b", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"]
    await put(store, *[(key, b"", ANY_VERSION) for key in reversed(keys)])
    assert await keys_of(store) == (keys, False)
    assert await keys_of(store, count=3) == (keys[:3], True)
    assert await keys_of(store, count=10) == (keys, False)
    assert await keys_of(store, after=b"", count=1) == ([b"a"], True)
    assert await keys_of(store, after=b"a") == (keys[2:], False)
    assert await keys_of(store, first=b"a\0", last=b"b") == (keys[2:5], False)
    assert await keys_of(store, first=b"a", after=b"ab", last=b"c", count=2) == ([b"b", b"b\xff"], True)
    assert await keys_of(store, prefix=b"b") == (keys[4:7], False)
    assert await keys_of(store, prefix=b"b\xff", after=b"b\xff") == (keys[6:7], False)
    assert await keys_of(store, prefix=b"\xff", count=2) == (keys[8:], False)
    assert await keys_of(store, prefix=b"b", count=3) == (keys[4:7], False)
    assert await keys_of(store, first=b"c", last=b"b") == ([], False)
    for count in (0, -1):
        with Fails(FailureCode.INVALID, "at least 1"):
            await keys_of(store, count=count)


async def test_pages_and_deltas_of_large_items_are_short(store: EmbeddedBack) -> None:
    value = bytes(400 * KIB)
    await put(store, *[(b"%d" % number, value, ANY_VERSION) for number in range(7)])
    assert await keys_of(store) == ([b"0", b"1", b"2"], True)
    assert await keys_of(store, after=b"2") == ([b"3", b"4", b"5"], True)
    assert await keys_of(store, after=b"5") == ([b"6"], False)
    found = []
    position, reached_end = 0, False
    while not reached_end:
        delta = await store.perform(ReadTableDelta(TABLE, position, 100))
        assert len(delta.items) * len(value) < 2 * MIB
        found += [item.key for item in delta.items]
        position, reached_end = delta.next_position, delta.reached_end
    assert (found, position) == ([b"%d" % number for number in range(7)], 7)


async def test_what_changed_since(store: EmbeddedBack) -> None:
    async def delta(position: int, count: int = 10) -> TableDelta:
        return await store.perform(ReadTableDelta(TABLE, position, count))

    assert await delta(0) == TableDelta((), False, True, 0)
    await put(store, (b"a", b"1", ANY_VERSION), (b"b", b"2", ANY_VERSION), (b"c", b"3", ANY_VERSION))
    await put(store, (b"a", b"4", 0))
    b, c, a = TableItem(b"b", b"2", 1), TableItem(b"c", b"3", 2), TableItem(b"a", b"4", 3)
    assert await delta(0) == TableDelta((b, c, a), False, True, 4)
    assert await delta(0, 3) == TableDelta((b, c, a), False, True, 4)
    assert await delta(0, 1) == TableDelta((b,), False, False, 2)
    assert await delta(2) == TableDelta((c, a), False, True, 4)
    await remove(store, (b"a", 3))
    assert await delta(3) == TableDelta((), False, True, 5)
    for position in (-1, 6):
        with Fails(FailureCode.INVALID, "is not in 0 to 5"):
            await delta(position)
    with Fails(FailureCode.INVALID, "at least 1"):
        await delta(0, 0)


async def test_an_empty_change_is_none(store: EmbeddedBack) -> None:
    assert await put(store) == ()
    await remove(store)
    await remove(store, (b"missing", NOT_EXISTS))
    assert (await store.perform(GetTableInfo(TABLE))).length == 0


async def test_clients_that_race_for_a_key(store: EmbeddedBack) -> None:
    """Each adds 1, on the condition that the value has not changed, until it has succeeded five times."""
    await put(store, (b"sum", b"0", NOT_EXISTS))
    refused = 0

    async def add() -> None:
        nonlocal refused
        added = 0
        while added < 5:
            (found,) = await store.perform(ReadTable(TABLE, (b"sum",)))
            assert found is not None
            try:
                await put(store, (b"sum", b"%d" % (int(found.value) + 1), found.version))
                added += 1
            except OperationFailed as error:
                assert error.failure.code is FailureCode.TABLE_KEY_VERSION
                refused += 1

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(add)
    assert await everything(store) == [(b"sum", b"20", 20)]
    assert refused > 0
    assert not store._store.tables._turns


async def test_a_client_that_leaves_in_the_middle(store: EmbeddedBack) -> None:
    """Its change was on its way, so the next client sees it and does not decide on the earlier state."""
    committer = store._store.committer
    outcomes: list[Sequence[int]] = []

    async def second() -> None:
        outcomes.append(await put(store, (b"b", b"2", ANY_VERSION)))

    client = trio.CancelScope()
    async with trio.open_nursery() as nursery, Blocked(store):
        nursery.start_soon(_cancelled_put, store, client)
        while not committer.busy:
            await trio.lowlevel.checkpoint()
        client.cancel()
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == []
    assert outcomes == [(1,)]
    assert await everything(store) == [(b"a", b"1", 0), (b"b", b"2", 1)]


async def test_a_store_that_is_cancelled_in_the_middle(settings: EmbeddedSettings, wall: Wall) -> None:
    """With all that uses it, as when one of its tasks fails: a change on its way ends, and so does the store."""
    with trio.CancelScope() as scope:
        async with open_embedded(settings, wall) as back, trio.open_nursery() as nursery:
            await back.perform(CreateTable(TABLE))
            nursery.start_soon(put, back, (b"a", b"1", ANY_VERSION))
            while not back._store.committer.busy:
                await trio.lowlevel.checkpoint()
            scope.cancel()
    async with open_embedded(settings, wall) as back:
        assert await everything(back) == [(b"a", b"1", 0)]


async def _cancelled_put(back: EmbeddedBack, scope: trio.CancelScope) -> None:
    with scope:
        await put(back, (b"a", b"1", ANY_VERSION))


async def test_a_failed_commit_leaves_the_table_as_it_was(store: EmbeddedBack) -> None:
    await put(store, (b"a", b"1", ANY_VERSION))
    db = store._store._writer
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    with Fails(FailureCode.STORAGE, "full"):
        await put(store, (b"a", bytes(512 * KIB), 0), (b"b", b"", ANY_VERSION))
    db.execute("PRAGMA max_page_count = 1000000000")
    assert await everything(store) == [(b"a", b"1", 0)]
    assert await put(store, (b"a", b"2", 0)) == (1,)


async def test_a_restart(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateTable(TABLE))
        await put(back, (b"a", b"1", ANY_VERSION), (b"b", b"2", ANY_VERSION))
        await remove(back, (b"b", 1))
    async with open_embedded(settings, wall) as back:
        assert await back.perform(ListTable(TABLE)) == TablePage((TableItem(b"a", b"1", 0),), has_more=False)
        assert await put(back, (b"b", b"3", NOT_EXISTS)) == (3,)
