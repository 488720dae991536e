"""Two stores, one mirrored onto the other, and what can go wrong between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from msgspec.structs import replace
from support.backs import DecodedBack
from support.store import BASIN, STREAM, Wall, appending, records

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.byte_operations import GetAttribute
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import (
    Append,
    Capability,
    CreateBasin,
    CreateStream,
    FromSeqNum,
    Operation,
    ReconfigureStream,
)
from penstock.model.records import NO_HEADERS, Record, StreamRef
from penstock.model.streams import BasinConfig
from penstock.routing.mirror.mirror import Mirror
from penstock.routing.mirror.route import MirroredRoute
from penstock.routing.mirror.settings import MirrorSettings
from penstock.routing.mirror.state import MirroredStream, StateTable
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.target import Target, TargetHolder

ROUTE = "orders"
PRIMARY, SECONDARY = "here", "there"


class Fragile(DecodedBack):
    """A back that may be down, or refuse some records, or lose the acknowledgements of appends."""

    def __init__(self, back: EmbeddedBack) -> None:
        super().__init__(back)
        self.back = back
        self.down = False
        self.refuses: Callable[[bytes], bool] = lambda _body: False
        self.acknowledgements_to_lose = 0
        self.refused_streams: set[StreamRef] = set()
        self.not_configured: set[StreamRef] = set()
        self.configuring_seconds = 0.0
        self.no_attributes = False
        self.lacking: frozenset[Capability] = frozenset()
        self.changes: Callable[[bytes], bytes] = lambda body: body
        """Returns the body that is stored instead of the given one: a server that is broken."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self.back.capabilities - self.lacking

    def _check(self) -> None:
        if self.down:
            raise fail(FailureCode.HOT_SERVER, "back there: connection refused")

    async def perform(self, operation: Operation[Any]) -> Any:
        self._check()
        if isinstance(operation, Append):
            if any(map(self.refuses, operation.bodies)):
                raise fail(FailureCode.NOT_REPRESENTABLE, "a record that it cannot carry")
            operation = replace(operation, bodies=[self.changes(body) for body in operation.bodies])
            if Capability.HEADERS in self.lacking:
                operation = replace(operation, headers=NO_HEADERS)
        if isinstance(operation, CreateStream) and operation.stream in self.refused_streams:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"no name for stream {operation.stream}")
        if self.no_attributes and isinstance(operation, GetAttribute):
            raise fail(FailureCode.NOT_IMPLEMENTED, "there are no attributes")
        if isinstance(operation, ReconfigureStream):
            if operation.stream in self.not_configured:
                raise fail(FailureCode.PERMISSION_DENIED, f"no configuration for {operation.stream}")
            await trio.sleep(self.configuring_seconds)
        result = await self.back.perform(operation)
        if isinstance(operation, Append) and self.acknowledgements_to_lose:
            self.acknowledgements_to_lose -= 1
            raise fail(FailureCode.UNAVAILABLE, "back there: the connection was lost")
        return result

    def append_session(self, *arguments: Any, **options: Any) -> Any:
        self._check()
        return self.back.append_session(*arguments, **options)

    @asynccontextmanager
    async def read_session(self, read: Any) -> AsyncIterator[Any]:
        self._check()
        async with self.back.read_session(read) as session:
            yield session


@dataclass
class Two:
    """The stores, and a mirror from one to the other which is not running yet. `tables`: the third one, for tables."""

    primary: EmbeddedBack
    secondary: Fragile
    tables: EmbeddedBack
    settings: MirrorSettings

    def mirror(self, belongs: Callable[[StreamRef], bool] = lambda _stream: True, **settings: Any) -> Mirror:
        """Return a new mirror."""
        targets = (Target(PRIMARY, "embedded", self.primary), Target(SECONDARY, "embedded", self.secondary))
        return Mirror(ROUTE, *targets, self.states, MirrorSettings(**settings), belongs)

    def route(self, **settings: Any) -> tuple[MirroredRoute, TargetHolder]:
        """A new route, and what its clients are led by."""
        targets = (Target(PRIMARY, "embedded", self.primary), Target(SECONDARY, "embedded", self.secondary))
        holder = TargetHolder(targets[0])
        return MirroredRoute(ROUTE, targets, self.tables, holder, MirrorSettings(**settings)), holder

    @property
    def states(self) -> StateTable:
        return StateTable(self.tables, ROUTE)

    async def state(self, stream: StreamRef = STREAM) -> MirroredStream:
        """Return the stored state of a stream."""
        found = await self.states.load(stream)
        assert found is not None
        return found

    async def both(self, stream: StreamRef = STREAM) -> tuple[list[Record], list[Record]]:
        """Return the records on both sides."""
        start = FromSeqNum(0)
        return await records(self.primary, start, stream), await records(self.secondary.back, start, stream)


@asynccontextmanager
async def two_stores(directory: Path, wall: Wall | None = None) -> AsyncIterator[Two]:
    """Primary, secondary and tables; the basin is on the primary alone."""
    clock = wall or Wall()

    def opened(name: str) -> Any:
        return open_embedded(EmbeddedSettings(directory=directory / name), clock)

    async with opened("primary") as primary, opened("secondary") as secondary, opened("tables") as tables:
        await primary.perform(CreateBasin(BASIN, BasinConfig(create_stream_on_append=True)))
        yield Two(primary, Fragile(secondary), tables, MirrorSettings())


@asynccontextmanager
async def running(mirror: Mirror | MirroredRoute) -> AsyncIterator[None]:
    """While the block runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mirror.run)
        yield
        nursery.cancel_scope.cancel()


def routed(two: Two, holder: TargetHolder) -> Router:
    """Return a router with this one route."""
    return Router([Route(ROUTE, RouteTable(name=ROUTE).rewriting(), holder)], two.tables)


async def append(back: Back, *bodies: bytes, **options: Any) -> None:
    """Append through a route."""
    await back.perform(appending(*bodies, **options))


async def settled(mirror: Mirror) -> None:
    """Wait until the mirror has nothing left to do."""
    with trio.fail_after(300):
        await mirror.list_all()
        await mirror.settle()
