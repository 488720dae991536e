"""Telling clients for whom there is no seat that there is none, within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

__all__ = ["Refusals", "Refuse", "close_at_once"]

Refuse = Callable[[trio.abc.Stream, str], Awaitable[None]]
"""Says on a stream that the limit of this name is reached, in the words of a protocol, and closes it."""

AT_ONCE: Final = 64
"""So many are told at a time; the others are closed without a word."""
SECONDS: Final = 2.0
"""How long telling one may take: over HTTP it must ask first, and over TLS shake hands."""


async def close_at_once(stream: trio.abc.Stream, _key: str) -> None:
    """What is said in a protocol that has no word for it."""
    await trio.aclose_forcefully(stream)


class Refusals:
    """Those of one listening socket."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._under_way = 0

    async def tell(self, refuse: Refuse, stream: trio.abc.Stream, key: str) -> None:
        """Refuse it because of this limit; returns before it knows."""
        if self._under_way >= AT_ONCE:
            await trio.aclose_forcefully(stream)
            return
        self._under_way += 1
        self._nursery.start_soon(self._run, refuse, stream, key)

    async def _run(self, refuse: Refuse, stream: trio.abc.Stream, key: str) -> None:
        try:
            with trio.move_on_after(SECONDS):
                await refuse(stream, key)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            return  # it has gone
        finally:
            self._under_way -= 1
            await trio.aclose_forcefully(stream)
