"""How a router carries out operations: each goes to the back that has what it is about, and its result comes back in
the client's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from penstock.metrics.metered import metered_operation
from penstock.metrics.meters import meter
from penstock.routing import basins
from penstock.routing.permissions import APPEND, MANAGE, Permission, needs_of
from penstock.routing.route import Decision
from penstock.routing.segments import INTERNAL_BASIN
from penstock.routing.sessions import in_clients_words
from penstock.routing.target import TargetHolder
from penstock_codecs.byte_operations import GetAttribute, GetSegmentInfo, Merge, ReadBytes
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    Locate,
    Operation,
    Provisioned,
    ReconfigureBasin,
)
from penstock_codecs.streams import StreamInfo
from penstock_codecs.table_operations import GetTableInfo, ListTable, ReadTable, ReadTableDelta

if TYPE_CHECKING:
    from penstock.routing.router import View

__all__ = ["carry_out"]

R = TypeVar("R")

_READING: Final[frozenset[type]] = frozenset(
    {
        *(CheckTail, GetAttribute, GetSegmentInfo, GetStreamConfig, Locate, ReadBytes),
        *(GetTableInfo, ListTable, ReadTable, ReadTableDelta),
    }
)
"""They change nothing, so they need not wait while a target is held."""


async def carry_out(view: View, operation: Operation[R]) -> R:
    """See `Back.perform`."""
    if isinstance(operation, Merge):
        return cast(R, await _merge(view, operation))
    about_many = _ABOUT_MANY.get(type(operation))
    if about_many is not None:
        return cast(R, await metered_operation(meter("", ""), operation, about_many(view, operation)))
    stream = getattr(operation, "stream", None)
    if stream is not None:
        return cast(R, await _about_stream(view.decide(stream), operation))
    table = getattr(operation, "table", None)
    if table is None:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"no route is for {type(operation).__name__}")
    holder, name = view.table(table, type(operation) not in _READING)
    renamed = operation if name == table else replace(cast(Any, operation), table=name)
    return await metered_operation(meter("", holder.target.name), operation, _on(holder, renamed))


async def _about_stream(decision: Decision, operation: Any) -> Any:
    decision.check(_needs(operation))
    if isinstance(operation, Append):
        decision.check_append(operation)
    changes: dict[str, Any] = {}
    if operation.stream != decision.there:
        changes["stream"] = decision.there
    if not decision.creates:
        if isinstance(operation, CreateStream | EnsureStream):
            route = decision.route.name if decision.route else ""
            raise fail(FailureCode.PERMISSION_DENIED, f"route {route} lets nobody create streams (create_streams)")
        if isinstance(operation, Append | CheckTail):
            changes["create_if_missing"] = False
    with in_clients_words(decision):
        there = replace(operation, **changes) if changes else operation
        result = await metered_operation(decision.meter, operation, _on(decision.holder, there))
    if isinstance(result, Provisioned) and isinstance(result.info, StreamInfo):
        return replace(result, info=msgspec.structs.replace(result.info, name=decision.asked.stream))
    return result


def _needs(operation: Any) -> frozenset[Permission]:
    """Transactions are made, and ended, by who may append to their stream."""
    needs = needs_of(operation)
    return needs | APPEND if operation.stream.basin == INTERNAL_BASIN and needs == MANAGE else needs


async def _on(holder: TargetHolder, operation: Operation[R]) -> R:
    if type(operation) in _READING:
        return await holder.target.back.perform(operation)
    await holder.admitted()
    with holder.change():
        return await holder.target.back.perform(operation)


async def _merge(view: View, operation: Merge) -> Any:
    """Sources may be in the embedded store, which has the transactions of streams that are elsewhere."""
    decision = view.decide(operation.target)
    decision.check(needs_of(operation))
    sources = [view.decide(source) for source in operation.sources]
    for source in sources:
        # A stream that is merged is gone; a transaction is a part of the target.
        source.check(needs_of(operation) if source.asked.basin == INTERNAL_BASIN else MANAGE)
        if source.holder not in (decision.holder, view.embedded):
            raise fail(
                FailureCode.NOT_IMPLEMENTED,
                f"stream {source.asked} is on back {source.holder.target.name}, and cannot be merged into one on "
                f"{decision.holder.target.name}",
            )
    there = replace(operation, target=decision.there, sources=tuple(source.there for source in sources))
    with in_clients_words(decision):
        return await metered_operation(decision.meter, operation, _on(decision.holder, there))


_ABOUT_MANY: Final[Mapping[type, Callable[[Any, Any], Awaitable[Any]]]] = {
    ListStreams: basins.list_streams,
    ListBasins: basins.list_basins,
    CreateBasin: basins.about_basin,
    EnsureBasin: basins.about_basin,
    GetBasinConfig: basins.about_basin,
    ReconfigureBasin: basins.about_basin,
    DeleteBasin: basins.about_basin,
}
