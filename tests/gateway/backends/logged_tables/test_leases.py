"""A duty of one gateway among several: who has it, who takes it over, and what the one before may still store."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from support.store import Fails
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.logged_tables import Lease, LoggedTables, LogNews, open_logged_tables
from penstock.backends.logged_tables.leases import PATIENCE, PRESENCE_SECONDS
from penstock.core.back import Back
from penstock.model.failures import FailureCode
from penstock.model.table_operations import CreateTable
from penstock.tables.byte_table import ByteTable


class Duty:
    """Notes when it is done, and keeps the state that it may store in."""

    def __init__(self, state: LoggedTables, name: str) -> None:
        self.lease = Lease(state, "duty", lambda: name)
        self.state: Back | None = None

    async def run(self) -> None:
        await self.lease.run(self._do)

    async def _do(self, state: Back) -> None:
        self.state = state
        await trio.sleep_forever()


@pytest.mark.parametrize("leaves", [True, False])
async def test_another_gateway_takes_over(autojump_clock: MockClock, leaves: bool) -> None:
    """At once if the holder leaves, and after a time without beats if it is dead or deaf."""
    shared = SharedLog()
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as one,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as other,
        trio.open_nursery() as nursery,
    ):
        first, second = Duty(one, "one"), Duty(other, "other")
        scope = trio.CancelScope()

        async def until_cancelled() -> None:
            with scope:
                await first.run()

        nursery.start_soon(until_cancelled)
        await trio.sleep(1)
        nursery.start_soon(second.run)
        await trio.sleep(10 * PATIENCE)
        assert first.lease.held and not second.lease.held
        assert second.lease.holder() == "one"
        before = first.state
        assert before is not None
        await before.perform(CreateTable("#stored"))
        if leaves:
            scope.cancel()
            await trio.sleep(1)
        else:
            first.lease._beat = b"lost"  # no other gateway hears it
            await trio.sleep(PATIENCE - 1)
            assert second.lease.holder() is None, "clients are not sent to a gateway that may be dead"
            await trio.sleep(2)
        assert second.lease.held and not first.lease.held
        with Fails(FailureCode.HOT_SERVER):
            await before.perform(CreateTable("#too-late"))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("ends", [(1,), (0, 1)], ids=["waiter", "both"])
async def test_a_gateway_that_was_cut_off_takes_no_lease_from_a_live_holder(
    autojump_clock: MockClock, ends: tuple[int, ...]
) -> None:
    """It reads what the holder wrote meanwhile, and waits for another beat; before, it counted from the last that it
    had read."""
    shared = SharedLog()
    links = [SharedLogEnd(shared), SharedLogEnd(shared)]
    async with (
        open_logged_tables(links[0], 1 << 20) as one,
        open_logged_tables(links[1], 1 << 20) as other,
        trio.open_nursery() as nursery,
    ):
        first, second = Duty(one, "one"), Duty(other, "other")
        nursery.start_soon(first.run)
        await trio.sleep(1)
        nursery.start_soon(second.run)
        for _ in range(20):
            await trio.sleep(PATIENCE + 0.7)  # at another time between two beats
            for end in ends:
                links[end].reachable = trio.Event()
            await trio.sleep(5 * PATIENCE)
            for end in ends[::-1]:  # the one that waits is the first to go on
                links[end].reachable.set()
            await trio.sleep(PATIENCE)
            assert first.lease.held and not second.lease.held
            assert second.lease.holder() == "one"
        nursery.cancel_scope.cancel()


async def test_a_pause_of_all_gateways_moves_no_lease(autojump_clock: MockClock) -> None:
    """Such as that of a machine that is suspended: the beats of its time were never written."""
    shared = SharedLog()
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as one,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as other,
        trio.open_nursery() as nursery,
    ):
        first, second = Duty(one, "one"), Duty(other, "other")
        nursery.start_soon(first.run)
        await trio.sleep(1)
        nursery.start_soon(second.run)
        for number in range(20):
            await trio.sleep(PATIENCE + 0.7)
            autojump_clock.jump(PATIENCE * (1 + number))
            await trio.sleep(PATIENCE)
            assert first.lease.held and not second.lease.held
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("leaves", [True, False])
async def test_gateways_know_of_each_other(autojump_clock: MockClock, leaves: bool) -> None:
    """Also one that has the lease of those that wait for it; one that leaves is forgotten at once, a dead one later."""
    shared = SharedLog()
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as one,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as other,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as third,
        trio.open_nursery() as nursery,
    ):
        duties = [Duty(one, "one"), Duty(other, "other"), Duty(third, "third")]
        scopes = [trio.CancelScope() for _ in duties]

        async def run(duty: Duty, scope: trio.CancelScope) -> None:
            with scope:
                await duty.run()

        for each in zip(duties, scopes, strict=True):
            nursery.start_soon(run, *each)
        await trio.sleep(10 * PRESENCE_SECONDS)
        assert [duty.lease.others() for duty in duties] == [["other", "third"], ["one", "third"], ["one", "other"]]
        if leaves:
            scopes[2].cancel()
            await trio.sleep(1)
        else:
            duties[2].lease._own = b"lost"  # no other gateway hears it
            await trio.sleep(PRESENCE_SECONDS)
            assert duties[0].lease.others() == ["other", "third"], "it may only be slow"
            await trio.sleep(2 * PRESENCE_SECONDS + 1)
        assert [duty.lease.others() for duty in duties[:2]] == [["other"], ["one"]]
        nursery.cancel_scope.cancel()


async def test_no_gateway_is_taken_for_gone_while_the_state_cannot_be_written(autojump_clock: MockClock) -> None:
    down = False
    shared = SharedLog(lambda: False if down else None)
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as one,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as other,
        trio.open_nursery() as nursery,
    ):
        duties = [Duty(one, "one"), Duty(other, "other")]
        for duty in duties:
            nursery.start_soon(duty.run)
        await trio.sleep(10 * PRESENCE_SECONDS)
        for seconds in (20 * PRESENCE_SECONDS, PRESENCE_SECONDS):
            down = not down
            for _ in range(int(seconds)):
                await trio.sleep(1)
                assert [duty.lease.others() for duty in duties] == [["other"], ["one"]]
        nursery.cancel_scope.cancel()


async def test_gateways_that_wait_write_little(autojump_clock: MockClock) -> None:
    """One record for each time that a gateway says that it is there, or that it has the lease, and no others."""
    shared = SharedLog()
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as one,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as other,
        trio.open_nursery() as nursery,
    ):
        for state in (one, other):
            nursery.start_soon(Duty(state, "some").run)
        await trio.sleep(60)
        before = len(shared.batches)
        await trio.sleep(900)
        written = Counter(change.key for batch in shared.batches[before:] for _, change in batch.changes)
        assert sorted(written.values()) == [100, 100, 300]
        nursery.cancel_scope.cancel()


class Again(SharedLogEnd):
    """An end of the log that is read from its beginning again, at first nothing, when `again` is set."""

    again = False

    async def read(self) -> LogNews:
        if self.again:
            self.again, self._read = False, 0
            return LogNews((), 0, restarted=True)
        return await super().read()


async def test_a_lease_is_kept_while_the_state_is_read_again(autojump_clock: MockClock) -> None:
    """Before, it was lost, and its duty cancelled."""
    end = Again(SharedLog())
    async with open_logged_tables(end, 1 << 20) as state, trio.open_nursery() as nursery:
        duty = Duty(state, "one")
        nursery.start_soon(duty.run)
        await trio.sleep(1)
        before = duty.state
        end.again = True
        await trio.sleep(2 * PATIENCE)
        assert not end.again
        assert duty.lease.held and duty.state is before
        nursery.cancel_scope.cancel()


async def test_a_full_state_costs_no_lease(autojump_clock: MockClock) -> None:
    """Before, beats were refused, so that others took the holder for dead, and the lease from it if there was room."""
    shared = SharedLog()
    most = 4096
    async with (
        open_logged_tables(SharedLogEnd(shared), most) as one,
        open_logged_tables(SharedLogEnd(shared), most) as other,
        trio.open_nursery() as nursery,
    ):
        first, second = Duty(one, "one"), Duty(other, "other")
        nursery.start_soon(first.run)
        await trio.sleep(1)
        nursery.start_soon(second.run)
        await trio.sleep(PRESENCE_SECONDS + 1)
        filling = ByteTable(one, "filling")
        with Fails(FailureCode.LIMIT_EXCEEDED):
            for number in range(most):
                await filling.put((b"%d" % number, b""))
        for _ in range(10):
            await trio.sleep(PATIENCE)
            assert first.lease.held and not second.lease.held
            assert second.lease.holder() == "one"
        assert second.lease.others() == ["one"]
        nursery.cancel_scope.cancel()
