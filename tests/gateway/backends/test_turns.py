"""Turns at streams: of the tasks of one gateway, and of several gateways with the same state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import trio
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.logged_tables import LoggedTables, open_logged_tables
from penstock.backends.owners import PATIENCE, StreamOwners
from penstock.backends.turns import StreamTurns
from penstock.model.records import StreamRef
from penstock.tables.byte_table import ByteTable

STREAM = StreamRef("penstock", "orders")


class Gateways:
    """Gateways with the same state. `busy`: tasks that have the turn at STREAM now."""

    def __init__(self, log: SharedLog, states: list[LoggedTables], nursery: trio.Nursery) -> None:
        self.log = log
        self.turns = [StreamTurns(state, "#turns") for state in states]
        self.states = states
        self.scopes = [trio.CancelScope() for _ in states]
        self.busy = 0
        self.taken: list[int] = []
        for number in range(len(states)):
            nursery.start_soon(self._run, number)

    async def _run(self, number: int) -> None:
        with self.scopes[number]:
            await self.turns[number].run()

    async def take(self, number: int, seconds: float = 0.0) -> None:
        """Have a turn through one of them for so long; no other task may have it meanwhile."""
        async with self.turns[number].turn(STREAM):
            assert not self.busy
            self.busy += 1
            await trio.sleep(seconds)
            self.busy -= 1
            self.taken.append(number)

    def changes(self) -> int:
        """Return the number of batches that the log has."""
        return self.states[0].batches_read


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    shared = SharedLog()
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), 1 << 20)) for _ in range(3)]
        async with trio.open_nursery() as nursery:
            yield Gateways(shared, opened, nursery)
            nursery.cancel_scope.cancel()


async def test_one_at_a_time(autojump_clock: MockClock, gateways: Gateways) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(gateways.take, number % 3, number % 4 / 10)
    assert sorted(gateways.taken) == sorted([0, 1, 2] * 10)


async def test_the_next_turn_of_the_same_gateway_writes_nothing(autojump_clock: MockClock, gateways: Gateways) -> None:
    await gateways.take(0)
    before = gateways.changes()
    for _ in range(5):
        await gateways.take(0)
    assert gateways.changes() == before


async def test_a_long_turn_is_not_cut_off(autojump_clock: MockClock, gateways: Gateways) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateways.take, 0, 20 * PATIENCE)
        await trio.sleep(1)
        nursery.start_soon(gateways.take, 1)
    assert gateways.taken == [0, 1]


async def test_a_gateway_that_was_cut_off_takes_no_turn_from_a_live_one(autojump_clock: MockClock) -> None:
    """Although that one was cut off as well: it has another time to say that it is alive."""
    shared = SharedLog()
    links = [SharedLogEnd(shared), SharedLogEnd(shared)]
    async with (
        open_logged_tables(links[0], 1 << 20) as one,
        open_logged_tables(links[1], 1 << 20) as other,
        trio.open_nursery() as nursery,
    ):
        gateways = Gateways(shared, [one, other], nursery)
        async with trio.open_nursery() as taking:
            taking.start_soon(gateways.take, 0, 20 * PATIENCE)
            await trio.sleep(1)
            taking.start_soon(gateways.take, 1)
            await trio.sleep(1)
            for link in links:
                link.reachable = trio.Event()
            await trio.sleep(5 * PATIENCE)
            for link in links[::-1]:
                link.reachable.set()
        assert gateways.taken == [0, 1]
        nursery.cancel_scope.cancel()


async def test_the_turn_of_a_dead_gateway_ends(autojump_clock: MockClock, gateways: Gateways) -> None:
    async with open_logged_tables(SharedLogEnd(gateways.log), 1 << 20) as state:
        async with StreamTurns(state, "#turns").turn(STREAM):  # it never runs, so it does not answer
            pass
        began = trio.current_time()
        await gateways.take(1)
    assert PATIENCE <= trio.current_time() - began < 2 * PATIENCE


async def test_a_gateway_that_stops_keeps_no_turn(autojump_clock: MockClock, gateways: Gateways) -> None:
    await gateways.take(0)
    gateways.scopes[0].cancel()
    await trio.sleep(0.1)
    began = trio.current_time()
    await gateways.take(1)
    assert trio.current_time() - began < PATIENCE / 2


async def test_nothing_is_kept_of_a_stream_that_is_forgotten(autojump_clock: MockClock, gateways: Gateways) -> None:
    async with gateways.turns[0].turn(STREAM):
        await gateways.turns[0].forget(STREAM)
    assert not gateways.states[0].peek_items("#turns")
    await gateways.take(1)


async def test_a_gateway_stops_although_its_state_is_closed_before(autojump_clock: MockClock) -> None:
    """Others have the turn once it was silent for long enough."""
    shared = SharedLog()
    async with open_logged_tables(SharedLogEnd(shared), 1 << 20) as other, trio.open_nursery() as nursery:
        async with open_logged_tables(SharedLogEnd(shared), 1 << 20) as one:
            gateways = Gateways(shared, [one, other], nursery)
            await gateways.take(0)
        gateways.scopes[0].cancel()
        await gateways.take(1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(5))
async def test_of_two_that_wait_for_a_dead_gateway_one_has_the_turn(
    autojump_clock: MockClock, gateways: Gateways, seed: int
) -> None:
    """Before, the second one took it from the first one at once, as if that one were dead too."""
    async with open_logged_tables(SharedLogEnd(gateways.log), 1 << 20) as state:
        async with StreamTurns(state, "#turns").turn(STREAM):  # it never runs, so it does not answer
            pass
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(gateways.take, number, 1.0)
    assert sorted(gateways.taken) == [0, 1, 2]


async def test_a_stream_that_is_given_up_while_it_is_asked_for_is_taken_at_once(
    gateways: Gateways, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, waiter = (StreamOwners(state, ByteTable(state, "#owners")) for state in gateways.states[:2])
    await owner.take(STREAM)
    put = ByteTable.put

    async def put_then_give_up(table: ByteTable, *items: tuple[bytes, bytes]) -> None:
        await put(table, *items)
        await owner.give_up(STREAM)
        await table.entries(b"any")  # reads the log to its end

    monkeypatch.setattr(ByteTable, "put", put_then_give_up)
    with trio.fail_after(PATIENCE / 2):
        await waiter.take(STREAM)
