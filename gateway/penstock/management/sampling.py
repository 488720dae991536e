"""What the page shows of a moment: who is connected, what flows, whether all is well."""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.management.controls import Controls
from penstock.management.readiness import Readiness
from penstock.management.traffic import Traffic
from penstock.metrics.families import NETWORK_BYTES, RECORDS
from penstock.metrics.merging import State, merged
from penstock.observe import level

__all__ = ["Sampler"]

_MOST_ROWS: Final = 200
"""Connections that the page lists, of more the newest: each row is written anew once a second."""
_LISTENER: Final = 0
"""Where the label stands that says by which listener a client came."""


class Sampler:
    """Called once a second while somebody looks."""

    def __init__(self, traffic: Traffic, controls: Controls, readiness: Readiness) -> None:
        self._traffic = traffic
        self._controls = controls
        self._readiness = readiness

    async def __call__(self) -> dict[str, Any]:
        """The `data` of a `state` event."""
        total, rows = await self._traffic.newest(_MOST_ROWS)
        state = merged(await self._controls.snapshots())
        reasons = await self._readiness.reasons()
        return {
            "time": time.time() * 1000,
            "ready": not reasons,
            "reasons": reasons,
            "log_level": level(),
            "connections": total,
            "rows": rows,
            "decodes": self._traffic.decodes,
            "recordings": [one for one in self._traffic.running() if one["kind"] == "file"],
            "bytes": _directions(state, NETWORK_BYTES.name),
            "records": _directions(state, RECORDS.name),
        }


def _directions(state: State, family: str) -> dict[str, float]:
    """What clients sent and got since the start, all of it together; this listener's own answers do not count."""
    sums = {"in": 0.0, "out": 0.0}
    for labels, value in state.get(family, {}).items():
        if labels[_LISTENER] != "management" and not isinstance(value, list):
            sums[labels[-1]] += value
    return sums
