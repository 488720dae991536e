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

__all__ = ["mirror_settings", "mirrored_route", "mirroring"]

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


@asynccontextmanager
async def mirroring(routes: Mapping[str, MirroredRoute]) -> AsyncIterator[None]:
    """Until the block ends, all of these copy and compare; clients are led to the backs that were cut over to before.

    Raises CannotStart where the store fails.
    """
    async with trio.open_nursery() as nursery:
        for route in routes.values():
            try:
                await route.open()
            except OperationFailed as error:
                raise CannotStart(f"route {route.route}: {error.failure.message}") from error
            nursery.start_soon(_run, route)
        yield
        nursery.cancel_scope.cancel()


async def _run(route: MirroredRoute) -> None:
    """A mirror that fails keeps no client from being served."""
    try:
        await route.run()
    except Exception:
        log.exception("mirror_failed", route=route.route)
