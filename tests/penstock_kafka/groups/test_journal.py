"""The journal on tables that are kept in a log, which takes a bounded number of bytes at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
from support.store import Fails
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends.logged_tables import open_logged_tables
from penstock.backends.logged_tables.byte_log import ByteLog
from penstock.backends.logged_tables.state import sizes_of
from penstock.model.failures import FailureCode
from penstock.model.limits import KIB, MAX_TABLE_KEY_BYTES, MAX_TABLE_VALUE_BYTES, MIB
from penstock.tables.journal import TableJournal
from penstock.tables.struct_table import MOST_BYTES, Key, Prefix, StructTable
from penstock_kafka.back.state_topic import MAX_STATE_BATCH_BYTES
from penstock_kafka.transactions.pending import TransactionBatches

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Text(msgspec.Struct):
    """A value."""

    text: str = ""


TEXTS = Prefix("text/", Text)


class Kept(NamedTuple):
    """A journal, its table, and the log of that."""

    table: StructTable
    journal: TableJournal
    log: SharedLog

    async def names(self) -> list[str]:
        return [name async for name, _ in self.table.each(TEXTS)]


@asynccontextmanager
async def kept(max_bytes: int = 512 * MIB) -> AsyncIterator[Kept]:
    """A journal that runs. `max_bytes`: most bytes of the state."""
    shared = SharedLog()
    async with open_logged_tables(SharedLogEnd(shared), max_bytes) as back, trio.open_nursery() as nursery:
        table = StructTable(back, "kafka")
        journal = TableJournal(table)
        nursery.start_soon(journal.run)
        yield Kept(table, journal, shared)
        nursery.cancel_scope.cancel()


def texts(name: str, count: int, size: int) -> dict[Key[Any], Text]:
    return {TEXTS.key(f"{name}{number:04d}"): Text("x" * size) for number in range(count)}


def test_every_log_takes_a_write_and_a_write_takes_every_value() -> None:
    assert MAX_TABLE_KEY_BYTES + MAX_TABLE_VALUE_BYTES <= MOST_BYTES
    for most in (ByteLog.max_bytes, SharedLogEnd.max_bytes, MAX_STATE_BATCH_BYTES - MIB):
        assert most >= 2 * MOST_BYTES


@pytest.mark.parametrize("entries", [1, 40])
async def test_changes_beyond_what_a_log_takes_are_made_in_several_writes(entries: int) -> None:
    async with kept() as found:
        waiting = [found.journal.change(texts(f"{one}.", 40 // entries, 500_000)) for one in range(entries)]
        for entry in waiting:
            await entry.durable()
        assert len(await found.names()) == 40
        sizes = [sizes_of(change for _, change in batch.changes) for batch in found.log.batches]
        assert MIB < max(sizes) <= MOST_BYTES + KIB


async def test_removals_are_cut_by_bytes_too() -> None:
    async with kept() as found:
        keys = [TEXTS.key(f"{number:04d}" + "k" * 8000) for number in range(1000)]
        await found.journal.change({key: Text() for key in keys}).durable()
        await found.journal.change(dict.fromkeys(keys)).durable()
        assert await found.names() == []


async def test_a_value_that_is_too_large_fails_for_itself_only() -> None:
    async with kept() as found:
        large = {TEXTS.key("large"): Text("x" * MIB)}
        before = [found.journal.change({TEXTS.key(f"{one}"): Text("first")}) for one in range(5)]
        entry = found.journal.change(large)
        after = [found.journal.change({TEXTS.key(f"{one}"): Text("last")}) for one in range(3, 8)]
        removal = found.journal.change({TEXTS.key("0"): None})
        for one in (*before, *after, removal):
            await one.durable()
        with Fails(FailureCode.LIMIT_EXCEEDED, "the value has 1048"):
            await entry.durable()
        assert [(name, value.text) async for name, value in found.table.each(TEXTS)] == [
            *((name, "first") for name in "12"),
            *((name, "last") for name in "34567"),
        ]


async def test_changes_for_which_the_state_has_no_room_leave_room_for_others() -> None:
    async with kept(max_bytes=3 * MIB) as found:
        refused = found.journal.change(texts("large.", 8, 500_000))
        small = found.journal.change({TEXTS.key("small"): Text()})
        with Fails(FailureCode.LIMIT_EXCEEDED, "at most 3145728 are allowed"):
            await refused.durable()
        await small.durable()
        await found.journal.change({TEXTS.key(name): None for name in await found.names()}).durable()
        await found.journal.change(texts("other.", 4, 500_000)).durable()


async def test_of_a_batch_that_was_stored_in_part_nothing_is_left() -> None:
    """A producer that is told MESSAGE_TOO_LARGE splits the batch; the first part gets the same number."""
    async with kept(max_bytes=5 * MIB) as found:
        batches = TransactionBatches(found.table, found.journal)
        with Fails(FailureCode.LIMIT_EXCEEDED):
            await batches.add("t", "orders", 0, 0, bytes(10 * MIB))
        assert [len(one) async for one in batches.each("t", "orders", 0)] == []
        for number in range(2):
            await batches.add("t", "orders", 0, number, bytes([number]) * 600_000)
        assert [one async for one in batches.each("t", "orders", 0)] == [bytes(600_000), b"\1" * 600_000]
        await batches.forget("t")


async def test_a_large_batch_of_a_transaction_is_stored_whole() -> None:
    async with kept() as found:
        batches = TransactionBatches(found.table, found.journal)
        data = [bytes([number]) * (16 * MIB) for number in range(2)]
        async with trio.open_nursery() as nursery:
            for partition, one in enumerate(data):
                nursery.start_soon(batches.add, "t", "orders", partition, 0, one)
        for partition, one in enumerate(data):
            assert [found async for found in batches.each("t", "orders", partition)] == [one]
