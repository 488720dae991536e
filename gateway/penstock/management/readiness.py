"""Whether new clients are welcome, and why not."""

from __future__ import annotations

from typing import Final

import trio

from penstock.management.controls import Controls
from penstock.management.overview import BackView, Overview

__all__ = ["Readiness"]

_DOWN: Final = ("open", "half-open")


class Readiness:
    """What `GET /ready` says. Who has workers has no backs, so that this process knows all of them."""

    def __init__(self, overview: Overview, controls: Controls) -> None:
        self._overview = overview
        self._controls = controls

    async def reasons(self) -> list[str]:
        """What is wrong, each naming what; nothing: clients are welcome. Addresses and the like are not said: anybody
        may ask."""
        down = await _down_backs(self._overview)
        return [*self._controls.not_ready(), *(f"back {name} is down" for name in down)]


async def _down_backs(overview: Overview) -> list[str]:
    """The backs that clients are led to and whose circuit is not closed; a mirror's secondary is none of them.

    One whose circuit was open for long enough is tried first: were it left to clients to find out that it is there
    again, they might wait for this gateway to be ready.
    """
    led_to = {route.leads_to for route in overview.routes.values()}
    needed = [one for one in overview.backs if one.name in led_to]
    async with trio.open_nursery() as nursery:
        for back in filter(_is_down, needed):
            if back.probe is not None:
                nursery.start_soon(back.probe)
    return [back.name for back in filter(_is_down, needed)]


def _is_down(back: BackView) -> bool:
    return back.circuit().state in _DOWN
