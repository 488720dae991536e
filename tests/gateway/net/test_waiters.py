"""Tasks that wait for a connection's progress."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from penstock.net.waiters import Waiters


async def test_all_that_wait_are_woken(autojump_clock: trio.testing.MockClock) -> None:
    waiters, woken = Waiters(), []

    async def wait(name: str) -> None:
        await waiters.park()
        woken.append(name)

    waiters.unpark_all()  # none waits yet, and the next one is not woken by it
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "a")
            nursery.start_soon(wait, "b")
            await wait_all_tasks_blocked()
            assert not woken
            waiters.unpark_all()
        assert sorted(woken) == ["a", "b"]
        woken.clear()


async def test_a_wait_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    waiters = Waiters()
    with trio.move_on_after(1) as scope:
        await waiters.park()
    assert scope.cancelled_caught
    waiters.unpark_all()
