"""`GET /status`: version, uptime, resources, certificates, limits that took effect, and listeners."""

from __future__ import annotations

import time
from typing import Any

from penstock.app.management.controls import Controls
from penstock.app.management.overview import Overview
from penstock.app.management.words import Answer, Endpoints
from penstock.net.http.exchange import Exchange
from penstock.observe import level
from penstock.observe.metrics.families import (
    BUILD_INFO,
    CERTIFICATE_EXPIRY,
    CPU_SECONDS,
    LIMITED,
    MAX_FDS,
    OPEN_FDS,
    RELOADED_SECONDS,
    RESIDENT_BYTES,
    START_SECONDS,
    STORE_FILE_BYTES,
    AnyFamily,
)
from penstock.observe.metrics.state import State, current

__all__ = ["AboutProcess"]


class AboutProcess:
    """The endpoint; see docs/management.md. Its values are those of the metrics."""

    def __init__(self, overview: Overview, controls: Controls) -> None:
        self._overview = overview
        self._controls = controls
        self.endpoints: Endpoints = {("status",): {"GET": self._status}}

    async def _status(self, _exchange: Exchange, _name: str) -> Answer:
        state = current()
        ((version, python),) = state[BUILD_INFO.name]
        started = _value(state, START_SECONDS)
        return 200, {
            "version": version,
            "python": python,
            "started": round(started * 1000),
            "uptime_seconds": round(time.time() - started, 1),
            "reloaded": round(_value(state, RELOADED_SECONDS) * 1000) or None,
            "draining": self._controls.draining(),
            "log_level": level(),
            "cpu_seconds": _value(state, CPU_SECONDS),
            "resident_bytes": _value(state, RESIDENT_BYTES),
            "open_files": _value(state, OPEN_FDS),
            "most_open_files": _value(state, MAX_FDS),
            "store_bytes": _value(state, STORE_FILE_BYTES),
            "listeners": [{"name": one.name, "kind": one.kind} for one in self._overview.listeners],
            "certificates": [
                {"owner": owner, "file": file, "subject": subject, "expires": round(_number(value) * 1000)}
                for (owner, file, subject), value in sorted(state.get(CERTIFICATE_EXPIRY.name, {}).items())
            ],
            "limits": [
                {"listener": listener, "limit": limit, "count": _number(value)}
                for (listener, limit), value in sorted(state.get(LIMITED.name, {}).items())
                if _number(value)
            ],
        }


def _value(state: State, family: AnyFamily) -> float:
    """Return the value of a family without labels, 0 if nothing supplies it."""
    return _number(state.get(family.name, {}).get((), 0.0))


def _number(value: Any) -> float:
    assert not isinstance(value, list), "no histogram is asked for"
    return float(value)
