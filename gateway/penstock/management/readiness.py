"""Whether new clients are welcome, and why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from penstock.management.overview import BackView, Overview

__all__ = ["Readiness"]


class Readiness:
    """What `GET /ready` says. `others`: what else is wrong, in plain words: a drain."""

    def __init__(self, overview: Overview, others: Callable[[], Sequence[str]]) -> None:
        self._overview = overview
        self._others = others

    async def looked_at(self) -> list[str]:
        """What is wrong, each naming what. A back whose circuit was open for long enough is tried first: were it left
        to clients to find out that it is there again, they might wait for this gateway to be ready."""
        async with trio.open_nursery() as nursery:
            for back in self._down():
                if back.probe is not None:
                    nursery.start_soon(back.probe)
        return self.reasons()

    def reasons(self) -> list[str]:
        """The same as far as it is known. Addresses and the like are not said: anybody may ask."""
        found = list(self._others())
        return found + [f"back {back.name} is down" for back in self._down()]

    def _down(self) -> list[BackView]:
        """Those that clients are led to, and whose circuit is not closed: a mirror's secondary is none of them."""
        led_to = {route.leads_to for route in self._overview.routes.values()}
        return [one for one in self._overview.backs if one.name in led_to and one.circuit().state in _DOWN]


_DOWN = ("open", "half-open")
