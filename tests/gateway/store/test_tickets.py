"""Outcomes of operations in flight, as those who wait for them see them."""

from __future__ import annotations

import trio
import trio.testing

from penstock.store.committer import Ticket


async def test_waiting_may_be_cancelled_and_called_again(autojump_clock: trio.testing.MockClock) -> None:
    ticket: Ticket[int] = Ticket()
    for _ in range(2):
        with trio.move_on_after(1) as scope:
            await ticket.wait()
        assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            assert await ticket.wait() == 7

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        ticket.resolve(7)
    assert await ticket.wait() == 7
