"""One process in which all that is otherwise a matter of luck follows from a seed.

Trio's clock jumps ahead whenever all tasks wait. Its scheduler shuffles tasks that are ready by dice of ours. Work for
threads is done by trio's own thread, after a while of virtual time, and its result arrives after another while: so
tasks go on before and after it, and the pieces of work of several threads come in any order, each whole. Code that
yields by the processor's time uses the virtual clock instead.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Final, TypeVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

import trio
import trio._core._run as scheduler
import trio.testing

from penstock import protocols
from penstock.store.commit_thread import CommitThread

__all__ = ["deterministic", "run"]

T = TypeVar("T")
THREAD_SECONDS: Final = 0.002
"""Mean of the virtual time that work waits for a thread, and of the time that its result is on its way."""


@contextmanager
def deterministic(dice: random.Random, wall: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Take all chances from `dice`, and the time of day from `wall` (in ms), until the block ends."""
    _load_protocols()
    before, module = scheduler._r.getstate(), random.getstate()
    scheduler._r.seed(dice.random())
    random.seed(dice.random())
    with ExitStack() as stack:
        stack.enter_context(patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        in_threads = _by_dice(dice)
        stack.enter_context(patch.object(trio.to_thread, "run_sync", in_threads))
        stack.enter_context(patch.object(CommitThread, "run", _one_by_one(in_threads)))
        stack.enter_context(patch.object(time, "time", lambda: wall() / 1000))
        stack.enter_context(patch.object(time, "time_ns", lambda: wall() * 1_000_000))
        for module_with_chances in (os, random):  # uuid and secrets
            name = "urandom" if module_with_chances is os else "_urandom"
            stack.enter_context(patch.object(module_with_chances, name, dice.randbytes))
        for name, loaded in list(sys.modules.items()):
            if name.startswith("penstock") and getattr(loaded, "perf_counter", None) is time.perf_counter:
                stack.enter_context(patch.object(loaded, "perf_counter", trio.current_time))
        try:
            yield
        finally:
            scheduler._r.setstate(before)
            random.setstate(module)


@cache
def _load_protocols() -> None:
    """Import what a gateway imports once it is used, so that the first run is as the later ones."""
    for module in walk_packages(protocols.__path__, f"{protocols.__name__}."):
        import_module(module.name)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a program in virtual time, which begins at 0."""
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def _one_by_one(in_threads: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    threads: WeakKeyDictionary[CommitThread, trio.CapacityLimiter] = WeakKeyDictionary()

    async def run(self: CommitThread, function: Callable[[], T]) -> T:
        with trio.CancelScope(shield=True):
            result: T = await in_threads(function, limiter=threads.setdefault(self, trio.CapacityLimiter(1)))
        return result

    return run


def _by_dice(dice: random.Random) -> Callable[..., Awaitable[Any]]:
    async def run_sync(
        function: Callable[..., T],
        *given: Any,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        async with limiter or trio.CapacityLimiter(1):
            with trio.CancelScope(shield=True):
                await trio.sleep(dice.expovariate(1 / THREAD_SECONDS))
                try:
                    return function(*given)
                finally:
                    await trio.sleep(dice.expovariate(1 / THREAD_SECONDS))

    return run_sync
