"""The gateway's state in a stream of the real Pravega: several gateways change it, and its log is cleaned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from support.peers import unique
from support.real_backs import PravegaStandalone
from support.segment.back import opened
from support.store.table_histories import count_up, value_of

from penstock.backends.logged_tables import ByteLog, LoggedTables, open_logged_tables
from penstock.core.back import Back
from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.limits import MIB
from penstock.model.records import StreamRef
from penstock.model.table_operations import (
    CreateTable,
    ListTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)
from penstock.net.upstream import UpstreamSettings
from penstock_pravega.segment.back import SegmentBack

pytestmark = [pytest.mark.peer, pytest.mark.long]
TABLE = "#numbers"
KEY = b"counter"


@pytest.fixture(scope="module")
def pravega() -> Iterator[PravegaStandalone]:
    with PravegaStandalone() as server:
        yield server


@asynccontextmanager
async def state_in(
    pravega: PravegaStandalone, log: StreamRef, *, by_controller: bool = True
) -> AsyncIterator[tuple[LoggedTables, SegmentBack]]:
    """Open one gateway's view of the state in a stream, which it cleans early."""
    assert pravega.controller is not None
    host, port = pravega.controller if by_controller else pravega.address
    upstream = UpstreamSettings(name="pravega", host=host, port=port)
    way = {"store": None, "controller": upstream} if by_controller else {"store": upstream, "controller": None}
    async with (
        opened(**way) as (back, _),
        open_logged_tables(ByteLog(back.direct, log, "Pravega", 30.0, outdated=100_000), 64 * MIB) as tables,
    ):
        yield tables, back


async def test_of_gateways_that_race_one_wins_each_time(pravega: PravegaStandalone) -> None:
    log, conflicts = StreamRef("penstock-state", unique("race")), 0

    async def count(back: Back) -> None:
        nonlocal conflicts
        found = await count_up(back, TABLE, KEY, 30)
        conflicts += found  # others have added theirs meanwhile

    async with (
        state_in(pravega, log) as (one, _),
        state_in(pravega, log, by_controller=False) as (two, _),
        state_in(pravega, log) as (three, _),
    ):
        await one.perform(CreateTable(TABLE))
        async with trio.open_nursery() as nursery:
            for back in (one, two, three):
                nursery.start_soon(count, back)
        assert (await value_of(two, TABLE, KEY))[0] == 90
        assert conflicts > 0, "they did not race"


async def test_the_log_stays_short_and_a_new_gateway_reads_it(pravega: PravegaStandalone) -> None:
    log = StreamRef("penstock-state", unique("cleaned"))
    async with state_in(pravega, log) as (one, _), state_in(pravega, log) as (other, store):
        await one.perform(CreateTable(TABLE))
        large = tuple(TableItem(b"large-%d" % number, bytes([number]) * 1_000_000) for number in range(4))
        await one.perform(UpdateTable(TABLE, large))
        await other.perform(RemoveTableKeys(TABLE, tuple(VersionedKey(item.key) for item in large[1:])))
        for number in range(60):
            await (one, other)[number % 2].perform(UpdateTable(TABLE, (TableItem(b"often", bytes(100_000)),)))
        info = await store.direct.perform(GetByteStreamInfo(log))
        assert info.start_offset > 4_000_000 and info.length - info.start_offset < 4_000_000
        expected = await one.perform(ListTable(TABLE))
    async with state_in(pravega, log) as (fresh, _):
        assert await fresh.perform(ListTable(TABLE)) == expected
        assert [item.key for item in expected.items] == [b"large-0", b"often"]
