"""What several processes cannot do together yet; see `penstock.config.schema` and docs/workers.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.config.backs import BackTable
from penstock.config.listeners import Listeners
from penstock.config.recorder import RecorderTable
from penstock.config.routes import RouteTable

__all__ = ["check_workers"]


def check_workers(
    workers: int,
    listeners: Listeners,
    backs: Mapping[str, BackTable],
    routes: Sequence[RouteTable],
    recorder: RecorderTable | None,
) -> None:
    """Raises ValueError, which names the key, for what is for one process alone."""
    if workers == 1:
        return
    alone = {
        "[backs]: what is known of a server's records is": bool(backs),
        "a route with a mirror is": any(route.mirror is not None for route in routes),
        "[listeners.controller] is": bool(listeners.controller),
        "[recorder] is": recorder is not None,
    }
    for what, there in alone.items():
        if there:
            raise ValueError(f"workers = {workers}: {what} for one process alone: leave it out, or set workers = 1")
