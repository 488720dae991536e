"""The router that a configuration asks for: backs are opened, routes lead to them, mirrors copy beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from penstock.backs.base import Back
from penstock.backs.upstream import Watch, unwatched
from penstock.config import EMBEDDED, Config, RouteTable
from penstock.errors import CannotStart
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.target import Target, TargetHolder
from penstock.wiring.backs import open_target
from penstock.wiring.mirrors import mirrored_route, mirroring

__all__ = ["open_router"]


@asynccontextmanager
async def open_router(config: Config, embedded: Back, watch: Watch = unwatched) -> AsyncIterator[Router]:
    """Everything that is configured, until the block ends. A server that is not there is no reason not to start.
    `watch` is given each connection to a server.

    Raises CannotStart for files of a back that cannot be used, and where the store fails.
    """
    with _alone():
        async with AsyncExitStack() as stack:
            targets = {EMBEDDED: Target(EMBEDDED, EMBEDDED, embedded)}
            losses = tuple(segment.loss for segment in config.listeners.segment)
            for name, table in config.backs.items():
                targets[name] = await stack.enter_async_context(open_target(name, table, embedded, losses, watch))
            routes = [_route(table, targets) for table in config.routes]
            mirrored = {
                table.name: mirrored_route(table, route, routes[:index], targets)
                for index, (table, route) in enumerate(zip(config.routes, routes, strict=True))
                if table.mirror is not None
            }
            if mirrored:
                await stack.enter_async_context(mirroring(mirrored))
            yield Router(routes, embedded, targets, mirrored)


@contextmanager
def _alone() -> Iterator[None]:
    """Backs have nurseries, which put what is raised within them into a group; CannotStart is for the operator."""
    try:
        yield
    except BaseExceptionGroup as group:
        found, rest = group.split(CannotStart)
        while found is not None and rest is None:
            inner = found.exceptions[0]
            if isinstance(inner, CannotStart):
                raise inner from inner.__cause__
            assert isinstance(inner, BaseExceptionGroup)
            found = inner
        raise


def _route(table: RouteTable, targets: Mapping[str, Target]) -> Route:
    return Route(
        table.name,
        table.rewriting(),
        TargetHolder(targets[table.back]),
        frozenset(table.listeners),
        frozenset(table.identity),
        table.create_streams,
        table.mirror,
        table.read_only,
    )
