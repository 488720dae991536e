"""Gateways without a disk: basins in their state, and internal streams at the server that keeps it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.store import STREAM, Fails, Wall, appending, bodies
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.backends.logged_tables import open_logged_tables
from penstock.backends.store_at_server import StoreAtServer
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    EnsureBasin,
    FromSeqNum,
    GetBasinConfig,
    ListBasins,
    ListStreams,
    ProvisionResult,
    ReconfigureBasin,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, BasinConfigPatch, Retention, StreamConfig, StreamConfigPatch
from penstock.model.table_operations import CreateTable, GetTableInfo

CONFIG = BasinConfig(default_stream_config=StreamConfig(retention=Retention(60)), create_stream_on_append=True)
INTERNAL = StreamRef(INTERNAL_BASIN, "scope/_RGgroup/0.#epoch.0")


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def back(tmp_path: Path, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "data"), wall) as opened:
        yield opened


@pytest.fixture
async def gateways(back: EmbeddedBack, wall: Wall) -> AsyncIterator[list[StoreAtServer]]:
    """Two, with the same state; their server is a store."""
    shared = SharedLog()
    async with AsyncExitStack() as stack:
        yield [
            StoreAtServer(
                await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), 1 << 20)), lambda: back, wall
            )
            for _ in range(2)
        ]


async def test_a_basin_is_the_same_through_every_gateway(gateways: list[StoreAtServer], wall: Wall) -> None:
    one, other = gateways
    made = await one.perform(CreateBasin("orders", CONFIG, "token"))
    assert (made.result, made.info.created_at) == (ProvisionResult.CREATED, wall.now)
    assert (await other.perform(CreateBasin("orders", CONFIG, "token"))).result is ProvisionResult.NOOP
    for again in (CreateBasin("orders", CONFIG), CreateBasin("orders", BasinConfig(), "token")):
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await other.perform(again)
    assert await other.perform(GetBasinConfig("orders")) == CONFIG
    patch = BasinConfigPatch(create_stream_on_append=False)
    assert await other.perform(ReconfigureBasin("orders", patch)) == patch.apply(CONFIG)
    assert await one.perform(GetBasinConfig("orders")) == patch.apply(CONFIG)
    assert (await one.perform(EnsureBasin("orders", CONFIG))).result is ProvisionResult.UPDATED
    assert (await one.perform(EnsureBasin("others", CONFIG))).result is ProvisionResult.CREATED
    assert (await other.perform(EnsureBasin("others", CONFIG))).result is ProvisionResult.NOOP
    listed = await other.perform(ListBasins("o", "", 1))
    assert ([info.name for info in listed.items], listed.has_more) == (["orders"], True)
    assert [info.name for info in (await one.perform(ListBasins("oth"))).items] == ["others"]
    assert [info.name for info in (await one.perform(ListBasins("", "orders"))).items] == ["others"]
    await other.perform(DeleteBasin("orders"))
    for about in (GetBasinConfig("orders"), DeleteBasin("orders"), ReconfigureBasin("orders", patch)):
        with Fails(FailureCode.BASIN_NOT_FOUND):
            await one.perform(about)


async def test_what_no_basin_can_be_is_refused(gateways: list[StoreAtServer]) -> None:
    one, other = gateways
    layer = StreamConfig(retention=Retention(0))
    await one.perform(CreateBasin("orders"))
    never = BasinConfig(default_stream_config=layer)
    patch = BasinConfigPatch(default_stream_config=StreamConfigPatch(retention=Retention(0)))
    for operation in (CreateBasin("a", never), EnsureBasin("orders", never), ReconfigureBasin("orders", patch)):
        with Fails(FailureCode.INVALID, "retention age"):
            await other.perform(operation)
    with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
        await one.perform(CreateBasin(INTERNAL_BASIN))
    assert [info.name for info in (await one.perform(ListBasins())).items] == ["orders"]
    assert await one.perform(GetBasinConfig("orders")) == BasinConfig()


async def test_internal_streams_are_the_servers(gateways: list[StoreAtServer], back: EmbeddedBack) -> None:
    one, other = gateways
    await back.perform(CreateBasin(INTERNAL_BASIN))
    await one.perform(CreateStream(INTERNAL))
    await one.perform(appending(b"a", stream=INTERNAL))
    async with other.append_session(INTERNAL, create_if_missing=False) as session:
        append = appending(b"b", stream=INTERNAL)
        assert isinstance(append, Append)
        await session.send(append)
        session.close()
        assert await session.receive()
    assert await bodies(other, FromSeqNum(0), stream=INTERNAL) == [b"a", b"b"]
    listed = await other.perform(ListStreams(INTERNAL_BASIN, "scope/"))
    assert [info.name for info in listed.items] == [INTERNAL.stream]


async def test_tables_are_in_the_state_and_other_streams_nowhere(gateways: list[StoreAtServer]) -> None:
    one, other = gateways
    await one.perform(CreateTable("scope/table/0.#epoch.0"))
    await other.perform(GetTableInfo("scope/table/0.#epoch.0"))
    with Fails(FailureCode.NOT_IMPLEMENTED):
        await one.perform(CheckTail(STREAM))
