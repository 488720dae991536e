"""A gateway within a command's process, on free ports, for the clients of another command."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from penstock.app.config import Config, DrainTable, Listeners, Management, StoreTable
from penstock.app.host import HostServices
from penstock.app.server import RunningGateway, serve
from penstock.core.address import Address
from penstock.protocols.plugin import listener_kinds

__all__ = ["open_gateway"]


@asynccontextmanager
async def open_gateway(
    store: StoreTable | None = None, services: HostServices | None = None, **tables: Any
) -> AsyncIterator[tuple[RunningGateway, Mapping[str, Address]]]:
    """Run a gateway with a listener of each kind and a temporary store until the block ends; yields it, and the address
    of each kind of listener. `store`: settings of the store, whose directory is replaced; `tables`: other parts of the
    configuration. Entering raises CannotStart."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        config = Config(
            listeners=msgspec.convert({name: [{"bind": "127.0.0.1:0"}] for name in listener_kinds()}, Listeners),
            management=Management(enabled=False),
            store=msgspec.structs.replace(store or StoreTable(directory=directory), directory=directory),
            drain=DrainTable(grace_seconds=0.0, deadline_seconds=0.0),
            **tables,
        )
        async with trio.open_nursery() as nursery:
            running: RunningGateway = await nursery.start(serve, config, services)
            yield running, {name: running.addresses[f"listeners.{name}"][0] for name in listener_kinds()}
            nursery.cancel_scope.cancel()
