"""Streams that are deleted and created again: segment numbers continue, whichever protocol's client did it."""

from typing import TypeVar

import pytest
from support.controller import (
    BASIN_SCOPE,
    SCOPE,
    SCOPES,
    RefusedWith,
    content,
    event,
    segments,
    settings,
    write,
)
from support.store import Fails, Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import BackWrapper
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import CreateBasin, CreateStream, DeleteBasin, DeleteStream, ListStreams, Operation
from penstock.model.records import StreamRef
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import Configuration, ReaderGroup, TransactionState
from penstock_pravega.controller.controller.topology import KeyRange, equal_ranges

R = TypeVar("R")

both = pytest.mark.parametrize("scope", SCOPES)


def ref_of(scope: str, place: str = "") -> StreamRef:
    """Return the name in other protocols of `stream` in this scope, or of another of its segments."""
    return (
        StreamRef(scope, f"stream{place}") if scope == BASIN_SCOPE else StreamRef("penstock", f"{scope}/stream{place}")
    )


async def current(controller: Controller, scope: str = SCOPE, name: str = "stream") -> list[int]:
    return [segment.id for segment in await controller.queries.current(scope, name)]


async def delete(controller: Controller, scope: str = SCOPE) -> None:
    await controller.streams.seal(scope, "stream")
    await controller.streams.delete(scope, "stream")


@both
async def test_numbers_go_on(back: EmbeddedBack, controller: Controller, wall: Wall, scope: str) -> None:
    """As in Pravega, also over a restart; the first segment has the stream's own name for other protocols."""
    await controller.streams.create(scope, "stream", segments(2))
    for first in (2, 4):
        await delete(controller, scope)
        controller = Controller(back, settings(), wall)
        await controller.streams.create(scope, "stream", segments(2))
        assert await current(controller, scope) == [first, first + 1]
        assert [offset for _, offset in await controller.queries.at_head(scope, "stream")] == [0, 0]
        ref = ref_of(scope)
        listed = {one.name for one in (await back.perform(ListStreams(ref.basin, ref.stream))).items}
        assert listed == {ref.stream, ref_of(scope, f"/{first + 1}.#epoch.0").stream}
    await controller.scaling.scale(scope, "stream", [4, 5], equal_ranges(3))
    await delete(controller, scope)
    await controller.streams.create(scope, "stream", segments(1))
    assert await current(controller, scope) == [9]


@both
async def test_another_protocols_client_makes_it_again(
    back: EmbeddedBack, controller: Controller, wall: Wall, scope: str
) -> None:
    """The old stream's metadata does not apply to the new one."""
    await controller.streams.create(scope, "stream", Configuration(tags=("old",)))
    assert await current(controller, scope) == [0]
    for number in (1, 2):
        await back.perform(DeleteStream(ref_of(scope)))
        await back.perform(CreateStream(ref_of(scope)))
        assert await current(controller, scope) == [number]
        assert await current(Controller(back, settings(), wall), scope) == [number]
        assert (await controller.queries.configuration(scope, "stream")).tags == ()
    await controller.scaling.scale(scope, "stream", [2], equal_ranges(2))
    assert await current(controller, scope) == [(1 << 32) + 3, (1 << 32) + 4]


async def test_a_stream_that_no_client_of_the_controller_created(back: EmbeddedBack, controller: Controller) -> None:
    await back.perform(CreateStream(ref_of(BASIN_SCOPE)))
    assert await current(controller, BASIN_SCOPE) == [0]
    await back.perform(DeleteStream(ref_of(BASIN_SCOPE)))
    assert not await controller.queries.exists(BASIN_SCOPE, "stream")
    await controller.streams.create(BASIN_SCOPE, "stream", segments(2))
    assert await current(controller, BASIN_SCOPE) == [1, 2]


@both
async def test_scopes_are_made_again(back: EmbeddedBack, controller: Controller, scope: str) -> None:
    """One number is kept for all streams of a scope that was deleted."""
    await controller.streams.create(scope, "stream", segments(3))
    await delete(controller, scope)
    await controller.deletion.delete(scope)
    await controller.scopes.create(scope)
    for name in ("stream", "other"):
        await controller.streams.create(scope, name, segments(1))
        assert await current(controller, scope, name) == [3]
    await controller.deletion.delete_all(scope)
    await controller.scopes.create(scope)
    await controller.streams.create(scope, "other", segments(1))
    assert await current(controller, scope, "other") == [4]


async def test_a_basin_is_made_again_by_another_protocols_client(back: EmbeddedBack, controller: Controller) -> None:
    await controller.streams.create(BASIN_SCOPE, "stream", segments(1))
    await back.perform(DeleteBasin(BASIN_SCOPE))
    await back.perform(CreateBasin(BASIN_SCOPE))
    await back.perform(CreateStream(ref_of(BASIN_SCOPE)))
    assert await current(controller, BASIN_SCOPE) == [1]


async def test_the_state_of_a_reader_group_is_made_again(controller: Controller) -> None:
    """Readers of the old group must not take part in the new one."""
    config = ReaderGroup(1000, 1000, 1, 0, 0, "an-id", (), (), 0)
    for number in range(3):
        await controller.groups.create(SCOPE, "group", config)
        assert await current(controller, SCOPE, "_RGgroup") == [number]
        await controller.groups.delete(SCOPE, "group", "an-id")


async def test_the_first_of_several_segments_is_made_again(back: EmbeddedBack, controller: Controller) -> None:
    """To clients of other protocols it is a stream, which they can delete and create: a segment follows the old one."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"lost"))
    assert await current(controller) == [0, 1]
    await back.perform(DeleteStream(ref_of(SCOPE)))
    assert await current(controller) == [0, 1]
    await back.perform(CreateStream(ref_of(SCOPE)))
    await write(back, SCOPE, "stream", event(b"kept"))
    two, three = (1 << 32) + 2, (2 << 32) + 3
    assert await current(controller) == [two, 1]
    followed = await controller.queries.following(SCOPE, "stream", 0)
    assert [(heir.id, [one.id for one in old]) for heir, old in followed] == [(two, [0])]
    assert {one.id for one, _ in await controller.queries.at_head(SCOPE, "stream")} == {1, two}
    assert [one.id for one in await controller.queries.between(SCOPE, "stream", [], [])] == [1, two]
    await back.perform(DeleteStream(ref_of(SCOPE)))
    await back.perform(CreateStream(ref_of(SCOPE)))
    assert await current(controller) == [three, 1]
    _, made = await controller.scaling.scale(SCOPE, "stream", [three], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    assert [one.id for one in made] == [(3 << 32) + 4, (3 << 32) + 5]
    with Fails(FailureCode.STREAM_SEALED):
        await write(back, SCOPE, "stream", event(b"late"))


async def test_a_transaction_of_the_stream_before(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    """It cannot be committed to the one that has the name now."""
    await controller.streams.create(SCOPE, "stream", segments(1))
    transaction, _ = await controller.transactions.create(SCOPE, "stream", 30_000)
    await write(back, SCOPE, "stream", event(b"old"), 0, f"#transaction.{transaction}")
    await back.perform(DeleteStream(ref_of(SCOPE)))
    await back.perform(CreateStream(ref_of(SCOPE)))
    with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND):
        await controller.transactions.commit(SCOPE, "stream", transaction)
    assert await controller.transactions.state(SCOPE, "stream", transaction) is TransactionState.ABORTED
    assert await content(back, SCOPE, "stream") == b""
    assert (await back.perform(ListStreams("_pravega"))).items == []


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_transactions_of_a_stream_that_was_made_again(
    back: EmbeddedBack, controller: Controller, end: str
) -> None:
    await controller.streams.create(SCOPE, "stream", segments(1))
    await delete(controller)
    await controller.streams.create(SCOPE, "stream", segments(1))
    transaction, [first] = await controller.transactions.create(SCOPE, "stream", 30_000)
    assert first.id == 1
    await write(back, SCOPE, "stream", event(b"new"), 0, f"#transaction.{transaction}")
    await getattr(controller.transactions, end)(SCOPE, "stream", transaction)
    assert await content(back, SCOPE, "stream") == (event(b"new") if end == "commit" else b"")
    assert (await back.perform(ListStreams("_pravega"))).items == []


class NeverForgets(BackWrapper):
    """A back that takes no name twice, as a real segment store."""

    def __init__(self, back: EmbeddedBack) -> None:
        super().__init__(back)
        self._deleted: set[StreamRef] = set()

    async def perform(self, operation: Operation[R]) -> R:
        if isinstance(operation, CreateStream) and operation.stream in self._deleted:
            raise fail(FailureCode.STREAM_DELETION_PENDING, str(operation.stream))
        result = await self._inner.perform(operation)
        if isinstance(operation, DeleteStream) and operation.stream.basin == "_pravega":
            self._deleted.add(operation.stream)
        return result


async def test_internal_streams_are_called_otherwise_each_time(back: EmbeddedBack, wall: Wall) -> None:
    """Internal streams are deleted with their stream, or by others at the server behind the gateway."""
    behind = NeverForgets(back)
    controller = Controller(behind, settings(), wall)
    await controller.scopes.create(SCOPE)
    for number in range(3):
        await controller.streams.create(SCOPE, "stream", segments(1))
        assert await current(controller, SCOPE, "_MARKstream") == [number]
        await delete(controller)
    await controller.streams.create(SCOPE, "stream", segments(1))
    assert await current(controller, SCOPE, "_MARKstream") == [3]
    for number in (3, 4):
        await behind.perform(DeleteStream(StreamRef("_pravega", f"{SCOPE}/_MARKstream/{number}.#epoch.0")))
        assert await current(controller, SCOPE, "_MARKstream") == [number + 1]
