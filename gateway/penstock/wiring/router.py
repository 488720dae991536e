"""The router that a configuration asks for: backs are opened, and routes lead to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from penstock.backs.base import Back
from penstock.config import EMBEDDED, Config, RouteTable
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.target import Target, TargetHolder
from penstock.wiring.backs import open_target

__all__ = ["open_router"]


@asynccontextmanager
async def open_router(config: Config, embedded: Back) -> AsyncIterator[Router]:
    """All routes, until the block ends. A server that is not there is no reason not to start. Raises CannotStart for
    files of a back that cannot be used."""
    async with AsyncExitStack() as stack:
        targets = {EMBEDDED: Target(EMBEDDED, EMBEDDED, embedded)}
        losses = tuple(segment.loss for segment in config.listeners.segment)
        for name, table in config.backs.items():
            targets[name] = await stack.enter_async_context(open_target(name, table, embedded, losses))
        yield Router([_route(table, targets) for table in config.routes], embedded)


def _route(table: RouteTable, targets: Mapping[str, Target]) -> Route:
    return Route(
        table.name,
        table.rewriting(),
        TargetHolder(targets[table.back]),
        frozenset(table.listeners),
        frozenset(table.identity),
        table.create_streams,
        table.mirror,
    )
