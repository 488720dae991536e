"""The configuration of a gateway within a command: all fronts, one back, and its routes."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.app.config import Config, DrainTable, Listeners, Management, RouteTable, StoreTable
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.servers import Server
from penstock.tools.target.back import TARGET_BACK, TargetOptions, back_table, loss_keys, renamed

__all__ = ["target_config"]

_ANYWHERE: Final = "127.0.0.1:12345"
"""Address of listeners, which never listen."""
_PATIENCE: Final = 1_000_000.0
"""A limit in seconds that is never reached: a recorded client may be silent for as long as it was."""


def target_config(target: Server, options: TargetOptions, directory: str) -> Config:
    """Return the configuration. `directory`: of its store. Raises ValueError for renames that make no route."""
    routes = (
        RouteTable(
            name=f"{TARGET_BACK}-{number}",
            back=TARGET_BACK,
            match="glob",
            stream=pattern,
            to_basin=to_basin,
            to_stream=to_stream,
        )
        for number, (pattern, to_basin, to_stream) in enumerate(renamed(target, options), 1)
    )
    return Config(
        listeners=_listeners(options),
        backs={TARGET_BACK: back_table(target, options)},
        routes=tuple(routes),
        management=Management(enabled=False),
        store=StoreTable(directory=directory),
        drain=DrainTable(grace_seconds=0.0, deadline_seconds=0.0),
    )


def _listeners(options: TargetOptions) -> Listeners:
    tables = {
        name: [{"bind": _ANYWHERE, **kind.replaying(options.basin, _PATIENCE), **loss_keys(kind.table, options.loss)}]
        for name, kind in listener_kinds().items()
    }
    return msgspec.convert(tables, Listeners)
