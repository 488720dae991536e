"""A process that ends between any two operations of a request leaves a state that a retry, or the next start, repairs.

Each story is run again and again, with the end one operation later each time, until its request gets through: once with
the end before an operation, once with the end after the operation and before its result is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import trio
from support.controller import SCOPE, content, event, info, interrupted, segments, settings, write
from support.store import Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import ListStreams
from penstock.model.table_operations import NOT_EXISTS, TableItem, UpdateTable
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import KeyValueTable, ReaderGroup, TransactionState
from penstock_pravega.controller.controller.topology import KeyRange, equal_ranges
from penstock_pravega.controller.controller.transactions import TransactionId
from penstock_pravega.segment.names import SegmentName

TABLE = KeyValueTable(partitions=2, primary_key_length=3)
GROUP = ReaderGroup(3000, 30000, 3, 0, 0, "an-id", (), (), 0)
QUARTERS = [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)]


@dataclass
class Told:
    """One telling of a story: in a stream of its own."""

    back: Back
    name: str
    transaction: TransactionId | None = None

    async def events(self, controller: Controller) -> list[bytes]:
        """The bytes of all segments that are not empty."""
        found = [
            await content(self.back, SCOPE, self.name, segment.id)
            for segment in await controller.queries.between(SCOPE, self.name, [], [])
        ]
        return [each for each in found if each]

    @property
    def id(self) -> TransactionId:
        """The transaction that was begun."""
        assert self.transaction is not None
        return self.transaction


Step = Callable[[Controller, Told], Awaitable[object]]


@dataclass
class Story:
    """Steps that prepare, request, and check the result.

    `excuses`: problems that a retry may report because the first request had got through.
    """

    prepare: Step
    request: Step
    check: Step
    excuses: tuple[ControllerProblem, ...] = ()


async def nothing(controller: Controller, told: Told) -> None:
    """Nothing is there."""


async def two_segments(controller: Controller, told: Told) -> None:
    """A stream with an event in each of its segments."""
    await controller.streams.create(SCOPE, told.name, segments(2))
    await write(told.back, SCOPE, told.name, event(b"zero"))
    await write(told.back, SCOPE, told.name, event(b"one"), 1)


async def sealed_stream(controller: Controller, told: Told) -> None:
    await two_segments(controller, told)
    await controller.streams.seal(SCOPE, told.name)


async def scaled_stream(controller: Controller, told: Told) -> None:
    await two_segments(controller, told)
    await controller.scaling.scale(SCOPE, told.name, [0], QUARTERS)


async def open_transaction(controller: Controller, told: Told) -> None:
    """With events for both segments."""
    await controller.streams.create(SCOPE, told.name, segments(2))
    told.transaction, ours = await controller.transactions.create(SCOPE, told.name, 1000)
    for segment, data in zip(ours, (b"first", b"second"), strict=True):
        await write(told.back, SCOPE, told.name, event(data), segment.id, f"#transaction.{told.transaction}")


async def transaction_before_a_split(controller: Controller, told: Told) -> None:
    await open_transaction(controller, told)
    await controller.scaling.scale(SCOPE, told.name, [0], QUARTERS)


async def reader_group(controller: Controller, told: Told) -> None:
    await controller.groups.create(SCOPE, told.name, GROUP)


async def is_created(controller: Controller, told: Told) -> None:
    assert [segment.number for segment in await controller.queries.current(SCOPE, told.name)] == [0, 1, 2]
    for segment in range(3):
        await write(told.back, SCOPE, told.name, b"written", segment)


async def is_sealed(controller: Controller, told: Told) -> None:
    assert await controller.queries.current(SCOPE, told.name) == []
    for segment in range(2):
        found = await info(told.back, SCOPE, told.name, segment)
        assert found is not None
        assert found.sealed


async def is_deleted(controller: Controller, told: Told) -> None:
    assert not await controller.queries.exists(SCOPE, told.name)
    assert await info(told.back, SCOPE, told.name, 0) is None
    assert await info(told.back, SCOPE, told.name, 1) is None


async def is_scaled(controller: Controller, told: Told) -> None:
    current = await controller.queries.current(SCOPE, told.name)
    assert [segment.keys for segment in current] == [*QUARTERS, KeyRange(0.5, 1.0)]
    old = await info(told.back, SCOPE, told.name, 0)
    assert old is not None
    assert old.sealed
    for segment in current:
        await write(told.back, SCOPE, told.name, b"written", segment.id)


async def has_four(controller: Controller, told: Told) -> None:
    current = await controller.queries.current(SCOPE, told.name)
    assert [segment.keys for segment in current] == equal_ranges(4)
    assert (await controller.queries.configuration(SCOPE, told.name)).tags == ("new",)


async def is_truncated(controller: Controller, told: Told) -> None:
    head = await controller.queries.at_head(SCOPE, told.name)
    assert sorted((segment.number, offset) for segment, offset in head) == [(1, 11), (2, 0), (3, 0)]
    assert await info(told.back, SCOPE, told.name, 0) is None
    assert await content(told.back, SCOPE, told.name, 1) == b""


async def is_committed(controller: Controller, told: Told) -> None:
    assert await controller.transactions.state(SCOPE, told.name, told.id) is TransactionState.COMMITTED
    assert sorted(await told.events(controller)) == [event(b"first"), event(b"second")]
    assert await left_of_transactions(told) == []


async def is_aborted(controller: Controller, told: Told) -> None:
    assert await controller.transactions.state(SCOPE, told.name, told.id) is TransactionState.ABORTED
    assert await told.events(controller) == []
    assert await left_of_transactions(told) == []


async def has_a_group(controller: Controller, told: Told) -> None:
    assert await controller.groups.get(SCOPE, told.name) == GROUP
    assert await info(told.back, SCOPE, "_RG" + told.name) is not None


async def has_no_group(controller: Controller, told: Told) -> None:
    assert told.name not in await controller.groups.names(SCOPE)
    assert await info(told.back, SCOPE, "_RG" + told.name) is None


async def key_value_table(controller: Controller, told: Told) -> None:
    await controller.tables.create(SCOPE, told.name, TABLE)


async def has_a_table(controller: Controller, told: Told) -> None:
    for segment in await controller.tables.segments(SCOPE, told.name):
        entry = TableItem(b"key", b"value", NOT_EXISTS)
        await told.back.perform(UpdateTable(f"{SCOPE}/{told.name}_kvtable/{segment.number}.#epoch.0", (entry,)))


async def has_no_table(controller: Controller, told: Told) -> None:
    assert told.name not in await controller.tables.page(SCOPE, "", 1000)
    for number in range(3):
        assert not await controller.tables._catalog.segments.has_table(
            SegmentName(SCOPE, f"{told.name}_kvtable", number)
        )


async def left_of_transactions(told: Told) -> list[str]:
    try:
        page = await told.back.perform(ListStreams("_pravega", f"{SCOPE}/{told.name}/"))
    except OperationFailed as error:
        assert error.failure.code is FailureCode.BASIN_NOT_FOUND
        return []
    return [each.name for each in page.items]


STORIES = {
    "create": Story(
        nothing,
        lambda controller, told: controller.streams.create(SCOPE, told.name, segments(3)),
        is_created,
        (ControllerProblem.STREAM_EXISTS,),
    ),
    "seal": Story(two_segments, lambda controller, told: controller.streams.seal(SCOPE, told.name), is_sealed),
    "delete": Story(
        sealed_stream,
        lambda controller, told: controller.streams.delete(SCOPE, told.name),
        is_deleted,
        (ControllerProblem.STREAM_NOT_FOUND,),
    ),
    "scale": Story(
        two_segments,
        lambda controller, told: controller.scaling.scale(SCOPE, told.name, [0], QUARTERS),
        is_scaled,
        (ControllerProblem.NOT_CURRENT,),
    ),
    "update": Story(
        two_segments,
        lambda controller, told: controller.streams.update(SCOPE, told.name, segments(4, tags=("new",))),
        has_four,
    ),
    "truncate": Story(
        scaled_stream,
        lambda controller, told: controller.streams.truncate(
            SCOPE, told.name, {1: 11, (1 << 32) + 2: 0, (1 << 32) + 3: 0}
        ),
        is_truncated,
    ),
    "commit": Story(
        open_transaction,
        lambda controller, told: controller.transactions.commit(SCOPE, told.name, told.id),
        is_committed,
    ),
    "commit after a split": Story(
        transaction_before_a_split,
        lambda controller, told: controller.transactions.commit(SCOPE, told.name, told.id),
        is_committed,
    ),
    "abort": Story(
        open_transaction, lambda controller, told: controller.transactions.abort(SCOPE, told.name, told.id), is_aborted
    ),
    "create a group": Story(
        nothing, lambda controller, told: controller.groups.create(SCOPE, told.name, GROUP), has_a_group
    ),
    "delete a group": Story(
        reader_group,
        lambda controller, told: controller.groups.delete(SCOPE, told.name, "an-id"),
        has_no_group,
        (ControllerProblem.GROUP_NOT_FOUND,),
    ),
    "create a key-value table": Story(
        nothing,
        lambda controller, told: controller.tables.create(SCOPE, told.name, TABLE),
        has_a_table,
        (ControllerProblem.TABLE_EXISTS,),
    ),
    "delete a key-value table": Story(
        key_value_table,
        lambda controller, told: controller.tables.delete(SCOPE, told.name),
        has_no_table,
        (ControllerProblem.TABLE_NOT_FOUND,),
    ),
}


async def tell(
    story: Story, back: Back, wall: Wall, end: Callable[[Controller, Told], Awaitable[None]], kind: str
) -> int:
    """Run a story with an interruption at each of its steps, and `end` after each run; return the number of
    interruptions.
    """
    interruptions = 0
    for after in (False, True):
        steps, more = 0, True
        while more:
            told = Told(back, f"{kind}.{after}.{steps}")
            await story.prepare(Controller(back, settings(), wall), told)
            more = await interrupted(back, wall, lambda one, told=told: story.request(one, told), steps, after)
            await end(Controller(back, settings(), wall), told)
            interruptions += more
            steps += 1
    return interruptions


@pytest.mark.parametrize("name", STORIES)
async def test_a_repetition_finishes_it(back: EmbeddedBack, controller: Controller, wall: Wall, name: str) -> None:
    story = STORIES[name]

    async def repeat(controller: Controller, told: Told) -> None:
        try:
            await story.request(controller, told)
        except ControllerRefusal as refused:
            assert refused.problem in story.excuses, refused
        await story.check(controller, told)

    assert await tell(story, back, wall, repeat, "repeated") >= 6


@pytest.mark.parametrize("name", STORIES)
async def test_the_next_start_finishes_what_was_begun(
    back: EmbeddedBack, controller: Controller, wall: Wall, name: str
) -> None:
    """All of it or nothing: a change that has not begun is not made."""
    story = STORIES[name]

    async def restart(controller: Controller, told: Told) -> None:
        await controller.recovery.finish_all()
        await controller.tables.finish_all()
        await controller.transactions.sweep()
        await is_whole(controller, told)
        with suppress(ControllerRefusal):
            await story.request(controller, told)
        await story.check(controller, told)

    await tell(story, back, wall, restart, "restarted")


async def is_whole(controller: Controller, told: Told) -> None:
    """The stream is not there, or sealed throughout, or each of its segments can be written to."""
    assert not (await left_of_transactions(told)) or told.transaction is not None
    if not await controller.queries.exists(SCOPE, told.name):
        assert await info(told.back, SCOPE, told.name, 0) is None
        return
    current = await controller.queries.current(SCOPE, told.name)
    if current:
        assert [segment.low for segment in current] == [0.0, *(segment.high for segment in current[:-1])]
        assert current[-1].high == 1.0
    for segment in current:
        found = await info(told.back, SCOPE, told.name, segment.id)
        assert found is not None
        assert not found.sealed


async def test_a_cancelled_request_is_an_interrupted_one(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    """A client that goes away cancels its request at any checkpoint."""
    for checkpoints in range(40):
        name = f"cancelled.{checkpoints}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.streams.create, SCOPE, name, segments(3))
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        with suppress(ControllerRefusal):
            await controller.streams.create(SCOPE, name, segments(3))
        await is_created(controller, Told(back, name))


async def test_a_scope_whose_deletion_was_interrupted_is_deleted_again(back: EmbeddedBack, wall: Wall) -> None:
    for scope in ("tiny", "a-scope-with-a-basin"):
        steps, more = 0, True
        while more:
            controller = Controller(back, settings(), wall)
            with suppress(ControllerRefusal):
                await controller.scopes.create(scope)
            await controller.streams.create(scope, "stream", segments(2))
            await controller.tables.create(scope, "table", TABLE)
            more = await interrupted(
                back, wall, lambda one, scope=scope: one.deletion.delete_all(scope), steps, after=steps % 2 == 0
            )
            with suppress(ControllerRefusal):
                await controller.deletion.delete_all(scope)
            assert not await controller.scopes.exists(scope)
            steps += 1
        assert steps > 6
