"""Long commands that end in order when signalled, and report what they did."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

__all__ = ["until_signalled"]


async def until_signalled(work: Callable[[], Awaitable[object]]) -> bool:
    """Run `work` until it is done or SIGINT or SIGTERM cancels it. Return whether it was done; propagate its exceptions
    unchanged."""
    failure: Exception | None = None
    done = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        try:
            await work()
            done = True
        except Exception as error:  # raised again outside of the nursery, which would wrap it in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return done


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
