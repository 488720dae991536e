"""Streams from creation to deletion."""

from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from support.controller import (
    BASIN_SCOPE,
    SCOPE,
    SCOPES,
    RefusedWith,
    content,
    event,
    info,
    interrupted,
    segments,
    settings,
    write,
)
from support.store import Fails, Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import BackWrapper
from penstock.model.byte_operations import Seal, Truncate
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import CreateStream, DeleteStream, GetStreamConfig, ListStreams, Operation
from penstock.model.records import StreamRef
from penstock.model.streams import Retention, StreamConfig
from penstock_pravega.controller.controller import SegmentsMode
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import NO_LIMIT, Configuration, RetentionType, ScaleType
from penstock_pravega.controller.controller.topology import KeyRange, Segment

R = TypeVar("R")

both = pytest.mark.parametrize("scope", SCOPES)

HALVES = [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]


async def stored(back: EmbeddedBack, scope: str) -> list[str]:
    """Return the store's names of the streams in a scope."""
    basin, prefix = (BASIN_SCOPE, "") if scope == BASIN_SCOPE else ("penstock", "tiny/")
    page = await back.perform(ListStreams(basin, prefix))
    return [each.name.removeprefix(prefix) for each in page.items]


@both
async def test_each_segment_is_a_stream(back: EmbeddedBack, controller: Controller, scope: str) -> None:
    await controller.streams.create(scope, "stream", segments(3))
    assert await stored(back, scope) == ["stream", "stream/1.#epoch.0", "stream/2.#epoch.0"]
    current = await controller.queries.current(scope, "stream")
    assert current == [Segment(0, 0, 0.0, 1 / 3), Segment(1, 0, 1 / 3, 2 / 3), Segment(2, 0, 2 / 3, 1.0)]
    assert await controller.queries.at_head(scope, "stream") == [(segment, 0) for segment in current]
    assert await controller.queries.is_open(scope, "stream", 2)
    assert not await controller.queries.is_open(scope, "stream", 3)


@both
async def test_a_stream_is_created_once(controller: Controller, scope: str) -> None:
    await controller.streams.create(scope, "stream", segments(1))
    with RefusedWith(ControllerProblem.STREAM_EXISTS):
        await controller.streams.create(scope, "stream", segments(2))
    assert len(await controller.queries.current(scope, "stream")) == 1


async def test_a_stream_needs_its_scope(controller: Controller) -> None:
    for scope in ("missing", "missing-basin"):
        with RefusedWith(ControllerProblem.SCOPE_NOT_FOUND):
            await controller.streams.create(scope, "stream", segments(1))


@pytest.mark.parametrize("name", ["", "a/b", "a_b", "__x", "über", ".", "..", "x" * 251])
async def test_names_that_no_stream_has(controller: Controller, name: str) -> None:
    with RefusedWith(ControllerProblem.INVALID_NAME):
        await controller.streams.create(BASIN_SCOPE, name, segments(1))


async def test_names_that_are_too_long_for_several_segments(controller: Controller) -> None:
    """Nothing is begun that could not be finished: the stream, and its scope, could never be deleted."""
    scope, name = "S" * 255, "x" * 250
    await controller.scopes.create(scope)
    with Fails(FailureCode.NOT_REPRESENTABLE):
        await controller.streams.create(scope, name, segments(2))
    assert not await controller.queries.exists(scope, name)
    await controller.streams.create(scope, name, segments(1))
    with Fails(FailureCode.NOT_REPRESENTABLE):
        await controller.scaling.scale(scope, name, [0], HALVES)
    await controller.streams.seal(scope, name)
    await controller.streams.delete(scope, name)
    await controller.deletion.delete(scope)


class Whole(BackWrapper):
    """A server whose streams have no names with slashes."""

    async def perform(self, operation: Operation[R]) -> R:
        if isinstance(operation, CreateStream) and "/1." in operation.stream.stream:
            raise fail(FailureCode.NOT_REPRESENTABLE, "a slash")
        return await self._inner.perform(operation)


async def test_nothing_is_left_of_a_stream_that_its_server_cannot_have(back: EmbeddedBack, wall: Wall) -> None:
    controller = Controller(Whole(back), settings(), wall)
    await controller.scopes.create(BASIN_SCOPE)
    with Fails(FailureCode.NOT_REPRESENTABLE):
        await controller.streams.create(BASIN_SCOPE, "stream", segments(2))
    assert not await controller.queries.exists(BASIN_SCOPE, "stream")
    assert await stored(back, BASIN_SCOPE) == []
    await controller.streams.create(BASIN_SCOPE, "stream", segments(1))
    assert await stored(back, BASIN_SCOPE) == ["stream"]


async def test_nothing_is_left_of_a_stream_whose_partitions_another_protocol_has(
    controller: Controller, back: EmbeddedBack
) -> None:
    back.declare_partitioned(BASIN_SCOPE)
    await back.perform(CreateStream(StreamRef(BASIN_SCOPE, "topic/0")))
    with Fails(FailureCode.INVALID):
        await controller.streams.create(BASIN_SCOPE, "topic", segments(2))
    assert not await controller.queries.exists(BASIN_SCOPE, "topic")
    assert await stored(back, BASIN_SCOPE) == ["topic/0"]


@pytest.mark.parametrize("count", [-1, 0, 1001])
async def test_as_many_segments_as_make_sense(controller: Controller, count: int) -> None:
    with RefusedWith(ControllerProblem.INVALID_CONFIG):
        await controller.streams.create(BASIN_SCOPE, "stream", segments(count))


async def test_a_stream_of_one_segment_by_configuration(back: EmbeddedBack, wall: Wall) -> None:
    controller = Controller(back, settings(SegmentsMode.SINGLE), wall)
    await controller.scopes.create(SCOPE)
    await controller.streams.create(SCOPE, "stream", segments(3))
    assert await controller.queries.current(SCOPE, "stream") == [Segment(0, 0, 0.0, 1.0)]
    assert (await controller.queries.configuration(SCOPE, "stream")).segments == 3
    with RefusedWith(ControllerProblem.SCALE_REFUSED):
        await controller.scaling.scale(SCOPE, "stream", [0], HALVES)
    assert await controller.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 1.0)]) == (0, [Segment(1, 1, 0.0, 1.0)])


async def test_several_segments_refused_by_configuration(back: EmbeddedBack, wall: Wall) -> None:
    controller = Controller(back, settings(SegmentsMode.REFUSE), wall)
    await controller.scopes.create(SCOPE)
    with RefusedWith(ControllerProblem.INVALID_CONFIG):
        await controller.streams.create(SCOPE, "stream", segments(2))
    await controller.streams.create(SCOPE, "stream", segments(1))
    with RefusedWith(ControllerProblem.INVALID_CONFIG):
        await controller.streams.update(SCOPE, "stream", segments(2))


# ---- configuration ----


@pytest.mark.parametrize(
    ("config", "age"),
    [
        (segments(1), None),
        (segments(1, retention_type=RetentionType.TIME, retention=1), 1),
        (segments(2, retention_type=RetentionType.TIME, retention=86_400_001, retention_max=NO_LIMIT), 86_401),
        (segments(1, retention_type=RetentionType.TIME, retention=1000, retention_max=5000), 1),
        (segments(1, retention_type=RetentionType.SIZE, retention=1000), None),
    ],
)
async def test_retention_by_time_is_the_streams(
    back: EmbeddedBack, controller: Controller, config: Configuration, age: int | None
) -> None:
    await controller.streams.create(BASIN_SCOPE, "stream", config)
    assert await controller.queries.configuration(BASIN_SCOPE, "stream") == config
    for name in await stored(back, BASIN_SCOPE):
        assert (await back.perform(GetStreamConfig(StreamRef(BASIN_SCOPE, name)))).retention == Retention(age)


async def test_what_is_not_enforced_is_said_once(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    """A gateway whose streams have one segment each cannot scale them."""
    single = Controller(back, settings(SegmentsMode.SINGLE), wall)
    with capture_logs() as logs:
        await single.streams.create(SCOPE, "stream", segments(1, scale_type=ScaleType.EVENTS))
        await single.streams.create(SCOPE, "other", segments(1, retention_type=RetentionType.SIZE, retention=1))
        await controller.streams.create(SCOPE, "third", segments(1, scale_type=ScaleType.EVENTS))
    [line] = [line for line in logs if line["event"] == "not_enforced"]
    assert line["log_level"] == "warning"
    assert line["stream"] == "tiny/stream"
    assert line["policies"] == ["automatic scaling"]


@both
async def test_a_configuration_is_replaced(back: EmbeddedBack, controller: Controller, scope: str) -> None:
    await controller.streams.create(scope, "stream", segments(2))
    changed = segments(2, tags=("a",), retention_type=RetentionType.TIME, retention=60_000, rollover_size_bytes=7)
    await controller.streams.update(scope, "stream", changed)
    assert await controller.queries.configuration(scope, "stream") == changed
    basin, prefix = (BASIN_SCOPE, "") if scope == BASIN_SCOPE else ("penstock", "tiny/")
    for name in await stored(back, scope):
        assert (await back.perform(GetStreamConfig(StreamRef(basin, prefix + name)))).retention == Retention(60)
    assert len(await controller.queries.current(scope, "stream")) == 2


async def test_more_segments_are_made_by_scaling(back: EmbeddedBack, controller: Controller) -> None:
    await controller.streams.create(SCOPE, "stream", segments(1))
    await write(back, SCOPE, "stream", event(b"early"))
    await controller.streams.update(SCOPE, "stream", segments(2))
    assert await controller.queries.current(SCOPE, "stream") == [Segment(1, 1, *HALVES[0]), Segment(2, 1, *HALVES[1])]
    assert await content(back, SCOPE, "stream") == event(b"early")


async def test_fewer_segments_are_made_by_scaling(back: EmbeddedBack, controller: Controller) -> None:
    """With Pravega too, a fixed number is exact."""
    await controller.streams.create(SCOPE, "stream", segments(3))
    await write(back, SCOPE, "stream", event(b"early"))
    await controller.streams.update(SCOPE, "stream", segments(2))
    assert await controller.queries.current(SCOPE, "stream") == [Segment(3, 1, *HALVES[0]), Segment(4, 1, *HALVES[1])]
    assert await content(back, SCOPE, "stream") == event(b"early")


async def test_a_least_number_is_none_that_a_stream_shrinks_to(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    """Scaling by rate does that in its time; a gateway that makes streams of one segment leaves others alone."""
    await controller.streams.create(SCOPE, "stream", segments(3))
    await controller.streams.update(SCOPE, "stream", segments(1, scale_type=ScaleType.EVENTS))
    assert len(await controller.queries.current(SCOPE, "stream")) == 3
    single = Controller(back, settings(SegmentsMode.SINGLE), wall)
    await single.streams.update(SCOPE, "stream", segments(3, tags=("a",)))
    assert len(await controller.queries.current(SCOPE, "stream")) == 3


async def test_what_is_not_there_is_not_configured(controller: Controller) -> None:
    with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
        await controller.streams.update(SCOPE, "stream", segments(1))
    await controller.streams.create(SCOPE, "stream", segments(1))
    await controller.streams.seal(SCOPE, "stream")
    with RefusedWith(ControllerProblem.STREAM_SEALED):
        await controller.streams.update(SCOPE, "stream", segments(1))


# ---- streams that other protocols made ----


async def test_a_stream_that_another_protocol_made_has_one_segment(back: EmbeddedBack, controller: Controller) -> None:
    await back.perform(CreateStream(StreamRef(BASIN_SCOPE, "foreign"), StreamConfig(retention=Retention(60))))
    [segment] = await controller.queries.current(BASIN_SCOPE, "foreign")
    assert segment == Segment(0, 0, 0.0, 1.0)
    assert await controller.queries.at_head(BASIN_SCOPE, "foreign") == [(segment, 0)]
    assert await controller.queries.configuration(BASIN_SCOPE, "foreign") == segments(
        1, retention_type=RetentionType.TIME, retention=60_000
    )
    with RefusedWith(ControllerProblem.STREAM_EXISTS):
        await controller.streams.create(BASIN_SCOPE, "foreign", segments(2))


async def test_a_stream_that_another_protocol_made_can_be_scaled(back: EmbeddedBack, controller: Controller) -> None:
    await back.perform(CreateStream(StreamRef(BASIN_SCOPE, "foreign"), StreamConfig(retention=Retention(60))))
    await controller.scaling.scale(BASIN_SCOPE, "foreign", [0], HALVES)
    assert len(await controller.queries.current(BASIN_SCOPE, "foreign")) == 2
    for name in await stored(back, BASIN_SCOPE):
        assert (await back.perform(GetStreamConfig(StreamRef(BASIN_SCOPE, name)))).retention == Retention(60)


async def test_a_stream_that_another_protocol_made_is_sealed_and_deleted(
    back: EmbeddedBack, controller: Controller
) -> None:
    ref = StreamRef(BASIN_SCOPE, "foreign")
    await back.perform(CreateStream(ref))
    with RefusedWith(ControllerProblem.STREAM_NOT_SEALED):
        await controller.streams.delete(BASIN_SCOPE, "foreign")
    await controller.streams.seal(BASIN_SCOPE, "foreign")
    assert await controller.queries.current(BASIN_SCOPE, "foreign") == []
    await controller.streams.delete(BASIN_SCOPE, "foreign")
    assert not await controller.queries.exists(BASIN_SCOPE, "foreign")
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(GetStreamConfig(ref))


async def test_what_a_segment_client_seals_is_sealed(back: EmbeddedBack, controller: Controller) -> None:
    await controller.streams.create(BASIN_SCOPE, "stream", segments(1))
    await back.perform(Seal(StreamRef(BASIN_SCOPE, "stream")))
    assert await controller.queries.current(BASIN_SCOPE, "stream") == []
    assert await controller.queries.following(BASIN_SCOPE, "stream", 0) == []


async def test_a_stream_that_another_protocol_made_anew_is_another(back: EmbeddedBack, controller: Controller) -> None:
    """It is neither sealed nor does it lose anything, whatever was done to the one before."""
    ref = StreamRef(BASIN_SCOPE, "stream")
    await controller.streams.create(BASIN_SCOPE, "stream", segments(1))
    await controller.streams.seal(BASIN_SCOPE, "stream")
    await back.perform(DeleteStream(ref))
    await back.perform(CreateStream(ref))
    assert len(await controller.queries.current(BASIN_SCOPE, "stream")) == 1
    with RefusedWith(ControllerProblem.STREAM_NOT_SEALED):
        await controller.streams.delete(BASIN_SCOPE, "stream")


# ---- sealing and deleting ----


@both
@pytest.mark.parametrize("count", [1, 3])
async def test_a_sealed_stream_ends(back: EmbeddedBack, controller: Controller, scope: str, count: int) -> None:
    await controller.streams.create(scope, "stream", segments(count))
    await controller.streams.seal(scope, "stream")
    await controller.streams.seal(scope, "stream")
    assert await controller.queries.current(scope, "stream") == []
    assert len(await controller.queries.at_head(scope, "stream")) == count
    for segment in range(count):
        assert await controller.queries.following(scope, "stream", segment) == []
        assert not await controller.queries.is_open(scope, "stream", segment)
        with Fails(FailureCode.STREAM_SEALED):
            await write(back, scope, "stream", b"more", segment)


@both
@pytest.mark.parametrize("count", [1, 3])
async def test_a_stream_is_deleted_once_it_is_sealed(
    back: EmbeddedBack, controller: Controller, scope: str, count: int
) -> None:
    await controller.streams.create(scope, "stream", segments(count))
    with RefusedWith(ControllerProblem.STREAM_NOT_SEALED):
        await controller.streams.delete(scope, "stream")
    await controller.streams.seal(scope, "stream")
    await controller.streams.delete(scope, "stream")
    assert await stored(back, scope) == []
    assert not await controller.queries.exists(scope, "stream")
    with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
        await controller.streams.delete(scope, "stream")
    with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
        await controller.streams.seal(scope, "stream")
    await controller.streams.create(scope, "stream", segments(2))
    assert len(await controller.queries.current(scope, "stream")) == 2


async def test_a_stream_that_is_being_sealed_changes_no_more(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    """This holds until the seal is finished."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    assert await interrupted(back, wall, lambda one: one.streams.seal(SCOPE, "stream"), left=4, after=False)
    assert len(await controller.queries.current(SCOPE, "stream")) == 2
    for change in (
        controller.streams.update(SCOPE, "stream", segments(3)),
        controller.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.5)]),
        controller.transactions.create(SCOPE, "stream", 1000),
    ):
        with RefusedWith(ControllerProblem.STREAM_SEALED):
            await change
    with RefusedWith(ControllerProblem.STREAM_NOT_SEALED):
        await controller.streams.delete(SCOPE, "stream")
    await controller.streams.seal(SCOPE, "stream")
    await controller.streams.delete(SCOPE, "stream")


# ---- truncating ----


@both
async def test_one_segment_is_truncated(back: EmbeddedBack, controller: Controller, scope: str) -> None:
    await controller.streams.create(scope, "stream", segments(1))
    await write(back, scope, "stream", event(b"one") + event(b"two"))
    await controller.streams.truncate(scope, "stream", {0: 11})
    assert await content(back, scope, "stream") == event(b"two")
    assert [offset for _, offset in await controller.queries.at_head(scope, "stream")] == [11]


async def test_a_cut_takes_the_segments_before_it(back: EmbeddedBack, controller: Controller) -> None:
    await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"early"))
    await write(back, SCOPE, "stream", event(b"kept"), 1)
    _, [one, two] = await controller.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    await write(back, SCOPE, "stream", event(b"later"), two.id)
    await controller.streams.truncate(SCOPE, "stream", {1: 0, one.id: 0, two.id: 13})
    assert await info(back, SCOPE, "stream", 0) is None
    head = {segment.id: offset for segment, offset in await controller.queries.at_head(SCOPE, "stream")}
    assert head == {1: 0, one.id: 0, two.id: 13}
    assert await content(back, SCOPE, "stream", two.id) == b""
    assert await content(back, SCOPE, "stream", 1) == event(b"kept")
    assert [segment.id for segment in await controller.queries.between(SCOPE, "stream", [], [])] == [1, one.id, two.id]
    with RefusedWith(ControllerProblem.INVALID_CUT):
        await controller.streams.truncate(SCOPE, "stream", {0: 5, 1: 0})
    await controller.streams.truncate(SCOPE, "stream", {1: 12, one.id: 0, two.id: 0})
    head = {segment.id: offset for segment, offset in await controller.queries.at_head(SCOPE, "stream")}
    assert head == {1: 12, one.id: 0, two.id: 13}, "truncation never goes back"


@pytest.mark.parametrize("cut", [{}, {0: 0}, {0: 0, 1: 0, 2: 0}, {0: 1, 1: 0}, {0: -1, 1: 0}, {0: 0, 5: 0}], ids=str)
async def test_what_is_no_cut(controller: Controller, cut: dict[int, int]) -> None:
    await controller.streams.create(SCOPE, "stream", segments(2))
    with RefusedWith(ControllerProblem.INVALID_CUT):
        await controller.streams.truncate(SCOPE, "stream", cut)


async def test_a_sealed_stream_is_truncated_too(back: EmbeddedBack, controller: Controller) -> None:
    await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"x"))
    await controller.streams.seal(SCOPE, "stream")
    await controller.streams.truncate(SCOPE, "stream", {0: 9, 1: 0})
    assert await content(back, SCOPE, "stream") == b""
    assert await controller.queries.current(SCOPE, "stream") == []


async def test_retention_moves_the_head(back: EmbeddedBack, controller: Controller) -> None:
    """Readers begin at the head of a segment, whatever trimmed it."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"x"), 1)
    await back.perform(Truncate(StreamRef("penstock", "tiny/stream/1.#epoch.0"), 9))
    assert [offset for _, offset in await controller.queries.at_head(SCOPE, "stream")] == [0, 9]
