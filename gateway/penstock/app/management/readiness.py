"""Readiness for new clients, and the reasons against it."""

from __future__ import annotations

from typing import Final

import trio

from penstock.app.management.controls import Controls
from penstock.app.management.overview import BackView, Overview

__all__ = ["Readiness"]

_DOWN: Final = ("open", "half-open")


class Readiness:
    """The check behind `GET /ready`."""

    def __init__(self, overview: Overview, controls: Controls) -> None:
        self._overview = overview
        self._controls = controls

    async def reasons(self) -> list[str]:
        """Return what is wrong, each naming the part; empty if ready. Leaves out addresses and the like, since the
        endpoint needs no authentication."""
        down = await _down_backs(self._overview)
        return [*self._controls.not_ready(), *(f"back {name} is down" for name in down)]


async def _down_backs(overview: Overview) -> list[str]:
    """Return the required backs whose circuit is not closed, of those that routes lead to (a mirror's primary only).

    Without the key `required` a back is required if routes lead to no other (decision 30). A back whose circuit has
    been open for long enough is probed first: clients might be waiting for this gateway to be ready, and would never
    find out that the server is back. A back that only a request can test does not count as down.
    """
    led_to = {route.leads_to for route in overview.routes.values()}
    used_backs = [back for back in overview.backs if back.name in led_to]
    async with trio.open_nursery() as nursery:
        for back in filter(_is_down, used_backs):
            if back.probe is not None:
                nursery.start_soon(back.probe)
    is_only_back = len(led_to) == 1
    return [
        back.name
        for back in used_backs
        if (is_only_back if back.required is None else back.required) and _is_down(back)
    ]


def _is_down(back: BackView) -> bool:
    circuit = back.circuit()
    return circuit.state in _DOWN and not circuit.wants_request
