"""The control plane over an S2 back, and event ids: `s2 lite` (`make peers`) and another Penstock answer alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from support.real_backs import BackServer, S2Lite, SecondPenstock
from support.s2.client import S2Client
from support.store import appending

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    ProvisionResult,
    ReconfigureBasin,
    ReconfigureStream,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, BasinConfigPatch, Retention, StreamConfig, StreamConfigPatch
from penstock.net.http.client import HttpVersion
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_s2.back.back import S2Back, open_s2
from penstock_s2.back.settings import S2BackSettings

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module", params=[S2Lite, partial(SecondPenstock, "s2")], ids=["lite", "penstock"])
def lite(request: pytest.FixtureRequest) -> Iterator[BackServer]:
    with request.param() as server:
        yield server


@asynccontextmanager
async def opened(server: BackServer, version: HttpVersion = HttpVersion.H2) -> AsyncIterator[S2Back]:
    host, port = server.address
    async with open_s2(
        S2BackSettings(http=version), Upstream(UpstreamSettings(name="lite", host=host, port=port))
    ) as back:
        yield back


@pytest.mark.parametrize("version", [HttpVersion.H1, HttpVersion.H2], ids=["h1", "h2"])
async def test_the_control_plane(lite: BackServer, version: HttpVersion) -> None:
    basin, name = f"lite-control-{version.value}", "a/b %ü?"
    stream = StreamRef(basin, name)
    async with opened(lite, version) as back:
        made = await back.perform(CreateBasin(basin, BasinConfig(create_stream_on_append=True)))
        assert (made.info.name, made.result) == (basin, ProvisionResult.CREATED)
        with pytest.raises(OperationFailed) as failed:
            await back.perform(CreateBasin(basin))
        assert failed.value.failure.code is FailureCode.RESOURCE_ALREADY_EXISTS
        patched = await back.perform(ReconfigureBasin(basin, BasinConfigPatch(create_stream_on_append=False)))
        assert not patched.create_stream_on_append
        assert await back.perform(GetBasinConfig(basin)) == patched
        assert basin in [info.name for info in (await back.perform(ListBasins("lite-control"))).items]

        config = StreamConfig(retention=Retention(1000), timestamping_uncapped=True)
        assert (await back.perform(CreateStream(stream, config))).info.name == name
        assert (await back.perform(GetStreamConfig(stream))).retention == Retention(1000)
        assert (await back.perform(EnsureStream(stream, config))).result is ProvisionResult.NOOP
        changed = await back.perform(ReconfigureStream(stream, StreamConfigPatch(retention=Retention(2000))))
        assert (changed.retention, changed.timestamping_uncapped) == (Retention(2000), True)
        assert [info.name for info in (await back.perform(ListStreams(basin))).items] == [name]
        await back.perform(DeleteStream(stream))
        with pytest.raises(OperationFailed) as failed:
            await back.perform(GetStreamConfig(StreamRef(basin, "never")))
        assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND


async def test_a_stream_keeps_the_configuration_that_it_was_made_with(lite: BackServer) -> None:
    """Later changes of its basin's default do not apply; a stream that is ensured or reset gets the current default."""
    basin = "lite-resolved"
    kept, short = Retention(1000), StreamConfigPatch(retention=Retention(5))
    default = BasinConfig(
        default_stream_config=StreamConfig(retention=kept), create_stream_on_append=True, create_stream_on_read=True
    )
    async with opened(lite) as back:
        await back.perform(EnsureBasin(basin, default))
        created, ensured, appended, read = (
            StreamRef(basin, name) for name in ("created", "ensured", "appended", "read")
        )
        await back.perform(CreateStream(created))
        await back.perform(EnsureStream(ensured))
        await back.perform(appending(b"x", stream=appended))
        await back.perform(CheckTail(read))
        await back.perform(ReconfigureBasin(basin, BasinConfigPatch(default_stream_config=short)))
        for stream in (created, ensured, appended, read):
            config = await back.perform(GetStreamConfig(stream))
            assert config.retention == kept
            assert (await back.perform(EnsureStream(stream, config))).result is ProvisionResult.NOOP
        reset = await back.perform(ReconfigureStream(created, StreamConfigPatch(retention=None)))
        assert reset.retention == Retention(5)
        assert (await back.perform(EnsureStream(ensured))).result is ProvisionResult.UPDATED
        assert (await back.perform(GetStreamConfig(ensured))).retention == Retention(5)
        gold = await back.perform(ReconfigureStream(read, StreamConfigPatch(storage_class="gold")))
        assert (gold.storage_class, gold.retention) == ("gold", kept)


async def test_what_is_said_of_a_basin_that_is_not_there(lite: BackServer) -> None:
    stream = StreamRef("lite-nowhere", "s")
    async with opened(lite) as back:
        for operation in (
            ListStreams(stream.basin),
            ListStreams(stream.basin, prefix="s"),
            CreateStream(stream),
            EnsureStream(stream),
            ReconfigureStream(stream, StreamConfigPatch()),
            GetBasinConfig(stream.basin),
        ):
            with pytest.raises(OperationFailed) as failed:
                await back.perform(operation)  # type: ignore[type-var]
            assert failed.value.failure.code is FailureCode.BASIN_NOT_FOUND, operation


def test_the_counts_of_event_ids_go_on_after_a_resume(lite: BackServer) -> None:
    s2 = S2Client(lite.address).ensure_basin("lite-event-ids")
    s2.ensure_stream("s")
    s2.append("s", *("aa" for _ in range(8)))
    with s2.events("s", headers={"last-event-id": "1,2,20"}, seq_num=0, count=6) as events:
        *batches, done = events.rest()
    assert [record["seq_num"] for event in batches for record in event.json()["records"]] == [2, 3, 4, 5]
    assert (batches[-1].id, done.data) == ("5,6,60", "[DONE]")
