"""Operations on basins, and listings: what concerns many streams at once, and so maybe many backs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.backs.base import Back
from penstock.routing.listing import Part, merged
from penstock.routing.route import Route
from penstock.routing.segments import INTERNAL_BASIN
from penstock.routing.target import TargetHolder
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import (
    Capability,
    DeleteBasin,
    EnsureBasin,
    GetBasinConfig,
    ListBasins,
    ListStreams,
    Page,
    Provisioned,
    ReconfigureBasin,
)
from penstock_codecs.streams import BasinInfo, StreamInfo

if TYPE_CHECKING:
    from penstock.routing.router import View

__all__ = ["about_basin", "list_basins", "list_streams"]

_FOR_ALL_STREAMS: Final = (DeleteBasin, ReconfigureBasin)
"""What they do concerns every stream of the basin, so a route must take them all."""


async def about_basin(view: View, operation: Any) -> Any:
    """To the first route that takes the whole basin, else the first that takes some of its streams, on a back that has
    basins. Where none of those backs has any, a basin is a name and a configuration, which the embedded store keeps.

    Changes are not for routes that are only for reading, and what concerns all streams needs them all."""
    changes = not isinstance(operation, GetBasinConfig)
    place = _basin(view, operation.basin, changes)
    if isinstance(operation, _FOR_ALL_STREAMS):
        place.check_all_streams(view, operation.basin)
    await place.holder.admitted()
    with place.holder.change() if changes else nullcontext():
        back = place.holder.target.back
        if isinstance(operation, EnsureBasin) and await _differs(back, replace(operation, basin=place.there)):
            place.check_all_streams(view, operation.basin)
        result = await back.perform(replace(operation, basin=place.there))
    if isinstance(result, Provisioned) and isinstance(result.info, BasinInfo):
        return replace(result, info=msgspec.structs.replace(result.info, name=operation.basin))
    return result


async def _differs(back: Back, operation: EnsureBasin) -> bool:
    """Whether the basin is there, and the operation would change it."""
    try:
        return await back.perform(GetBasinConfig(operation.basin)) != operation.config
    except OperationFailed as error:
        if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
            raise
        return False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a basin is, by what name, by which route (None: the embedded store has it because no back of a route has
    basins), and whether all its streams are there by that route."""

    holder: TargetHolder
    there: str
    route: Route | None
    whole: bool

    def check_all_streams(self, view: View, basin: str) -> None:
        """Raises PERMISSION_DENIED where the client may not do what concerns all streams of the basin."""
        if not self.whole:
            raise fail(
                FailureCode.PERMISSION_DENIED,
                f"no route takes all streams of basin {basin}, so it stays as it is",
            )
        other = self._barred(view)
        if other is not None:
            why = f"route {other.name} has streams of it that are not this client's to change"
            raise fail(FailureCode.PERMISSION_DENIED, f"basin {basin} stays as it is: {why}")

    def _barred(self, view: View) -> Route | None:
        """A route that has streams in the same basin of the same back, which the client cannot change one by one."""
        admitted = view.routes()
        own = self.route is not None and self.route.rewriting.stream.parts == (("stream",),)
        for route in view.all_routes:
            if route is self.route or route.holder.target.name != self.holder.target.name:
                continue
            if not route.rewriting.reaches_basin(self.there):
                continue
            after = route not in admitted or (
                self.route is not None and admitted.index(route) > admitted.index(self.route)
            )
            if (not route.manages or route not in admitted) and not (own and after):
                return route
        return None


def _basin(view: View, basin: str, changes: bool = False) -> _Place:
    """Where it is. Raises BASIN_NOT_FOUND where no route takes any of its streams, PERMISSION_DENIED for changes where
    all that do are only for reading."""
    if basin == INTERNAL_BASIN:
        return _Place(view.embedded, basin, None, whole=True)
    taking = [route for route in view.routes() if route.rewriting.pattern.basin.match(basin) is not None]
    if not taking:
        raise fail(FailureCode.BASIN_NOT_FOUND, f"no route of listener {view.label} takes streams of basin {basin}")
    if changes:
        managing = [route for route in taking if route.manages]
        if not managing:
            allowed = "only for reading" if all(route.read_only for route in taking) else "not for managing it"
            why = f"all routes to streams of basin {basin} are {allowed}"
            raise fail(FailureCode.PERMISSION_DENIED, why)
        taking = managing
    whole = [route for route in taking if route.rewriting.pattern.stream.everything]
    for route in (*whole, *taking):
        there = route.rewriting.basin_forward(basin)
        if there is not None and Capability.BASINS in route.holder.target.capabilities:
            return _Place(route.holder, there, route, route in whole)
    return _Place(view.embedded, basin, None, bool(whole))


async def list_basins(view: View, operation: ListBasins) -> Page[BasinInfo]:
    """Basins of all backs that have any, and those that the embedded store keeps for the others."""
    parts = [_basins_of(view, operation, route.holder, route) for route in view.routes()]
    parts.append(_basins_of(view, operation, view.embedded, None))
    return await merged(parts, operation.prefix, operation.start_after, operation.limit)


def _basins_of(view: View, operation: ListBasins, holder: TargetHolder, route: Route | None) -> Part[BasinInfo]:
    same = route is None or route.rewriting.basin.parts == (("basin",),)
    able = route is None or Capability.BASINS in holder.target.capabilities

    async def fetch(start_after: str, limit: int) -> Page[BasinInfo]:
        if not able:
            return Page([], has_more=False)
        prefix = operation.prefix if same else ""
        return await holder.target.back.perform(ListBasins(prefix, start_after, limit))

    def shown(name: str) -> str | None:
        asked = name if route is None else route.rewriting.basin_back(name)
        if asked is None:
            return None
        try:
            found = _basin(view, asked)
        except OperationFailed:
            return None
        return asked if (found.holder.target.back, found.there) == (holder.target.back, name) else None

    return Part(fetch, operation.start_after if same else "", shown, ordered=same)


async def list_streams(view: View, operation: ListStreams) -> Page[StreamInfo]:
    """Streams of all routes that take streams of the basin. A stream is shown where the route that lists it has it."""
    if operation.basin == INTERNAL_BASIN:
        return await view.embedded.target.back.perform(operation)
    _basin(view, operation.basin)
    parts = [part for route in view.routes() for part in _streams_of(view, operation, route)]
    return await merged(parts, operation.prefix, operation.start_after, operation.limit)


def _streams_of(view: View, operation: ListStreams, route: Route) -> Iterator[Part[StreamInfo]]:
    """One part; none where the route has nothing to show."""
    rewriting, basin = route.rewriting, operation.basin
    there = rewriting.basin_forward(basin)
    span = None if there is None else rewriting.span(operation.prefix, operation.start_after)
    if there is None or span is None:
        return
    prefix, start_after = span

    async def fetch(start_after: str, limit: int) -> Page[StreamInfo]:
        return await route.holder.target.back.perform(ListStreams(there, prefix, start_after, limit))

    def shown(name: str) -> str | None:
        asked = rewriting.stream_back(basin, name)
        if asked is None:
            return None
        try:
            return asked if view.decide(StreamRef(basin, asked)).route is route else None
        except OperationFailed:
            return None

    yield Part(fetch, start_after, shown, ordered=rewriting.keeps_order)
