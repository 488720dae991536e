"""Long commands that are told to stop: they end in order, and say what they did."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

__all__ = ["until_signalled"]


async def until_signalled(work: Callable[[], Awaitable[object]]) -> bool:
    """Do it, until SIGINT or SIGTERM cancels it; whether it was done. What it raises goes on as it is."""
    failure: Exception | None = None
    done = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        try:
            await work()
            done = True
        except Exception as error:  # raised again outside of the nursery, which would put it into a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return done


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
