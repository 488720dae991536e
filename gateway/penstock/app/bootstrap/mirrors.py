"""Builds the mirrored routes of a configuration, and runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from penstock.app.config import EMBEDDED, RouteTable
from penstock.core.errors import CannotStart
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock.routing.mirror.settings import MirrorSettings, OnRefused
from penstock.routing.route import Route
from penstock.routing.target import Target

if TYPE_CHECKING:
    from penstock.routing.mirror.route import MirroredRoute

__all__ = ["Mirrors", "mirror_settings", "mirrored_route", "open_mirrors", "open_route"]

log = structlog.get_logger()


def mirror_settings(table: RouteTable) -> MirrorSettings:
    """Return the settings of a route's mirror."""
    return MirrorSettings(on_refused=OnRefused(table.mirror_on_refused))


def mirrored_route(
    table: RouteTable, route: Route, before: Sequence[Route], targets: Mapping[str, Target]
) -> MirroredRoute:
    """Build a route with a mirror; open it before clients connect. `before`: the routes that precede it."""
    from penstock.routing.mirror.route import MirroredRoute

    assert table.mirror is not None
    both = targets[table.back], targets[table.mirror]
    embedded = targets[EMBEDDED].back
    belongs = partial(_is_of, route, _wider(route, before))
    return MirroredRoute(route.name, both, embedded, route.holder, mirror_settings(table), belongs)


def _wider(route: Route, before: Sequence[Route]) -> list[Route]:
    """Return the preceding routes that apply to every client of this route: they take streams away from all of them."""
    return [
        earlier_route
        for earlier_route in before
        if (not earlier_route.listeners or earlier_route.listeners >= route.listeners > frozenset())
        and (not earlier_route.identities or earlier_route.identities >= route.identities > frozenset())
    ]


def _is_of(route: Route, wider: Sequence[Route], there: StreamRef) -> bool:
    """Return whether a stream of the back certainly belongs to the route."""
    basin = route.rewriting.basin_back(there.basin)
    name = None if basin is None else route.rewriting.stream_back(basin, there.stream)
    if basin is None or name is None:
        return False
    return all(earlier_route.rewriting.pattern.match(StreamRef(basin, name)) is None for earlier_route in wider)


class Mirrors:
    """The mirrored routes that are running."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: dict[MirroredRoute, trio.CancelScope] = {}

    def begin(self, route: MirroredRoute) -> None:
        """Start to copy and compare."""
        self._scopes[route] = trio.CancelScope()
        self._nursery.start_soon(self._run, route, self._scopes[route])

    def end(self, route: MirroredRoute, target: Target) -> None:
        """Stop a route's mirror. Sessions open on `target` fail with an error that clients retry after."""
        self._scopes.pop(route).cancel()
        route.leave(target)

    async def _run(self, route: MirroredRoute, scope: trio.CancelScope) -> None:
        """Run a mirror; its failure is logged, and clients are still served."""
        try:
            with scope:
                await route.run()
        except Exception:
            log.exception("mirror_failed", route=route.route)


async def open_route(route: MirroredRoute) -> MirroredRoute:
    """Open a route; if it was cut over before, it leads to the back that it was cut over to. Raises CannotStart if the
    store fails."""
    try:
        await route.open()
    except OperationFailed as error:
        raise CannotStart(f"route {route.route}: {error.failure.message}") from error
    return route


@asynccontextmanager
async def open_mirrors() -> AsyncIterator[Mirrors]:
    """Run the mirrors that are begun in the block, until it ends."""
    async with trio.open_nursery() as nursery:
        yield Mirrors(nursery)
        nursery.cancel_scope.cancel()
