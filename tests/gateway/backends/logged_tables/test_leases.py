"""A duty of one gateway among several: who has it, who takes it over, and what the one before may still store."""

from __future__ import annotations

import pytest
import trio
from support.store import Fails
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.logged_tables import Lease, LoggedTables, open_logged_tables
from penstock.backends.logged_tables.leases import PATIENCE
from penstock.core.back import Back
from penstock_codecs.failures import FailureCode
from penstock_codecs.table_operations import CreateTable


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
