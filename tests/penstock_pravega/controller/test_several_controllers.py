"""Controllers of several gateways with the same state, before one server that has the segments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from random import Random

import pytest
import trio
from support.controller import BASIN_SCOPE, NAMES, SCOPE, SCOPES, content, event, info, segments, settings, write
from support.routing import RouteTable, routed
from support.store import Wall
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.backends.logged_tables import Lease, LoggedTables, open_logged_tables
from penstock.backends.logged_tables.leases import PATIENCE
from penstock.backends.store_at_server import StoreAtServer
from penstock.backends.turns import StreamTurns
from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.failures import FailureCode, OperationFailed
from penstock_pravega.controller.controller.controller import SWEEP_SECONDS, TURNS, Controller
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import KeyValueTable, ReaderGroup, TransactionState
from penstock_pravega.controller.controller.topology import KeyRange, equal_ranges
from penstock_pravega.controller.controller.transactions import TransactionId

GROUP = ReaderGroup(3000, 30000, 3, 0, 0, "an-id", (), (), 0)
TABLE = KeyValueTable(partitions=2, primary_key_length=3)


class Gateway:
    """One gateway's controller, which runs until it is killed."""

    def __init__(self, state: LoggedTables, server: EmbeddedBack, wall: Wall) -> None:
        kept = StoreAtServer(state, lambda: server)
        view = routed(kept, server, RouteTable(name="everything", back="far")).for_listener("controller", NAMES)
        self.lease = Lease(state, "controller", lambda: "here")
        self.controller = Controller(view, settings(), wall, StreamTurns(state, TURNS), self.lease)
        self.alive = trio.CancelScope()

    async def run(self) -> None:
        with self.alive:
            await self.controller.run()


class Gateways:
    """Three of them. `server`: the store behind all."""

    def __init__(self, gateways: list[Gateway], server: EmbeddedBack, wall: Wall) -> None:
        self.gateways, self.server, self.wall = gateways, server, wall

    def __getitem__(self, number: int) -> Controller:
        return self.gateways[number % len(self.gateways)].controller

    async def at_once(self, request: Callable[[Controller], Awaitable[object]]) -> list[object]:
        """Make a request through all of them at once; return the problems, None for each that was accepted."""
        found: list[object] = []

        async def one(controller: Controller) -> None:
            try:
                await request(controller)
            except ControllerRefusal as refused:
                found.append(refused.problem)
            else:
                found.append(None)

        async with trio.open_nursery() as nursery:
            for gateway in self.gateways:
                nursery.start_soon(one, gateway.controller)
        return sorted(found, key=lambda problem: problem is not None)


@pytest.fixture
async def gateways(back: EmbeddedBack, wall: Wall) -> AsyncIterator[Gateways]:
    shared = SharedLog()
    async with AsyncExitStack() as stack:
        states = [await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), 1 << 22)) for _ in range(3)]
        async with trio.open_nursery() as nursery:
            made = [Gateway(state, back, wall) for state in states]
            for gateway in made:
                nursery.start_soon(gateway.run)
            for scope in SCOPES:
                await made[0].controller.scopes.create(scope)
            yield Gateways(made, back, wall)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("scope", SCOPES)
async def test_of_equal_requests_one_is_accepted(clock: MockClock, gateways: Gateways, scope: str) -> None:
    exists = ControllerProblem.STREAM_EXISTS
    assert await gateways.at_once(lambda one: one.streams.create(scope, "s", segments(2))) == [None, exists, exists]
    assert await gateways.at_once(lambda one: one.tables.create(scope, "t", TABLE)) == (
        [None] + [ControllerProblem.TABLE_EXISTS] * 2
    )
    assert await gateways.at_once(lambda one: one.groups.create(scope, "g", GROUP)) == [None] * 3
    assert await gateways.at_once(lambda one: one.streams.seal(scope, "s")) == [None] * 3
    missing = ControllerProblem.STREAM_NOT_FOUND
    assert await gateways.at_once(lambda one: one.streams.delete(scope, "s")) == [None, missing, missing]
    assert await gateways.at_once(lambda one: one.deletion.delete_all(scope)) != [None] * 3
    assert not await gateways[0].scopes.exists(scope)


async def test_a_stream_that_one_creates_another_scales_and_a_third_seals(clock: MockClock, gateways: Gateways) -> None:
    for number in range(3):
        name = f"s{number}"
        await gateways[number].streams.create(SCOPE, name, segments(1))
        await gateways[number + 1].scaling.scale(SCOPE, name, [0], equal_ranges(2))
        current = await gateways[number + 2].queries.current(SCOPE, name)
        assert [one.keys for one in current] == [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]
        await gateways[number + 2].streams.seal(SCOPE, name)
        assert await gateways[number].queries.current(SCOPE, name) == []
        await gateways[number].streams.delete(SCOPE, name)
        await gateways[number + 1].streams.create(SCOPE, name, segments(1))
        assert [one.number for one in await gateways[number + 2].queries.current(SCOPE, name)] == [3]


async def test_transactions_end_once_whichever_gateways_are_asked(clock: MockClock, gateways: Gateways) -> None:
    """Some commits and aborts of the same transaction come at once; what one of them says holds for all."""
    await gateways[0].streams.create(BASIN_SCOPE, "s", segments(2))
    dice = Random("transactions")
    begun: list[TransactionId] = []
    for number in range(20):
        transaction, ours = await gateways[number].transactions.create(BASIN_SCOPE, "s", 60_000)
        for segment in ours:
            body = event(b"%d of %d" % (number, segment.number))
            await write(gateways.server, BASIN_SCOPE, "s", body, segment.id, f"#transaction.{transaction}")
        begun.append(transaction)
    outcomes: dict[TransactionId, set[TransactionState]] = {one: set() for one in begun}

    async def end(controller: Controller, transaction: TransactionId, state: TransactionState) -> None:
        await trio.sleep(dice.random() / 10)
        act = controller.transactions.commit if state is TransactionState.COMMITTED else controller.transactions.abort
        with suppress(ControllerRefusal):
            await act(BASIN_SCOPE, "s", transaction)
            outcomes[transaction].add(state)

    async def extend(controller: Controller, transaction: TransactionId) -> None:
        for _ in range(5):
            await trio.sleep(dice.random() / 20)
            await controller.transactions.ping(BASIN_SCOPE, "s", transaction, 60_000)

    async with trio.open_nursery() as nursery:
        for transaction in begun:
            for number in range(3):
                state = TransactionState.ABORTED if dice.random() < 0.4 else TransactionState.COMMITTED
                nursery.start_soon(end, gateways[number], transaction, state)
                nursery.start_soon(extend, gateways[number + 1], transaction)
    assert all(len(states) == 1 for states in outcomes.values()), outcomes
    committed = [number for number, one in enumerate(begun) if outcomes[one] == {TransactionState.COMMITTED}]
    assert committed
    for segment in range(2):
        found = await content(gateways.server, BASIN_SCOPE, "s", segment)
        expected = [event(b"%d of %d" % (number, segment)) for number in committed]
        assert len(found) == sum(map(len, expected))
        assert all(found.count(one) == 1 for one in expected)
    for number, transaction in enumerate(begun):
        state = await gateways[number + 1].transactions.state(BASIN_SCOPE, "s", transaction)
        assert outcomes[transaction] == {state}
        assert await info(gateways.server, BASIN_SCOPE, "s", 0, f"#transaction.{transaction}") is None


async def test_another_gateway_does_the_duties_of_one_that_was_killed(clock: MockClock, gateways: Gateways) -> None:
    await trio.sleep(1)
    holders = [gateway for gateway in gateways.gateways if gateway.lease.held]
    assert len(holders) == 1
    await gateways[0].streams.create(SCOPE, "s", segments(1))
    transaction, _ = await gateways[1].transactions.create(SCOPE, "s", 1000)
    holders[0].alive.cancel()
    gateways.wall.now += 2000
    alive = next(gateway for gateway in gateways.gateways if gateway is not holders[0]).controller
    await trio.sleep(PATIENCE + 2 * SWEEP_SECONDS)
    assert await alive.transactions.state(SCOPE, "s", transaction) is TransactionState.ABORTED


async def test_what_a_killed_gateway_had_begun_is_finished(clock: MockClock, gateways: Gateways) -> None:
    """A commit that was cut off anywhere is carried out by the duties of another gateway."""
    for checkpoints in range(0, 60, 3):
        name = f"s{checkpoints}"
        await gateways[0].streams.create(SCOPE, name, segments(2))
        transaction, ours = await gateways[0].transactions.create(SCOPE, name, 60_000)
        for segment in ours:
            await write(gateways.server, SCOPE, name, event(b"body"), segment.id, f"#transaction.{transaction}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateways[1].transactions.commit, SCOPE, name, transaction)
            for _ in range(checkpoints):
                await trio.sleep(0.0005)
            nursery.cancel_scope.cancel()
        await trio.sleep(2 * SWEEP_SECONDS)
        state = await gateways[2].transactions.state(SCOPE, name, transaction)
        assert state in (TransactionState.OPEN, TransactionState.COMMITTED)
        bodies = {await content(gateways.server, SCOPE, name, segment) for segment in range(2)}
        assert bodies == {event(b"body") if state is TransactionState.COMMITTED else b""}


async def test_changes_of_all_kinds_through_all_gateways_at_once(clock: MockClock, gateways: Gateways) -> None:
    """Each is made whole, or refused: in the end the segments of each stream divide the keys, and can be written to."""
    dice = Random("changes")
    names = ["a", "b"]

    async def change(controller: Controller) -> None:
        name = dice.choice(names)
        await trio.sleep(dice.random())
        try:
            match dice.randrange(6):
                case 0:
                    await controller.streams.create(SCOPE, name, segments(dice.randint(1, 3)))
                case 1:
                    await controller.streams.update(SCOPE, name, segments(dice.randint(1, 4)))
                case 2:
                    current = await controller.queries.current(SCOPE, name)
                    one = dice.choice(current) if current else None
                    if one is not None:
                        middle = (one.low + one.high) / 2
                        halves = [KeyRange(one.low, middle), KeyRange(middle, one.high)]
                        await controller.scaling.scale(SCOPE, name, [one.id], halves)
                case 3:
                    transaction, _ = await controller.transactions.create(SCOPE, name, 60_000)
                    await dice.choice(gateways.gateways).controller.transactions.commit(SCOPE, name, transaction)
                case 4:
                    await controller.recovery.finish_all()
                case 5:
                    await controller.streams.seal(SCOPE, name)
                    await controller.streams.delete(SCOPE, name)
        except ControllerRefusal:
            pass
        except OperationFailed as error:
            # Two gateways may look at a stream of which there is no record yet, or create a transaction of one that
            # is deleted: a client tries again.
            assert error.failure.code in (FailureCode.TRANSACTION_CONFLICT, FailureCode.STREAM_NOT_FOUND), error

    for _ in range(8):
        async with trio.open_nursery() as nursery:
            for number in range(18):
                nursery.start_soon(change, gateways[number])
        for name in names:
            for gateway in gateways.gateways:
                stream = await gateway.controller.queries._catalog.look_up(SCOPE, name)
                if stream is None:
                    continue
                assert not stream.record.unfinished
                current = stream.current
                assert [one.low for one in current] == [0.0, *(one.high for one in current[:-1])], name
                for segment in current:
                    found = await gateways.server.perform(GetByteStreamInfo(NAMES.to_stream(stream.name_of(segment))))
                    assert not found.sealed, (name, segment)
