"""Pravega's controller: its parts put together over a back, queries about segments, and deletion of scopes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import structlog
import trio
from msgspec.structs import replace

from penstock.backends.logged_tables import Lease
from penstock.backends.turns import StreamTurns
from penstock.core.back import Back
from penstock.core.clock import Clock, wall_clock
from penstock.core.identity import CLIENT
from penstock.core.pauses import sleep_unpaused
from penstock.model.failures import OperationFailed
from penstock.model.operations import DeleteBasin
from penstock.tables.struct_table import Prefix, StructTable
from penstock_pravega.controller.controller.autoscaling import AutomaticScaling
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream, cuts_in, streams_in, watermarks_in
from penstock_pravega.controller.controller.groups import Groups
from penstock_pravega.controller.controller.key_value_tables import KeyValueTables
from penstock_pravega.controller.controller.listing import StreamListing
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import AcknowledgedCut, Configuration, WriterMark
from penstock_pravega.controller.controller.recovery import StreamRecovery
from penstock_pravega.controller.controller.retention import StreamRetention
from penstock_pravega.controller.controller.scaling import Scaling
from penstock_pravega.controller.controller.scopes import Scopes
from penstock_pravega.controller.controller.segments import SegmentStore
from penstock_pravega.controller.controller.settings import ControllerSettings, SegmentsMode
from penstock_pravega.controller.controller.streams import StreamOperations
from penstock_pravega.controller.controller.topology import Segment, Segments, before, between, followers, of_epoch
from penstock_pravega.controller.controller.transactions import Transactions
from penstock_pravega.controller.controller.watermarks import WriterTimes

__all__ = ["Controller", "Deletion", "Queries"]

log = structlog.get_logger()

SWEEP_SECONDS: Final = 5.0
"""Seconds between searches for transactions whose lease is over."""
FORGET_SECONDS: Final = 3600.0
"""Seconds between removals of the outcomes of old transactions."""
FINISH_SECONDS: Final = 60.0
"""Seconds between searches for changes that were begun and left, by a gateway that ended or that could not reach a
server."""
TURNS: Final = "#controller/turns"
"""The table of the turns at streams and scopes."""


class Queries:
    """Queries about one stream. All but `exists` raise STREAM_NOT_FOUND."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def exists(self, scope: str, name: str) -> bool:
        """Return whether the stream exists."""
        return await self._catalog.look_up(scope, name) is not None

    async def configuration(self, scope: str, name: str) -> Configuration:
        """Return the stream's configuration."""
        return await self._catalog.configuration(await self._catalog.find(scope, name))

    async def history(self, scope: str, name: str) -> tuple[Segments, list[int]]:
        """Return all segments that the stream has had in epochs that have begun, and when each of these began, in
        ms."""
        stream = await self._catalog.find(scope, name)
        return stream.record.segments, await self._catalog.begun(stream)

    async def current(self, scope: str, name: str) -> list[Segment]:
        """Return the segments that can be appended to, in the order of their keys; none for a sealed stream."""
        stream = await self._catalog.find(scope, name)
        return [] if stream.record.sealed else stream.current

    async def of_epoch(self, scope: str, name: str, epoch: int) -> list[Segment]:
        """Return the segments of an epoch, in the order of their keys. Raises SEGMENT_NOT_FOUND for an epoch yet to
        come."""
        stream = await self._catalog.find(scope, name)
        if not 0 <= epoch <= stream.record.epoch:
            raise ControllerRefusal(
                ControllerProblem.SEGMENT_NOT_FOUND, f"{stream} is in epoch {stream.record.epoch}, not in {epoch}"
            )
        return of_epoch(stream.record.segments, epoch)

    async def at_head(self, scope: str, name: str) -> list[tuple[Segment, int]]:
        """Return the first segments that have not been truncated, each with the first offset that is kept."""
        stream = await self._catalog.find(scope, name)
        return [(segment, await self._start(stream, segment)) for segment in map(stream.segment, stream.record.first())]

    async def following(self, scope: str, name: str, segment_id: int) -> list[tuple[Segment, list[Segment]]]:
        """Return the segments that took over the keys of a sealed one, each with all its predecessors.

        If the segment itself is not truncated, those of its successors' predecessors that are truncated are left out: a
        reader that began later never finishes them. A client that asks about a truncated segment began earlier, and a
        writer then fails unless the predecessors cover all keys of the successors.

        An empty list means that the stream ends there. It is also the answer for a segment that the stream never had: a
        client that knows such a segment has it from a deleted stream of the same name.
        """
        record = (await self._catalog.find(scope, name)).record
        gone = {segment.id for segment in before(record.segments, record.head or ())}
        if segment_id in gone:
            gone = set()
        return [
            (heir, [predecessor for predecessor in followed if predecessor.id not in gone])
            for segment in record.segments
            if segment.id == segment_id
            for heir, followed in followers(record.segments, segment)
        ]

    async def between(self, scope: str, name: str, start: Collection[int], end: Collection[int]) -> list[Segment]:
        """Return the segments between two cuts, given as segments' ids; an empty cut stands for the head, or the tail.

        Cuts may lack keys, as those of a reader group do while a segment waits for others before it. Raises INVALID_CUT
        for segments that the stream never had.
        """
        stream = await self._catalog.find(scope, name)
        first = start or stream.record.first()
        last = end or [segment.id for segment in stream.current]
        known = {segment.id for segment in stream.record.segments}
        for cut in (first, last):
            if not known.issuperset(cut):
                raise ControllerRefusal(ControllerProblem.INVALID_CUT, f"{stream} has not all of {sorted(cut)}")
        gone = before(stream.record.segments, stream.record.head or ())
        return [segment for segment in between(stream.record.segments, first, last) if segment not in gone]

    async def is_open(self, scope: str, name: str, segment_id: int) -> bool:
        """Return whether a segment can be appended to."""
        return any(segment.id == segment_id for segment in await self.current(scope, name))

    async def is_cut(self, scope: str, name: str, cut: Mapping[int, int]) -> bool:
        """Return whether offsets, by segments' ids, divide the stream in two."""
        return (await self._catalog.find(scope, name)).is_cut(cut)

    async def _start(self, stream: CatalogStream, segment: Segment) -> int:
        info = await self._catalog.segments.info(stream.name_of(segment))
        cut = (stream.record.head or {}).get(segment.id, 0)
        return cut if info is None else max(cut, info.start_offset)


class Deletion:
    """Deletion of scopes, empty or with their contents.

    A scope that is a basin is empty only if the basin has no streams at all, under any name. A stream that a client of
    another protocol creates in it between that check and the deletion is deleted with the basin.
    """

    def __init__(
        self,
        back: Back,
        catalog: Catalog,
        scopes: Scopes,
        streams: StreamOperations,
        groups: Groups,
        tables: KeyValueTables,
        listing: StreamListing,
        recovery: StreamRecovery,
    ) -> None:
        self._back = back
        self._catalog = catalog
        self._scopes = scopes
        self._streams = streams
        self._groups = groups
        self._tables = tables
        self._listing = listing
        self._recovery = recovery

    async def delete(self, scope: str) -> None:
        """Delete an empty scope. Raises SCOPE_NOT_FOUND, SCOPE_NOT_EMPTY."""
        async with self._catalog.turn(scope):
            self._catalog.segments.require_all(scope)
            await self._scopes.require(scope)
            async for name, _ in self._catalog.table.each(streams_in(scope)):
                await self._recovery.finish(scope, name)
            await self._tables.clear(scope)
            if not (await self._listing.is_empty(scope) and await self._tables.is_empty(scope)) or (
                await self._groups.names(scope)
            ):
                raise ControllerRefusal(ControllerProblem.SCOPE_NOT_EMPTY, scope)
            await self._forget(scope)
            if self._scopes.is_basin(scope):
                await self._back.perform(DeleteBasin(scope))
            else:
                await self._scopes.forget(scope)
            await self._catalog.end_turns(scope)

    async def delete_all(self, scope: str) -> None:
        """Delete a scope with its streams, reader groups and key-value tables. Raises as `delete`."""
        self._catalog.segments.require_all(scope)
        await self._scopes.require(scope)
        await self._tables.delete_all(scope)
        for group in await self._groups.names(scope):
            await self._groups.delete(scope, group, "")
        while names := await self._listing.streams(scope, ""):
            for name in names:
                await self._delete(scope, name)
        await self.delete(scope)

    async def _delete(self, scope: str, name: str) -> None:
        try:
            await self._streams.seal(scope, name)
            await self._streams.delete(scope, name)
        except ControllerRefusal as refused:
            if refused.problem is not ControllerProblem.STREAM_NOT_FOUND:  # another request deleted it first
                raise

    async def _forget(self, scope: str) -> None:
        """Remove what no client sees: records of deleted streams, and internal streams."""
        async for name, _ in self._catalog.table.each(streams_in(scope)):
            entry = await self._catalog.table.get(self._catalog.key(scope, name))
            if entry is not None:
                await self._catalog.table.remove(self._catalog.key(scope, name), entry.version)
        for left in (
            cuts_in(scope),
            watermarks_in(scope),
            Prefix(f"acknowledged/{scope}/", AcknowledgedCut),
            Prefix(f"writer/{scope}/", WriterMark),
        ):
            await self._catalog.table.discard_all(left)
        await self._catalog.segments.delete_internal(scope)
        await self._catalog.numbers.forget(scope)


class Controller:
    """Pravega's controller, independent of its wire protocol.

    `turns`: those of all gateways with the same state. `lease`: of several gateways, the one that has it carries out
    the duties.
    """

    def __init__(
        self,
        back: Back,
        settings: ControllerSettings,
        clock: Clock = wall_clock,
        turns: StreamTurns | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.settings = settings
        self._turns = turns or StreamTurns(back, TURNS)
        self._lease = lease
        table, segments = StructTable(back, "controller"), SegmentStore(back, settings.names)
        catalog = Catalog(table, segments, self._turns, clock)
        self.queries = Queries(catalog)
        self.scopes = Scopes(back, table, segments, settings.names, clock)
        self.scaling = Scaling(catalog, settings.segments)
        self.times = WriterTimes(catalog, clock)
        self.transactions = Transactions(catalog, self.scaling, self.times, clock)
        self.streams = StreamOperations(catalog, self.scopes, self.scaling, self.transactions, settings.segments)
        self.groups = Groups(catalog, self.scopes)
        self.tables = KeyValueTables(catalog, self.scopes)
        self.listing = StreamListing(back, catalog, self.scopes, settings.names)
        self.retention = StreamRetention(catalog, self.streams, self.groups, clock)
        self.autoscaling = AutomaticScaling(catalog, self.scaling, settings.scaling)
        self.recovery = StreamRecovery(catalog, self.streams, self.scaling)
        self.deletion = Deletion(
            back, catalog, self.scopes, self.streams, self.groups, self.tables, self.listing, self.recovery
        )

    async def run(self) -> None:
        """Take turns with other gateways, and carry out the controller's duties, until cancelled."""
        CLIENT.set(replace(CLIENT.get(), gateway=True))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turns.run)
            if self._lease is None:
                await self._carry_out_duties()
            else:
                await self._lease.run(lambda _: self._carry_out_duties())

    async def _carry_out_duties(self) -> None:
        """Finish what was begun and left, then again and again: that, end transactions whose time is over, forget old
        ones, enforce retention, scale by rate, write watermarks."""
        await self._finish_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._finish_again)
            nursery.start_soon(self._repeat, self.transactions.sweep, SWEEP_SECONDS)
            nursery.start_soon(self._repeat, self.transactions.forget_old, FORGET_SECONDS)
            nursery.start_soon(self._repeat, self.retention.enforce, self.settings.retention_seconds)
            nursery.start_soon(self._repeat, self.times.enforce, self.settings.watermark_seconds)
            if self.settings.segments is SegmentsMode.SEPARATE:
                nursery.start_soon(self._repeat, self.autoscaling.sample, self.settings.scaling.sample_seconds)

    async def _finish_again(self) -> None:
        while True:
            await trio.sleep(FINISH_SECONDS)
            await self._finish_all()

    async def _finish_all(self) -> None:
        await self._attempt(self.recovery.finish_all)
        await self._attempt(self.tables.finish_all)

    async def _repeat(self, duty: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            # first of all: a clock that is wrong at the start has been set right by then, and pings have been read
            await sleep_unpaused(trio.current_time() + seconds)
            await self._attempt(duty)

    async def _attempt(self, duty: Callable[[], Awaitable[None]]) -> None:
        try:
            await duty()
        except OperationFailed as error:
            log.error("controller_duty_failed", duty=duty.__name__, error=str(error))
