"""The mirrors that a configuration asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog
import trio

from penstock.config import EMBEDDED, RouteTable
from penstock.errors import CannotStart
from penstock.mirror.route import MirroredRoute
from penstock.mirror.settings import MirrorSettings, OnRefused
from penstock.routing.route import Route
from penstock.routing.target import Target
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["Mirrors", "mirror_settings", "mirrored_route", "open_mirrors", "opened"]

log = structlog.get_logger()


def mirror_settings(table: RouteTable) -> MirrorSettings:
    """What a route's mirror is told."""
    return MirrorSettings(on_refused=OnRefused(table.mirror_on_refused))


def mirrored_route(
    table: RouteTable, route: Route, before: Sequence[Route], targets: Mapping[str, Target]
) -> MirroredRoute:
    """A route with a mirror, which must be opened before clients come. `before`: the routes that come before it."""
    assert table.mirror is not None
    both = targets[table.back], targets[table.mirror]
    embedded = targets[EMBEDDED].back
    belongs = partial(_is_of, route, _wider(route, before))
    return MirroredRoute(route.name, both, embedded, route.holder, mirror_settings(table), belongs)


def _wider(route: Route, before: Sequence[Route]) -> list[Route]:
    """Those that take what they take from all clients that the route is for."""
    return [
        one
        for one in before
        if (not one.listeners or one.listeners >= route.listeners > frozenset())
        and (not one.identities or one.identities >= route.identities > frozenset())
    ]


def _is_of(route: Route, wider: Sequence[Route], there: StreamRef) -> bool:
    """Whether a stream of the back is one of the route's, as far as that is certain."""
    basin = route.rewriting.basin_back(there.basin)
    name = None if basin is None else route.rewriting.stream_back(basin, there.stream)
    if basin is None or name is None:
        return False
    return all(one.rewriting.pattern.match(StreamRef(basin, name)) is None for one in wider)


class Mirrors:
    """The mirrored routes that run."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: dict[MirroredRoute, trio.CancelScope] = {}

    def begin(self, route: MirroredRoute) -> None:
        """Copy and compare from now on."""
        self._scopes[route] = trio.CancelScope()
        self._nursery.start_soon(self._run, route, self._scopes[route])

    def end(self, route: MirroredRoute, target: Target) -> None:
        """No more. What was opened on it ends with a failure that clients try again after."""
        self._scopes.pop(route).cancel()
        route.leave(target)

    async def _run(self, route: MirroredRoute, scope: trio.CancelScope) -> None:
        """A mirror that fails keeps no client from being served."""
        try:
            with scope:
                await route.run()
        except Exception:
            log.exception("mirror_failed", route=route.route)


async def opened(route: MirroredRoute) -> MirroredRoute:
    """The route, leading to the back that it was cut over to before, if it was. Raises CannotStart where the store
    fails."""
    try:
        await route.open()
    except OperationFailed as error:
        raise CannotStart(f"route {route.route}: {error.failure.message}") from error
    return route


@asynccontextmanager
async def open_mirrors() -> AsyncIterator[Mirrors]:
    """Until the block ends, those that are begun in it run."""
    async with trio.open_nursery() as nursery:
        yield Mirrors(nursery)
        nursery.cancel_scope.cancel()
