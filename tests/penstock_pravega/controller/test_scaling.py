"""Scaling: new segments for old ones, and what clients see meanwhile."""

from typing import TypeVar

import pytest
from support.controller import (
    SCOPE,
    InterruptedBack,
    RefusedWith,
    event,
    info,
    interrupted,
    segments,
    settings,
    write,
)
from support.store import Fails, Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.model.byte_operations import Seal
from penstock.model.failures import FailureCode
from penstock.model.operations import Operation
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.topology import KeyRange, equal_ranges

R = TypeVar("R")

QUARTERS = [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)]
ONE, TWO = (1 << 32) + 2, (1 << 32) + 3


@pytest.fixture
async def scaled(back: EmbeddedBack, controller: Controller) -> Controller:
    """`tiny/stream` of two segments, whose first was replaced by two."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"early"))
    epoch, made = await controller.scaling.scale(SCOPE, "stream", [0], QUARTERS)
    assert (epoch, [segment.id for segment in made]) == (0, [ONE, TWO])
    return controller


async def test_the_replaced_segment_is_sealed_and_followed(back: EmbeddedBack, scaled: Controller) -> None:
    with Fails(FailureCode.STREAM_SEALED):
        await write(back, SCOPE, "stream", b"late")
    await write(back, SCOPE, "stream", b"there", ONE)
    await write(back, SCOPE, "stream", b"as before", 1)
    current = await scaled.queries.current(SCOPE, "stream")
    assert [(segment.id, segment.low, segment.high) for segment in current] == [
        (ONE, 0.0, 0.25),
        (TWO, 0.25, 0.5),
        (1, 0.5, 1.0),
    ]
    found = await scaled.queries.following(SCOPE, "stream", 0)
    assert [(segment.id, [one.id for one in old]) for segment, old in found] == [(ONE, [0]), (TWO, [0])]
    assert await scaled.queries.following(SCOPE, "stream", 1) == []


async def test_a_writer_that_finds_its_segment_sealed_is_told_who_follows(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    """Successors exist before the segment is sealed, so the answer is immediate; until then new writers get the old
    segment.
    """
    seen = []

    class Watching(InterruptedBack):
        async def perform(self, operation: Operation[R]) -> R:
            if not isinstance(operation, Seal):
                return await super().perform(operation)
            before = await controller.queries.current(SCOPE, "stream")
            result = await super().perform(operation)
            found = await controller.queries.following(SCOPE, "stream", 0)
            for segment, _ in found:
                await write(back, SCOPE, "stream", b"at once", segment.id)
            seen.append(([segment.id for segment in before], [segment.id for segment, _ in found]))
            return result

    await controller.streams.create(SCOPE, "stream", segments(2))
    scaling = Controller(Watching(back), settings(), wall).scaling
    await scaling.scale(SCOPE, "stream", [0], QUARTERS)
    assert seen == [([0, 1], [ONE, TWO])]


async def test_epochs_are_remembered(scaled: Controller) -> None:
    first = await scaled.queries.of_epoch(SCOPE, "stream", 0)
    assert [segment.id for segment in first] == [0, 1]
    assert await scaled.queries.of_epoch(SCOPE, "stream", 1) == await scaled.queries.current(SCOPE, "stream")
    for epoch in (-1, 2):
        with RefusedWith(ControllerProblem.SEGMENT_NOT_FOUND):
            await scaled.queries.of_epoch(SCOPE, "stream", epoch)


async def test_readers_begin_with_the_first_epoch(scaled: Controller) -> None:
    assert [segment.id for segment, _ in await scaled.queries.at_head(SCOPE, "stream")] == [0, 1]


async def test_segments_between_cuts(scaled: Controller) -> None:
    async def between(start: list[int], end: list[int]) -> list[int]:
        return [segment.id for segment in await scaled.queries.between(SCOPE, "stream", start, end)]

    assert await between([], []) == [0, 1, ONE, TWO]
    assert await between([0, 1], [0, 1]) == [0, 1]
    assert await between([1, ONE, TWO], []) == [1, ONE, TWO]
    assert await between([0], []) == [0, ONE, TWO], "a reader group lacks keys of segments that wait for others"
    assert await between([0, 1], [1, ONE]) == [0, 1, ONE, TWO]
    assert await between([ONE, TWO], [0, 1]) == []
    with RefusedWith(ControllerProblem.INVALID_CUT):
        await between([0, 99], [])


async def test_cuts_are_checked(scaled: Controller) -> None:
    assert await scaled.queries.is_cut(SCOPE, "stream", {0: 5, 1: 0})
    assert await scaled.queries.is_cut(SCOPE, "stream", {1: 0, ONE: 0, TWO: 7})
    for cut in ({}, {0: 0}, {0: 0, 1: 0, ONE: 0}, {1: 0, ONE: 0}, {99: 0}):
        assert not await scaled.queries.is_cut(SCOPE, "stream", cut)


async def test_a_scale_is_done_when_it_is_answered(scaled: Controller) -> None:
    assert await scaled.scaling.is_done(SCOPE, "stream", 0)
    assert not await scaled.scaling.is_done(SCOPE, "stream", 1)
    with RefusedWith(ControllerProblem.SCALE_REFUSED):
        await scaled.scaling.is_done(SCOPE, "stream", 2)


async def test_the_same_scale_again_is_refused(scaled: Controller) -> None:
    before = await scaled.queries.current(SCOPE, "stream")
    with RefusedWith(ControllerProblem.NOT_CURRENT):
        await scaled.scaling.scale(SCOPE, "stream", [0], [*reversed(QUARTERS)])
    assert await scaled.queries.current(SCOPE, "stream") == before


@pytest.mark.parametrize("left", [1, 2, 3, 4])
async def test_a_scale_that_was_interrupted_is_finished_by_asking_again(
    back: EmbeddedBack, controller: Controller, wall: Wall, left: int
) -> None:
    await controller.streams.create(SCOPE, "stream", segments(2))
    ended = await interrupted(back, wall, lambda one: one.scaling.scale(SCOPE, "stream", [0], QUARTERS), left, True)
    assert ended
    entry = await controller.queries.current(SCOPE, "stream")
    assert [segment.id for segment in entry] == [0, 1]
    epoch, made = await controller.scaling.scale(SCOPE, "stream", [0], QUARTERS)
    assert (epoch, [segment.id for segment in made]) == (0, [ONE, TWO])


async def test_a_truncation_at_a_cut_that_lacks_keys(back: EmbeddedBack, controller: Controller) -> None:
    """0 and 1 become 2 and 3, and both overlap 1. A reader group has finished 0: 2 waits for 1."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"one") * 2, 1)
    _, made = await controller.scaling.scale(SCOPE, "stream", [0, 1], [KeyRange(0.0, 0.75), KeyRange(0.75, 1.0)])
    two, three = (segment.id for segment in made)
    cut = {1: 11, two: -1, three: -1}
    assert await controller.queries.is_cut(SCOPE, "stream", cut)
    with RefusedWith(ControllerProblem.INVALID_CUT):
        await controller.streams.truncate(SCOPE, "stream", {1: 11})
    await controller.streams.truncate(SCOPE, "stream", cut)
    assert await info(back, SCOPE, "stream", 0) is None
    head = await controller.queries.at_head(SCOPE, "stream")
    assert [(segment.id, offset) for segment, offset in head] == [(1, 11)]
    assert [segment.id for segment in await controller.queries.between(SCOPE, "stream", [], [])] == [1, two, three]
    for finished, expected in ((1, {two: [1], three: [1]}), (0, {two: [0, 1]})):
        found = await controller.queries.following(SCOPE, "stream", finished)
        assert {heir.id: [one.id for one in followed] for heir, followed in found} == expected
    await controller.streams.truncate(SCOPE, "stream", {two: 0, three: 0})
    assert await info(back, SCOPE, "stream", 1) is None


async def test_successors_of_a_truncated_segment_have_all_their_predecessors(controller: Controller) -> None:
    """Else a writer that was connected before replaces its segment by another range of keys, and fails."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    _, [whole] = await controller.scaling.scale(SCOPE, "stream", [0, 1], equal_ranges(1))
    await controller.streams.truncate(SCOPE, "stream", {whole.id: 0})
    for old in (0, 1):
        [(heir, followed)] = await controller.queries.following(SCOPE, "stream", old)
        assert (heir.id, [one.id for one in followed]) == (whole.id, [0, 1])


@pytest.mark.parametrize(
    ("old", "new"),
    [([], []), ([1], [KeyRange(0.0, 0.5)]), ([1], []), ([1, ONE], QUARTERS)],
)
async def test_what_does_not_fit_is_refused(scaled: Controller, old: list[int], new: list[KeyRange]) -> None:
    with RefusedWith(ControllerProblem.SCALE_REFUSED):
        await scaled.scaling.scale(SCOPE, "stream", old, new)


@pytest.mark.parametrize("old", [[0], [7], [0, 1]])
async def test_only_current_segments_are_replaced(scaled: Controller, old: list[int]) -> None:
    with RefusedWith(ControllerProblem.NOT_CURRENT):
        await scaled.scaling.scale(SCOPE, "stream", old, equal_ranges(1))


async def test_a_sealed_stream_is_not_scaled(scaled: Controller) -> None:
    await scaled.streams.seal(SCOPE, "stream")
    with RefusedWith(ControllerProblem.STREAM_SEALED):
        await scaled.scaling.scale(SCOPE, "stream", [1], [KeyRange(0.5, 1.0)])


async def test_segments_are_joined(back: EmbeddedBack, scaled: Controller) -> None:
    _, [whole] = await scaled.scaling.scale(SCOPE, "stream", [ONE, TWO, 1], equal_ranges(1))
    for old in (ONE, TWO, 1):
        found = await scaled.queries.following(SCOPE, "stream", old)
        assert [(segment.id, [one.id for one in each]) for segment, each in found] == [(whole.id, [ONE, TWO, 1])]
    await write(back, SCOPE, "stream", event(b"on"), whole.id)


async def test_a_stream_has_a_life_of_so_many_segments(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_pravega.controller.controller.scaling.MAX_SEGMENTS", 5)
    await controller.streams.create(SCOPE, "stream", segments(2))
    await controller.scaling.scale(SCOPE, "stream", [0, 1], equal_ranges(3))
    with RefusedWith(ControllerProblem.SCALE_REFUSED):
        await controller.scaling.scale(SCOPE, "stream", [(1 << 32) + 2], [KeyRange(0.0, 1 / 3)])
