"""All streams that a mirror should know of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.backs.base import Back
from penstock.mirror.state import StateTable, StreamState
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import ListBasins, ListStreams

__all__ = ["visit_streams"]

Visit = Callable[[StreamRef], Awaitable[None]]


async def visit_streams(primary: Back, states: StateTable, belongs: Callable[[StreamRef], bool], visit: Visit) -> None:
    """Those that were mirrored before, and those that belong to the route of what the primary lists, if it can; some
    of them twice.

    Raises OperationFailed where the primary cannot be asked just now.
    """

    async def visit_known(stream: StreamRef, _state: StreamState) -> None:
        await visit(stream)

    async def visit_listed(stream: StreamRef) -> None:
        if belongs(stream):
            await visit(stream)

    await states.visit(visit_known)
    try:
        await _visit_basins(primary, visit_listed)
    except OperationFailed as error:
        if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
            raise


async def _visit_basins(back: Back, visit: Visit) -> None:
    after, more = "", True
    while more:
        page = await back.perform(ListBasins(start_after=after))
        for basin in page.items:
            after = basin.name
            await _visit_basin(back, basin.name, visit)
        more = page.has_more and bool(page.items)


async def _visit_basin(back: Back, basin: str, visit: Visit) -> None:
    after, more = "", True
    while more:
        try:
            page = await back.perform(ListStreams(basin, start_after=after))
        except OperationFailed as error:
            if error.failure.code is FailureCode.BASIN_NOT_FOUND:  # deleted meanwhile
                return
            raise
        for stream in page.items:
            after = stream.name
            await visit(StreamRef(basin, stream.name))
        more = page.has_more and bool(page.items)
