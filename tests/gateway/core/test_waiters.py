"""Tasks that wait for something to change."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from penstock.core.waiters import Waiters


async def test_all_that_wait_are_woken_once_and_those_that_were_cancelled_are_not() -> None:
    waiters, woken = Waiters(), list[str]()

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await waiters.park()
            woken.append(name)

    waiters.unpark_all()  # none waits yet, and the next one is not woken by it
    for _ in range(2):
        scopes = {name: trio.CancelScope() for name in "abc"}
        async with trio.open_nursery() as nursery:
            for name, scope in scopes.items():
                nursery.start_soon(wait, name, scope)
            await wait_all_tasks_blocked()
            assert not woken
            scopes["b"].cancel()
            await wait_all_tasks_blocked()
            waiters.unpark_all()
            scopes["c"].cancel()  # too late: it is awake
        assert sorted(woken) == ["a", "c"]
        woken.clear()


async def test_one_that_is_not_ready_goes_on_waiting() -> None:
    waiters, ready, woken = Waiters(), set[str](), list[str]()

    async def wait(name: str) -> None:
        await waiters.park(lambda: name in ready)
        woken.append(name)

    async with trio.open_nursery() as nursery:
        for name in "ab":
            nursery.start_soon(wait, name)
        await wait_all_tasks_blocked()
        for name in "ba":
            ready.add(name)
            waiters.unpark_all()
            await wait_all_tasks_blocked()
    assert woken == ["b", "a"]


async def test_a_task_that_is_cancelled_before_does_not_wait() -> None:
    waiters = Waiters()
    with trio.CancelScope() as scope:
        scope.cancel()
        await waiters.park()
    assert scope.cancelled_caught
    waiters.unpark_all()
