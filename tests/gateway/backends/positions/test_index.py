"""The position index: its answers never change."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.native import MemoryTables
from support.store import STREAM, Fails

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.backends.positions.columns import MarkColumns
from penstock.backends.positions.index import index_name, open_index
from penstock.core.marks import START, Mark
from penstock.model.failures import FailureCode
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp
from penstock.model.records import U64_MAX, RecordId
from penstock.model.table_operations import ReadTable
from penstock.wire.compression import Compression, compress

NAME = index_name("lite", STREAM)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
        yield back


def ten_marks() -> list[Mark]:
    """Every 10 records, two of them in the same ms."""
    return [Mark(10 * n, 1000 + n // 2, 10 * (n % 2), 500 * n) for n in range(10)]


END = Mark(100, 1004, 20, 5000)


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
            index = await open_index(back, NAME)
            await index.add(END, *ten_marks())
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
        index = await open_index(back, NAME)
        assert (index.end, index.first, index.last_timestamp, index.last_mark) == (END, START, 1004, ten_marks()[-1])
        assert await index.between(0, 100) == ten_marks()
        assert await index.between(15, 30) == ten_marks()[1:3]
        assert [await index.behind(at) for at in (0, 9, 10, 89, 90)] == [
            *ten_marks()[1:2] * 2,
            *ten_marks()[2:3],
            ten_marks()[9],
            None,
        ]


async def test_each_coordinate_finds_the_mark_before(store: EmbeddedBack) -> None:
    index = await open_index(store, NAME)
    await index.add(END, *ten_marks())
    marks = ten_marks()
    assert await index.before(FromSeqNum(39)) == marks[3]
    assert await index.before(FromSeqNum(U64_MAX)) == marks[9]
    assert await index.before(FromTimestamp(1001)) == marks[2]
    assert await index.before(FromTimestamp(1)) == marks[0]
    assert await index.before(FromRecordId(RecordId(1001, 10))) == marks[3]
    assert await index.before(FromRecordId(RecordId(1001, 9))) == marks[2]
    assert await index.before(FromByteOffset(1501)) == marks[3]
    assert await index.before(FromByteOffset(1500)) == marks[2]  # records without bytes may be before it


async def test_a_new_one_is_empty_and_makes_no_table() -> None:
    tables = MemoryTables()
    index = await open_index(tables, NAME)  # type: ignore[arg-type]
    assert (index.end, index.last_mark, index.last_timestamp) == (START, None, 0)
    assert await index.before(FromSeqNum(7)) == START
    assert await index.between(0, 9) == [START]
    assert not tables.tables


async def test_nothing_is_seen_that_is_not_durable() -> None:
    tables = MemoryTables()
    index = await open_index(tables, NAME)  # type: ignore[arg-type]
    await index.add(Mark(5, 1, 5, 0), Mark(0, 1, 0, 0))
    tables.broken = True
    with Fails(FailureCode.STORAGE):
        await index.add(END, *ten_marks())
    assert index.end == Mark(5, 1, 5, 0)
    tables.broken = False
    await index.add(END, *ten_marks())
    again = await open_index(tables, NAME)  # type: ignore[arg-type]
    assert await again.between(0, 100) == [Mark(0, 1, 0, 0), *ten_marks()[1:]]


async def test_what_was_cancelled_while_it_waited_was_never_added() -> None:
    tables = MemoryTables()
    index = await open_index(tables, NAME)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        async with index._writing, trio.open_nursery() as given_up:
            given_up.start_soon(index.add, END, Mark(0, 5, 0, 0))
            await trio.testing.wait_all_tasks_blocked()
            given_up.cancel_scope.cancel()
        nursery.start_soon(index.add, END, Mark(0, 9, 0, 0))
    assert await index.between(0, 1) == [Mark(0, 9, 0, 0)]


async def test_trimming_moves_the_beginning_and_removes_marks(tmp_path: Path) -> None:
    first = Mark(55, 1002, 15, 2750)
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
        index = await open_index(back, NAME)
        await index.add(END, *ten_marks())
        await index.trimmed(first)
        await index.trimmed(Mark(20, 1001, 0, 1000))  # never backwards
    tables = MemoryTables()
    index = await open_index(tables, NAME)  # type: ignore[arg-type]
    await index.add(END, *ten_marks())
    await index.trimmed(first)
    assert len(tables.tables[NAME]) == 1 + 5
    for opened in (index, await open_index(tables, NAME)):  # type: ignore[arg-type]
        assert opened.first == first
        assert await opened.before(FromSeqNum(3)) == first
        assert await opened.before(FromTimestamp(0)) == first
        assert await opened.between(55, 100) == [first, *ten_marks()[6:]]


async def test_trimming_all_keeps_the_end(store: EmbeddedBack) -> None:
    index = await open_index(store, NAME)
    await index.add(END, *ten_marks())
    await index.trimmed(END)
    await index.add(Mark(110, 2000, 10, 5500), Mark(100, 2000, 0, 5000))
    again = await open_index(store, NAME)
    assert (again.first, again.end.seq_num) == (END, 110)
    assert await again.before(FromSeqNum(100)) == Mark(100, 2000, 0, 5000)


def kinds(tables: MemoryTables) -> str:
    """Return the first letters of all keys, in order."""
    return "".join(sorted(chr(key[0]) for key in tables.tables[NAME]))


async def test_full_pages_are_packed() -> None:
    tables: Any = MemoryTables()
    index = await open_index(tables, NAME)
    for mark, found in zip(
        ten_marks(), ["c", "cm", "cmm", "ccp", "ccmp", "ccmmp", "cccpp", "cccmpp", "cccmmpp", "ccccppp"], strict=True
    ):
        await index.add(mark._replace(seq_num=mark.seq_num + 10), mark)
        assert kinds(tables).replace("e", "") == found
    assert await (await open_index(tables, NAME)).between(0, 100) == ten_marks()
    tables = MemoryTables()
    index = await open_index(tables, NAME)
    await index.add(END, *ten_marks())
    assert kinds(tables) == "cccceppp"
    assert await (await open_index(tables, NAME)).between(0, 100) == ten_marks()


async def test_pages_of_an_earlier_version_are_found() -> None:
    """It did not pack them."""
    tables: Any = MemoryTables()
    index = await open_index(tables, NAME)
    await index.add(END, *ten_marks())
    rows = tables.tables[NAME]
    for key in [key for key in rows if key.startswith(b"p")]:
        del rows[key]
    for number, mark in enumerate(ten_marks()):
        if number % 3:
            rows[b"m" + struct.pack(">Q", mark.seq_num)] = struct.pack(">3Q", *mark[1:])
    again = await open_index(tables, NAME)
    assert await again.between(0, 100) == ten_marks()
    await again.add(Mark(110, 1005, 10, 5500), Mark(100, 1005, 0, 5000))
    assert await again.between(0, 110) == [*ten_marks(), Mark(100, 1005, 0, 5000)]


@pytest.mark.parametrize(
    "packed", [b"", b"x" * 20, MarkColumns(ten_marks()).packed(), compress(Compression.ZSTD, b"x")]
)
async def test_a_page_that_is_none_is_an_error(packed: bytes) -> None:
    tables: Any = MemoryTables()
    await (await open_index(tables, NAME)).add(END, *ten_marks())
    tables.tables[NAME][b"p" + struct.pack(">Q", 30)] = packed
    index = await open_index(tables, NAME)
    with Fails(FailureCode.STORAGE, "a page of positions"):
        await index.before(FromSeqNum(40))


async def test_a_stream_that_was_deleted_begins_anew(store: EmbeddedBack) -> None:
    index = await open_index(store, NAME)
    await index.add(END, *ten_marks())
    await index.forget()
    assert (index.end, index.last_mark) == (START, None)
    await index.add(Mark(1, 7, 1, 9), Mark(0, 7, 0, 0))
    again = await open_index(store, NAME)
    assert (again.end, await again.between(0, 1)) == (Mark(1, 7, 1, 9), [Mark(0, 7, 0, 0)])


steps = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 3)), max_size=30)


@given(history=steps, cuts=st.lists(st.integers(0, 200), max_size=3))
async def test_like_a_list(history: list[tuple[int, int, int]], cuts: list[int]) -> None:
    tables: Any = MemoryTables()
    index = await open_index(tables, NAME)
    marks: list[Mark] = []
    at = START
    for records, later, size in history:
        marks.append(at)
        place = at.place + records if not later else 0
        at = Mark(at.seq_num + records, at.timestamp + later, place, at.offset + size)
        await index.add(at, marks[-1])
    first = START
    for cut in cuts:
        if marks:
            first = max(first, marks[cut % len(marks)])
            await index.trimmed(first)
    kept = [mark for mark in marks if mark.seq_num >= first.seq_num]
    for opened in (index, await open_index(tables, NAME)):
        assert opened.end == at
        for seq_num in range(at.seq_num):
            found = max([mark for mark in marks if mark.seq_num <= seq_num] + [first])
            assert await opened.before(FromSeqNum(seq_num)) == found
        assert await opened.between(first.seq_num, max(at.seq_num, 1)) == (kept or [first])


class Trimming(MemoryTables):
    """Tables that carry out `then` when they are first asked for the key `at` alone."""

    at: bytes = b""
    then: Any = None

    async def perform(self, operation: Any) -> Any:
        found = await super().perform(operation)
        if isinstance(operation, ReadTable) and operation.keys == (self.at,):
            self.at = b""
            await self.then()
        return found


async def test_a_trim_while_pages_are_read_skips_none() -> None:
    """Before, records behind it were told with timestamps of earlier ones."""
    tables = Trimming()
    await (await open_index(tables, NAME)).add(END, *ten_marks())
    index = await open_index(tables, NAME)
    tables.at, tables.then = b"p" + struct.pack(">Q", 60), partial(index.trimmed, ten_marks()[3])
    assert await index.between(35, 100) == ten_marks()[3:]
    index = await open_index(tables, NAME)
    tables.at, tables.then = b"p" + struct.pack(">Q", 30), partial(index.trimmed, ten_marks()[6])
    assert await index.behind(55) == ten_marks()[6]
