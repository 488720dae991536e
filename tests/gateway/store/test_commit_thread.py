"""The thread that commits: what it runs, in which order, and who waits for it."""

import threading
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from penstock.store.commit_thread import CommitThread


@pytest.fixture
async def thread() -> AsyncIterator[CommitThread]:
    made = CommitThread()
    yield made
    made.end()


async def test_results_and_errors_come_back(thread: CommitThread) -> None:
    assert await thread.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(threading.get_ident) == await thread.run(threading.get_ident) != threading.get_ident()


async def test_functions_run_one_after_the_other(thread: CommitThread) -> None:
    """A cancellation does not end the wait: what began will be done, and its result is told."""
    may_end, ran = threading.Event(), []

    async def add(number: int) -> None:
        await thread.run(lambda: may_end.wait() and ran.append(number))
        ran.append(-number)

    with trio.CancelScope() as cancelled:
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(add, number)
                await trio.testing.wait_all_tasks_blocked()
            cancelled.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            assert ran == []
            may_end.set()
    assert [number for number in ran if number > 0] == [1, 2, 3]
    assert sorted(ran) == [-3, -2, -1, 1, 2, 3]
