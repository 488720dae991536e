"""Refusals of connections for which the limits leave no room, bounded in number and time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

__all__ = ["Refusals", "Refuse", "close_at_once"]

Refuse = Callable[[trio.abc.Stream, str], Awaitable[None]]
"""Tells a client, in the words of its protocol, that the limit of this name is reached, and closes the stream."""

AT_ONCE: Final = 64
"""Refusals at a time; further connections are closed without a word."""
SECONDS: Final = 2.0
"""Seconds that a refusal may take: an HTTP client must send its request first, and over TLS shake hands."""


async def close_at_once(stream: trio.abc.Stream, _key: str) -> None:
    """Close the stream: the refusal in protocols that have no message for it."""
    await trio.aclose_forcefully(stream)


class Refusals:
    """The refusals of one listening socket."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._under_way = 0

    async def begin(self, refuse: Refuse, stream: trio.abc.Stream, key: str) -> None:
        """Begin to refuse a connection because of the limit `key`; returns before the client knows."""
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
            return  # the client has gone
        finally:
            self._under_way -= 1
            await trio.aclose_forcefully(stream)
