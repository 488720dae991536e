"""Operations on basins, and listings: what concerns many streams at once, and so maybe many backs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.routing.listing import Part, merged
from penstock.routing.route import Route
from penstock.routing.segments import INTERNAL_BASIN
from penstock.routing.target import TargetHolder
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import (
    Capability,
    DeleteBasin,
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
    basins. Where none of those backs has any, a basin is a name and a configuration, which the embedded store keeps."""
    holder, there, whole = _basin(view, operation.basin)
    if not whole and isinstance(operation, _FOR_ALL_STREAMS):
        raise fail(
            FailureCode.PERMISSION_DENIED,
            f"no route takes all streams of basin {operation.basin}, so it stays as it is",
        )
    if not isinstance(operation, GetBasinConfig) and _all_read_only(view, operation.basin):
        raise fail(
            FailureCode.PERMISSION_DENIED, f"all routes to streams of basin {operation.basin} are only for reading"
        )
    await holder.admitted()
    with holder.change():
        result = await holder.target.back.perform(replace(operation, basin=there))
    if isinstance(result, Provisioned) and isinstance(result.info, BasinInfo):
        return replace(result, info=msgspec.structs.replace(result.info, name=operation.basin))
    return result


def _basin(view: View, basin: str) -> tuple[TargetHolder, str, bool]:
    """Where it is, by what name, and whether all its streams are. Raises BASIN_NOT_FOUND where no route takes any."""
    if basin == INTERNAL_BASIN:
        return view.embedded, basin, True
    taking = [route for route in view.routes() if route.rewriting.pattern.basin.match(basin) is not None]
    if not taking:
        raise fail(FailureCode.BASIN_NOT_FOUND, f"no route of listener {view.label} takes streams of basin {basin}")
    whole = [route for route in taking if route.rewriting.pattern.stream.everything]
    for route in (*whole, *taking):
        there = route.rewriting.basin_forward(basin)
        if there is not None and Capability.BASINS in route.holder.target.capabilities:
            return route.holder, there, route in whole
    return view.embedded, basin, bool(whole)


def _all_read_only(view: View, basin: str) -> bool:
    taking = [route for route in view.routes() if route.rewriting.pattern.basin.match(basin) is not None]
    return bool(taking) and all(route.read_only for route in taking)


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
            found, there, _ = _basin(view, asked)
        except OperationFailed:
            return None
        return asked if (found.target.back, there) == (holder.target.back, name) else None

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
