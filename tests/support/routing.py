"""Routers over two stores."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.app.config import RouteTable
from penstock.core.back import Back, BackWrapper
from penstock.core.permissions import Permission
from penstock.model.failures import OperationFailed
from penstock.model.operations import (
    Capability,
    EnsureBasin,
    EnsureStream,
    FromSeqNum,
    ListBasins,
    ListStreams,
    Operation,
    Read,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.target import Target, TargetHolder

__all__ = ["AUTO", "Without", "made", "names", "refusal", "refused_read", "refused_session", "routed"]

AUTO = BasinConfig(create_stream_on_append=True)


class Without(BackWrapper):
    """A back that lacks some capabilities."""

    def __init__(self, back: Back, *lacking: Capability) -> None:
        super().__init__(back)
        self._lacking = frozenset(lacking)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._inner.capabilities - self._lacking


def routed(here: Back, there: Back, *tables: RouteTable) -> Router:
    targets = {"embedded": Target("embedded", "embedded", here), "far": Target("far", "s2", there)}
    return Router(
        [
            Route(
                table.name,
                table.rewriting(),
                TargetHolder(targets[table.back]),
                frozenset(table.listeners),
                frozenset(table.identity),
                table.create_streams,
                table.mirror,
                frozenset(map(Permission, table.permissions)),
            )
            for table in tables
        ],
        here,
    )


async def made(back: Back, basin: str, *streams: str, **config: Any) -> None:
    await back.perform(EnsureBasin(basin, BasinConfig(**config)))
    for stream in streams:
        await back.perform(EnsureStream(StreamRef(basin, stream)))


async def refusal(back: Back, operation: Operation[Any]) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        await back.perform(operation)
    return caught.value


async def names(back: Back, operation: ListStreams | ListBasins) -> list[str]:
    page: Any = await back.perform(operation)  # type: ignore[arg-type]
    return [info.name for info in page.items] + ["..."] * page.has_more


async def refused_session(view: Back, stream: StreamRef) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        async with view.append_session(stream):
            pass
    return caught.value


async def refused_read(view: Back, stream: StreamRef) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        async with view.read_session(Read(stream, FromSeqNum(0))):
            pass
    return caught.value
