"""Scopes, and listing what is in them."""

import pytest
from support.controller import (
    BASIN,
    BASIN_SCOPE,
    SCOPE,
    SCOPES,
    RefusedWith,
    info,
    segments,
    settings,
    write,
)
from support.store import Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    DeleteStream,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
)
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import ReaderGroup

both = pytest.mark.parametrize("scope", SCOPES)

GROUP = ReaderGroup(3000, 30000, 3, 0, 0, "an-id", (), (), 0)


async def names(controller: Controller, scope: str, tag: str | None = None) -> list[str]:
    """All streams of a scope, page by page, until there is an empty one."""
    found: list[str] = []
    while page := await controller.listing.streams(scope, found[-1] if found else "", tag, limit=2):
        found += page
    return found


async def test_a_scope_with_a_basins_name_is_that_basin(back: EmbeddedBack, controller: Controller) -> None:
    config = await back.perform(GetBasinConfig(BASIN_SCOPE))
    assert config.default_stream_config.retention == INFINITE
    assert not config.create_stream_on_append
    assert not config.create_stream_on_read
    assert await controller.scopes.exists(BASIN_SCOPE)


async def test_other_scopes_are_only_remembered(back: EmbeddedBack, controller: Controller) -> None:
    assert await controller.scopes.exists(SCOPE)
    assert SCOPE not in [info.name for info in (await back.perform(ListBasins())).items]


@both
async def test_a_scope_is_created_once(controller: Controller, scope: str) -> None:
    with RefusedWith(ControllerProblem.SCOPE_EXISTS):
        await controller.scopes.create(scope)


async def test_a_basin_of_another_protocol_is_a_scope(back: EmbeddedBack, controller: Controller) -> None:
    await back.perform(CreateBasin("made-by-s2-clients"))
    assert await controller.scopes.exists("made-by-s2-clients")
    with RefusedWith(ControllerProblem.SCOPE_EXISTS):
        await controller.scopes.create("made-by-s2-clients")


@pytest.mark.parametrize("name", ["", "_scope", "a/b", "über", ".", "..", "a b", "x" * 256])
async def test_names_that_no_scope_has(controller: Controller, name: str) -> None:
    with RefusedWith(ControllerProblem.INVALID_NAME):
        await controller.scopes.create(name)
    assert not await controller.scopes.exists(name)


async def test_scopes_are_listed_in_order_page_by_page(back: EmbeddedBack, controller: Controller) -> None:
    for name in ("zz", "Upper.Case", "another-basin", "b", "streams-of-many"):
        await controller.scopes.create(name)
    expected = sorted([BASIN, *SCOPES, "zz", "Upper.Case", "another-basin", "b", "streams-of-many"])
    assert await controller.scopes.page("", 100) == expected
    assert await controller.scopes.page(expected[1], 3) == expected[2:5]
    assert await controller.scopes.page(expected[-1], 100) == []


@both
async def test_streams_are_listed_however_they_were_created(
    back: EmbeddedBack, controller: Controller, scope: str
) -> None:
    basin, prefix = (BASIN_SCOPE, "") if scope == BASIN_SCOPE else (BASIN, "tiny/")
    await controller.streams.create(scope, "one", segments(1, tags=("red",)))
    await controller.streams.create(scope, "many", segments(3, tags=("red", "blue")))
    for name in ("Zebra", "no_underscores", "no/slashes", "9"):
        await back.perform(CreateStream(StreamRef(basin, prefix + name)))
    assert await names(controller, scope) == ["9", "Zebra", "many", "one"]
    assert await names(controller, scope, "red") == ["many", "one"]
    assert await names(controller, scope, "blue") == ["many"]
    assert await names(controller, scope, "green") == []


@both
async def test_streams_of_reader_groups_are_listed_on_demand(controller: Controller, scope: str) -> None:
    for name in ("Zebra", "one"):
        await controller.streams.create(scope, name, segments(1, tags=("red",)))
    for name in ("a", "b", "c"):
        await controller.groups.create(scope, name, GROUP)
    assert await names(controller, scope) == ["Zebra", "one"]
    pages, after = [], ""
    while page := await controller.listing.streams(scope, after, limit=2, with_groups=True):
        pages.append(page)
        after = page[-1]
    assert pages == [["Zebra", "_RGa"], ["_RGb", "_RGc"], ["one"]]
    assert await controller.listing.streams(scope, "", "red", with_groups=True) == ["Zebra", "one"]


async def test_a_stream_that_another_protocol_deleted_is_not_listed(back: EmbeddedBack, controller: Controller) -> None:
    await controller.streams.create(BASIN_SCOPE, "gone", segments(1))
    await back.perform(DeleteStream(StreamRef(BASIN_SCOPE, "gone")))
    assert await names(controller, BASIN_SCOPE) == []
    assert not await controller.queries.exists(BASIN_SCOPE, "gone")
    await controller.streams.create(BASIN_SCOPE, "gone", segments(2))
    assert await names(controller, BASIN_SCOPE) == ["gone"]


async def test_nothing_is_listed_of_a_scope_that_is_not_there(controller: Controller) -> None:
    for scope in ("missing", "missing-basin", "_pravega"):
        with RefusedWith(ControllerProblem.SCOPE_NOT_FOUND):
            await controller.listing.streams(scope, "")


@both
async def test_an_empty_scope_is_deleted(back: EmbeddedBack, controller: Controller, scope: str) -> None:
    await controller.deletion.delete(scope)
    assert not await controller.scopes.exists(scope)
    with RefusedWith(ControllerProblem.SCOPE_NOT_FOUND):
        await controller.deletion.delete(scope)


@both
async def test_a_scope_with_a_stream_stays(controller: Controller, scope: str) -> None:
    await controller.streams.create(scope, "stream", segments(2))
    with RefusedWith(ControllerProblem.SCOPE_NOT_EMPTY):
        await controller.deletion.delete(scope)
    await controller.streams.seal(scope, "stream")
    await controller.streams.delete(scope, "stream")
    await controller.deletion.delete(scope)


@both
async def test_a_scope_with_a_reader_group_stays(controller: Controller, scope: str) -> None:
    await controller.groups.create(scope, "group", GROUP)
    with RefusedWith(ControllerProblem.SCOPE_NOT_EMPTY):
        await controller.deletion.delete(scope)
    await controller.groups.delete(scope, "group", "an-id")
    await controller.deletion.delete(scope)


async def test_a_basin_with_what_only_others_can_name_stays(back: EmbeddedBack, controller: Controller) -> None:
    await back.perform(CreateStream(StreamRef(BASIN_SCOPE, "no/pravega name")))
    with RefusedWith(ControllerProblem.SCOPE_NOT_EMPTY):
        await controller.deletion.delete(BASIN_SCOPE)
    with RefusedWith(ControllerProblem.SCOPE_NOT_EMPTY):
        await controller.deletion.delete_all(BASIN_SCOPE)


@both
async def test_a_scope_is_deleted_with_all_that_is_in_it(
    back: EmbeddedBack, controller: Controller, scope: str
) -> None:
    await controller.streams.create(scope, "one", segments(1))
    await controller.streams.create(scope, "many", segments(3))
    await controller.queries.current(scope, "_MARKone")
    await controller.groups.create(scope, "group", GROUP)
    await write(back, scope, "many", b"some bytes", 2)
    await controller.deletion.delete_all(scope)
    assert not await controller.scopes.exists(scope)
    for name in ("one", "many", "_MARKone", "_RGgroup"):
        assert await info(back, scope, name) is None


async def test_internal_streams_go_with_their_scope(back: EmbeddedBack, wall: Wall) -> None:
    """A stream that another protocol made and deleted leaves its marks behind."""
    controller = Controller(back, settings(), wall)
    await controller.scopes.create(BASIN_SCOPE)
    await back.perform(CreateStream(StreamRef(BASIN_SCOPE, "stream")))
    assert len(await controller.queries.current(BASIN_SCOPE, "_MARKstream")) == 1
    await back.perform(DeleteStream(StreamRef(BASIN_SCOPE, "stream")))
    assert await info(back, BASIN_SCOPE, "_MARKstream") is not None
    await controller.deletion.delete(BASIN_SCOPE)
    assert await info(back, BASIN_SCOPE, "_MARKstream") is None


async def test_a_stream_is_kept_for_ever_in_a_scope_that_is_no_basin(
    back: EmbeddedBack, controller: Controller
) -> None:
    """Also where the basin that it shares with others keeps records for a week."""
    await controller.streams.create(SCOPE, "stream", segments(1))
    assert (await back.perform(GetStreamConfig(StreamRef(BASIN, "tiny/stream")))).retention == INFINITE
