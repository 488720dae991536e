"""Basins and listings, which may concern several backs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.routing import AUTO, Without, made, names, refusal, routed

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import BackWrapper
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import (
    Capability,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    GetBasinConfig,
    ListBasins,
    ListStreams,
    Operation,
)
from penstock.model.records import StreamRef


class Failing(BackWrapper):
    """A back whose server is down."""

    async def perform(self, operation: Operation[Any]) -> Any:
        raise fail(FailureCode.HOT_SERVER, "it is down")


async def test_names_in_results_are_the_clients(here: EmbeddedBack, there: EmbeddedBack) -> None:
    table = RouteTable(name="all", basin="telemetry", back="far", to_basin="prod-{basin}", to_stream="x/{stream}")
    view = routed(here, there, table).for_listener("s2")
    basin = await view.perform(CreateBasin("telemetry", AUTO))
    assert basin.info.name == "telemetry"
    stream = await view.perform(CreateStream(StreamRef("telemetry", "orders")))
    assert stream.info.name == "orders"
    assert await names(there, ListStreams("prod-telemetry")) == ["x/orders"]
    assert await names(view, ListStreams("telemetry")) == ["orders"]
    assert await names(view, ListBasins()) == ["telemetry"]
    assert (await view.perform(GetBasinConfig("telemetry"))).create_stream_on_append
    await view.perform(DeleteStream(StreamRef("telemetry", "orders")))
    assert await names(view, ListStreams("telemetry")) == []
    await view.perform(DeleteBasin("telemetry"))
    assert await names(there, ListBasins()) == []


async def test_listings_are_put_together(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """In name order, page by page, without what other routes have."""
    router = routed(
        here,
        there,
        RouteTable(name="moved", match="glob", basin="telemetry", stream="*/eu", back="far", to_stream="eu-{1}"),
        RouteTable(name="far", match="prefix", basin="telemetry", stream="m", back="far"),
        RouteTable(name="near", basin="telemetry"),
    )
    view = router.for_listener("s2")
    await made(there, "telemetry", "a", "eu-b", "eu-a/x", "eu-z", "m1", "m/eu", "n")
    await made(here, "telemetry", "a", "b/eu", "c", "m2", "z")
    everything = ["a", "b/eu", "c", "m1", "z", "z/eu"]
    assert await names(view, ListStreams("telemetry")) == everything
    found: list[str] = []
    while True:
        page = await view.perform(ListStreams("telemetry", start_after=found[-1] if found else "", limit=1))
        found += [info.name for info in page.items]
        if not page.has_more:
            break
    assert found == everything
    assert await names(view, ListStreams("telemetry", prefix="m")) == ["m1"]
    assert await names(view, ListStreams("telemetry", prefix="z", start_after="z")) == ["z/eu"]
    assert await names(view, ListStreams("telemetry", limit=2)) == ["a", "b/eu", "..."]
    for name in [*everything, "n", "eu-b", "eu-z", "m", "m2"]:
        exact = ListStreams("telemetry", prefix=name, limit=1, exact=True)
        listed = [info.name for info in (await view.perform(exact)).items]
        assert (name in listed) == (name in everything), name


async def test_a_listing_is_of_the_backs_that_have_the_basin(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(
        here,
        there,
        RouteTable(name="far", match="prefix", basin="telemetry", stream="m", back="far", to_basin="prod-{basin}"),
        RouteTable(name="near", basin="telemetry"),
    )
    view = router.for_listener("s2")
    unknown = (await refusal(view, ListStreams("telemetry"))).failure
    assert (unknown.code, unknown.message) == (FailureCode.BASIN_NOT_FOUND, "there is no basin 'telemetry'")
    await made(here, "telemetry", "a")
    assert await names(view, ListStreams("telemetry")) == ["a"]
    await here.perform(DeleteBasin("telemetry"))
    await made(there, "prod-telemetry", "m1")
    assert await names(view, ListStreams("telemetry")) == ["m1"]


async def test_a_back_that_fails_is_named_in_a_partial_listing(here: EmbeddedBack, there: EmbeddedBack) -> None:
    far = RouteTable(name="far", match="prefix", basin="telemetry", stream="m", back="far")
    view = routed(here, Failing(there), far, RouteTable(name="near", basin="telemetry")).for_listener("s2")
    await made(here, "telemetry", "a")

    for listing, name in ((ListStreams("telemetry"), "a"), (ListBasins(), "telemetry")):
        assert (await refusal(view, listing)).failure.message == "it is down"
        page: Any = await view.perform(replace(listing, partial=True))
        assert [one.name for one in page.items] == [name]
        assert page.failed == {"far": "it is down"}


async def test_too_many_names_in_another_order(
    here: EmbeddedBack, there: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.routing.listing.MOST_UNORDERED", 1)
    table = RouteTable(name="turned", match="glob", basin="telemetry", stream="*/*", back="far", to_stream="{2}/{1}")
    view = routed(here, there, table).for_listener("s2")
    await made(there, "telemetry", "b/a")
    assert await names(view, ListStreams("telemetry")) == ["a/b"]
    await made(there, "telemetry", "a/z")
    assert (await refusal(view, ListStreams("telemetry"))).failure.code is FailureCode.LIMIT_EXCEEDED


async def test_basins_of_backs_that_have_none_are_kept_here(here: EmbeddedBack, there: EmbeddedBack) -> None:
    far = Without(there, Capability.BASINS)
    view = routed(here, far, RouteTable(name="all", back="far")).for_listener("s2")
    await view.perform(CreateBasin("telemetry", AUTO))
    assert await names(view, ListBasins()) == ["telemetry"]
    assert (await view.perform(GetBasinConfig("telemetry"))) == AUTO
    assert await names(there, ListBasins()) == []


async def test_an_overview_has_basins_of_streams_of_backs_that_have_no_basins(
    here: EmbeddedBack, there: EmbeddedBack
) -> None:
    far = Without(there, Capability.BASINS)
    view = routed(here, far, RouteTable(name="all", back="far")).for_listener("s2")
    await view.perform(CreateBasin("telemetry", AUTO))
    await made(there, "telemetry")
    await made(there, "traces")
    assert await names(view, ListBasins()) == ["telemetry"]
    assert await names(view, ListBasins(partial=True)) == ["telemetry", "traces"]
    down = routed(here, Failing(far), RouteTable(name="all", back="far")).for_listener("s2")
    assert await names(down, ListBasins()) == ["telemetry"]
    page = await down.perform(ListBasins(partial=True))
    assert ([one.name for one in page.items], page.failed) == (["telemetry"], {"far": "it is down"})


async def test_a_basin_of_which_only_some_streams_are_taken_stays_as_it_is(
    here: EmbeddedBack, there: EmbeddedBack
) -> None:
    some = RouteTable(name="some", match="prefix", stream="eu/", back="far")
    view = routed(here, there, some).for_listener("s2")
    await view.perform(CreateBasin("telemetry"))
    assert await names(there, ListBasins()) == ["telemetry"]
    error = await refusal(view, DeleteBasin("telemetry"))
    assert error.failure.code is FailureCode.PERMISSION_DENIED
    whole = routed(here, there, some, RouteTable(name="whole")).for_listener("s2")
    await made(here, "telemetry")
    await whole.perform(DeleteBasin("telemetry"))
    assert await names(there, ListBasins()) == ["telemetry"] and await names(here, ListBasins()) == []
