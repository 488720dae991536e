"""The router: presents many backs to each front as one. A stream belongs to the first route that matches it.

An operation on a stream goes to the back that has the stream, and its result is returned with the client's names.
Listings are merged from all backs; an operation on a basin goes to one back, but may concern streams on several.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from penstock.core.back import AppendSession, Back, Destination, ReadSession
from penstock.core.identity import CLIENT, Client
from penstock.core.internal_names import GATEWAY_TABLES, INTERNAL_BASIN, InternalNames
from penstock.core.passthrough import Passthrough
from penstock.core.permissions import APPEND, MANAGE, Permission, needs_of
from penstock.model.byte_operations import GetAttribute, GetByteStreamInfo, Merge, ReadBytes
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Append,
    Capability,
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
    Page,
    Provisioned,
    Read,
    ReconfigureBasin,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinInfo, StreamConfig, StreamInfo
from penstock.model.table_operations import GetTableInfo, ListTable, ReadTable, ReadTableDelta
from penstock.model.usage_operations import GetStorage, GetUsage, ListActiveBasins
from penstock.observe.context import ROUTE
from penstock.observe.metrics.metered import metered_appends, metered_operation, metered_reads
from penstock.observe.metrics.meters import meter
from penstock.observe.taps.tap import note_use
from penstock.routing.listing import BackListing, merged_page
from penstock.routing.observed import ObservedBack
from penstock.routing.route import Decision, Route
from penstock.routing.sessions import RoutedPassthrough, append_session, in_clients_words, read_session
from penstock.routing.target import Target, TargetHolder

if TYPE_CHECKING:
    from penstock.routing.mirror.route import MirroredRoute

__all__ = ["EMBEDDED", "Router", "View", "about_basin", "carry_out", "list_basins", "list_streams"]

_FOR_ALL_STREAMS: Final = (DeleteBasin, ReconfigureBasin)
"""Operations that affect every stream of a basin, so that one route must have all of them."""
R = TypeVar("R")
_READING: Final[frozenset[type]] = frozenset(
    {
        *(CheckTail, GetAttribute, GetByteStreamInfo, GetStreamConfig, Locate, ReadBytes),
        *(GetTableInfo, ListTable, ReadTable, ReadTableDelta),
    }
)
"""Operations that change nothing, so that they need not wait while a target is held."""
EMBEDDED: Final = "embedded"
CACHED: Final = 10_000
"""Decisions cached for each listener, so that patterns are not matched for every operation."""


async def about_basin(view: View, operation: Any) -> Any:
    """Carry out an operation on a basin, by the first route to a back with basins that has the whole basin, else the
    first that has some of its streams. If none of those backs has basins, a basin is only a name and a configuration,
    and the embedded store keeps it.

    Changes need a route that clients may manage, and operations that affect all streams need permission for all."""
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
    """Return whether the basin exists and the operation would change it."""
    try:
        return await back.perform(GetBasinConfig(operation.basin)) != operation.config
    except OperationFailed as error:
        if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
            raise
        return False


class _Place(msgspec.Struct, frozen=True):
    """The location of a basin. `there`: its name on the target. `route`: None if the embedded store keeps it, because
    no back of a route has basins. `whole`: all its streams are on that route."""

    holder: TargetHolder
    there: str
    route: Route | None
    whole: bool

    def check_all_streams(self, view: View, basin: str) -> None:
        """Check that the client may affect all streams of the basin. Raises PERMISSION_DENIED."""
        if not self.whole:
            raise fail(
                FailureCode.PERMISSION_DENIED,
                f"basin {basin} is not changed: no route takes all its streams",
            )
        other = self._barred(view)
        if other is not None:
            reason = f"route {other.name} has streams of it that this client may not change"
            raise fail(FailureCode.PERMISSION_DENIED, f"basin {basin} is not changed: {reason}")

    def _barred(self, view: View) -> Route | None:
        """Return a route with streams in the same basin of the same back that the client may not change itself, or
        None."""
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
    """Locate a basin. Raises BASIN_NOT_FOUND if no route has any of its streams, PERMISSION_DENIED for `changes` if
    clients may manage none of the routes that do."""
    if basin == INTERNAL_BASIN:
        return _Place(view.embedded, basin, None, whole=True)
    taking = [route for route in view.routes() if route.rewriting.pattern.basin.match(basin) is not None]
    if not taking:
        raise fail(FailureCode.BASIN_NOT_FOUND, f"no route of listener {view.label} takes streams of basin {basin}")
    if changes:
        managing = [route for route in taking if route.manages]
        if not managing:
            allowed = "are read-only" if all(route.read_only for route in taking) else "do not permit managing it"
            reason = f"all routes to streams of basin {basin} {allowed}"
            raise fail(FailureCode.PERMISSION_DENIED, reason)
        taking = managing
    whole = [route for route in taking if route.rewriting.pattern.stream.everything]
    for route in (*whole, *taking):
        target_basin = route.rewriting.basin_forward(basin)
        if target_basin is not None and Capability.BASINS in route.holder.target.capabilities:
            return _Place(route.holder, target_basin, route, route in whole)
    return _Place(view.embedded, basin, None, bool(whole))


async def list_basins(view: View, operation: ListBasins) -> Page[BasinInfo]:
    """List the basins of all backs that have basins, and those that the embedded store keeps for the others. For an
    overview (`partial`), also those in which the others have streams."""
    failed: dict[str, str] = {}
    parts = [_basins_of(view, operation, view.embedded, None, failed)]
    parts += [_basins_of(view, operation, route.holder, route, failed) for route in view.routes()]
    page = await merged_page(parts, operation.prefix, operation.start_after, operation.limit)
    return replace(page, failed=failed)


def _basins_of(
    view: View, operation: ListBasins, holder: TargetHolder, route: Route | None, failed: dict[str, str]
) -> BackListing[BasinInfo]:
    """Return a back's part of a listing. Fetching it adds the back to `failed` if it fails and the listing may be
    partial."""
    same = route is None or route.rewriting.basin.parts == (("basin",),)
    able = route is None or Capability.BASINS in holder.target.capabilities

    async def fetch(start_after: str, limit: int) -> Page[BasinInfo]:
        if not (able or operation.partial):
            return Page([], has_more=False)
        prefix = operation.prefix if same else ""
        try:
            page = await holder.target.back.perform(ListBasins(prefix, start_after, limit, operation.partial))
        except OperationFailed as error:
            if not able and error.failure.code is FailureCode.NOT_IMPLEMENTED:
                return Page([], has_more=False)
            return _without(operation, holder, error, failed)
        failed.update(page.failed)
        return page

    def shown(name: str) -> str | None:
        asked = name if route is None else route.rewriting.basin_back(name)
        if asked is None:
            return None
        try:
            found = _basin(view, asked)
        except OperationFailed:
            return None
        if not able:  # nothing but names of streams: the store keeps the basin itself
            return asked if found.route is None else None
        return asked if (found.holder.target.back, found.there) == (holder.target.back, name) else None

    return BackListing(fetch, operation.start_after if same else "", shown, ordered=same)


def _without(
    operation: ListBasins | ListStreams, holder: TargetHolder, error: OperationFailed, failed: dict[str, str]
) -> Page[Any]:
    """Return the empty part of a back that failed, noted in `failed`. Raises the error if the listing must be whole."""
    if not operation.partial:
        raise error
    failed[holder.target.name] = error.failure.message
    return Page([], has_more=False)


async def list_streams(view: View, operation: ListStreams) -> Page[StreamInfo]:
    """List the streams of all routes that have streams of the basin. A route's back may list streams that belong to
    another route; they are left out.

    Raises BASIN_NOT_FOUND if no route has streams of the basin, or none of their backs has it."""
    if operation.basin == INTERNAL_BASIN:
        return await merged_page([_internal(view, operation)], operation.prefix, operation.start_after, operation.limit)
    _basin(view, operation.basin)
    lacking: set[str] = set()
    failed: dict[str, str] = {}
    parts = [part for route in view.routes() for part in _streams_of(view, operation, route, lacking, failed)]
    page = await merged_page(parts, operation.prefix, operation.start_after, operation.limit)
    if parts and len(lacking) == len(parts):
        raise fail(FailureCode.BASIN_NOT_FOUND, f"there is no basin {operation.basin!r}")
    return replace(page, failed=failed)


def _internal(view: View, operation: ListStreams) -> BackListing[StreamInfo]:
    """Return the listing of the internal streams in the embedded store that the client may use."""

    async def fetch(start_after: str, limit: int) -> Page[StreamInfo]:
        return await view.embedded.target.back.perform(replace(operation, start_after=start_after, limit=limit))

    def shown(name: str) -> str | None:
        try:
            decision = view.decide(StreamRef(INTERNAL_BASIN, name))
        except OperationFailed:
            return None
        return name if decision.holder.target.back is view.embedded.target.back else None

    return BackListing(fetch, operation.start_after, shown, ordered=True)


def _streams_of(
    view: View, operation: ListStreams, route: Route, lacking: set[str], failed: dict[str, str]
) -> Iterator[BackListing[StreamInfo]]:
    """Yield the route's part of a listing, if it can have any such streams. Fetching it adds the route's name to
    `lacking` if its back does not have the basin, and its back to `failed` as `_basins_of` does."""
    rewriting, basin = route.rewriting, operation.basin
    target_basin = rewriting.basin_forward(basin)
    span = None if target_basin is None else rewriting.span(operation.prefix, operation.start_after)
    if target_basin is None or span is None:
        return
    prefix, start_after = span
    exact = operation.exact and rewriting.stream_back(basin, prefix) == operation.prefix

    async def fetch(start_after: str, limit: int) -> Page[StreamInfo]:
        try:
            return await route.holder.target.back.perform(
                ListStreams(target_basin, prefix, start_after, limit, exact=exact)
            )
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                return _without(operation, route.holder, error, failed)
            lacking.add(route.name)
            return Page([], has_more=False)

    def shown(name: str) -> str | None:
        asked = rewriting.stream_back(basin, name)
        if asked is None:
            return None
        try:
            return asked if view.decide(StreamRef(basin, asked)).route is route else None
        except OperationFailed:
            return None

    yield BackListing(fetch, start_after, shown, ordered=rewriting.keeps_order)


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
        raise fail(FailureCode.NOT_IMPLEMENTED, f"no route accepts {type(operation).__name__}")
    holder, name = view.table(table, needs_of(operation))
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
            raise fail(
                FailureCode.PERMISSION_DENIED,
                f"route {decision.route.name} does not let clients create streams (create_streams)",
            )
        if isinstance(operation, Append):
            changes["create_if_missing"] = False
    if isinstance(operation, CheckTail) and not decision.creates_by_reading:
        changes["create_if_missing"] = False
    with in_clients_words(decision):
        forwarded = replace(operation, **changes) if changes else operation
        result = await metered_operation(decision.meter, operation, _on(decision.holder, forwarded))
    if isinstance(result, Provisioned) and isinstance(result.info, StreamInfo):
        return replace(result, info=msgspec.structs.replace(result.info, name=decision.asked.stream))
    return result


def _needs(operation: Any) -> frozenset[Permission]:
    """Return the permissions of which an operation needs one. Transactions may be created and ended by clients that may
    append to their stream."""
    needs = needs_of(operation)
    return needs | APPEND if operation.stream.basin == INTERNAL_BASIN and needs == MANAGE else needs


async def _on(holder: TargetHolder, operation: Operation[R]) -> R:
    if type(operation) in _READING:
        return await holder.target.back.perform(operation)
    await holder.admitted()
    with holder.change():
        return await holder.target.back.perform(operation)


async def _merge(view: View, operation: Merge) -> Any:
    """Carry out a merge. Sources may be in the embedded store, which keeps transactions of streams on other backs."""
    decision = view.decide(operation.target)
    decision.check(needs_of(operation))
    sources = [view.decide(source) for source in operation.sources]
    for source in sources:
        # Merging deletes the source: a stream of its own needs MANAGE, a transaction is a part of the target.
        source.check(needs_of(operation) if source.asked.basin == INTERNAL_BASIN else MANAGE)
        if source.holder not in (decision.holder, view.embedded):
            raise fail(
                FailureCode.NOT_IMPLEMENTED,
                f"stream {source.asked} is on back {source.holder.target.name}, and cannot be merged into one on "
                f"{decision.holder.target.name}",
            )
    forwarded = replace(operation, target=decision.there, sources=tuple(source.there for source in sources))
    with in_clients_words(decision):
        return await metered_operation(decision.meter, operation, _on(decision.holder, forwarded))


async def _usage(view: View, operation: GetUsage | GetStorage | ListActiveBasins) -> Any:
    """Ask the embedded store. Streams on other servers are in their servers' accounts, and unknown here."""
    forwarded, holder = operation, view.embedded
    try:
        if isinstance(operation, GetStorage) and operation.stream.stream:
            decision = view.decide(operation.stream)
            forwarded, holder = replace(operation, stream=decision.there), decision.holder
        elif isinstance(operation, GetStorage):
            place = _basin(view, operation.stream.basin)
            forwarded, holder = replace(operation, stream=StreamRef(place.there, "")), place.holder
        elif isinstance(operation, GetUsage) and operation.basin:
            place = _basin(view, operation.basin)
            forwarded, holder = replace(operation, basin=place.there), place.holder
    except OperationFailed as error:
        if error.failure.code not in (FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_NOT_FOUND):
            raise
        return {} if isinstance(operation, GetUsage) else ()
    if holder.target.back is not view.embedded.target.back:
        return {} if isinstance(operation, GetUsage) else ()
    return await holder.target.back.perform(forwarded)


_ABOUT_MANY: Final[Mapping[type, Callable[[Any, Any], Awaitable[Any]]]] = {
    ListStreams: list_streams,
    ListBasins: list_basins,
    CreateBasin: about_basin,
    EnsureBasin: about_basin,
    GetBasinConfig: about_basin,
    ReconfigureBasin: about_basin,
    DeleteBasin: about_basin,
    GetUsage: _usage,
    GetStorage: _usage,
    ListActiveBasins: _usage,
}


class Router:
    """All routes, in order. Without routes, all streams are in the embedded store.

    `embedded`: that store, or what stands in for it if a server keeps the gateway's state. `state`: what has the tables
    of that state, None for the embedded store. For the management listener: `targets` are all backs by name, `mirrored`
    the mirrored routes by name.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        embedded: Back,
        targets: Mapping[str, Target] | None = None,
        mirrored: Mapping[str, MirroredRoute] | None = None,
        state: Back | None = None,
    ) -> None:
        self.routes = tuple(routes)
        self.state = state or embedded
        self.embedded = TargetHolder(Target(EMBEDDED, EMBEDDED, embedded))
        self.targets = targets or {EMBEDDED: self.embedded.target}
        self.mirrored = mirrored or {}

    def for_listener(self, label: str, names: InternalNames | None = None) -> Back:
        """Return the back for the front of a listener (`s2`, `s2.public`). `names`: its clients' names of internal
        streams, None if they have none."""
        if not self.routes:
            return ObservedBack(self.embedded.target.back, names, EMBEDDED)
        return View(self, label, names)

    def route(self, name: str) -> Route | None:
        """Return the route with this name, or None."""
        return next((route for route in self.routes if route.name == name), None)


class View(Back):
    """The `Back` that a router presents to the clients of one listener."""

    def __init__(self, router: Router, label: str, names: InternalNames | None) -> None:
        self.label = label
        self.names = names
        self.embedded = router.embedded
        self._routes = tuple(route for route in router.routes if route.serves(label))
        self._targets = router.targets
        self._cache: dict[tuple[str, bool, StreamRef], Decision] = {}

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that the targets of all the listener's routes have in common."""
        able = [route.holder.target.capabilities for route in self._routes]
        return frozenset.intersection(*able) if able else self.embedded.target.capabilities

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        return carry_out(self, operation)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        decision = self.decide(stream)
        entering = append_session(decision, create_config, create_if_missing)
        async with metered_appends(decision.meter, entering) as session:
            yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        decision = self.decide(read.stream)
        async with metered_reads(decision.meter, read_session(decision, read)) as session:
            yield session

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        """Return the target's passthrough, or None for routes that are mirrored or restricted by `allow` or
        `create_streams`."""
        try:
            decision = self.decide(stream)
        except OperationFailed:
            return None  # the operation itself raises it
        if decision.route.mirror is not None or decision.restricted or not decision.creates:
            return None
        inner = decision.holder.target.back.passthrough(protocol, decision.there)
        return None if inner is None else RoutedPassthrough(decision, inner)

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        self.decide(stream).check(needs)

    def require_some(self, basin: str, prefix: str, needs: frozenset[Permission]) -> None:
        taking = [route for route in self.routes() if route.rewriting.pattern.may_begin(basin, prefix)]
        called = prefix.rstrip("/") or basin
        if not taking:
            raise fail(FailureCode.BASIN_NOT_FOUND, f"no route of listener {self.label} takes streams of {called}")
        if all(needs.isdisjoint(route.allow) for route in taking):
            words = " or ".join(sorted(need.value for need in needs))
            raise fail(FailureCode.PERMISSION_DENIED, f"no route lets its clients {words} streams of {called} (allow)")

    def require_all(self, basin: str, prefix: str, needs: frozenset[Permission] = MANAGE) -> None:
        admitted = self.routes()
        for route in self._routes:
            refused = route not in admitted or needs.isdisjoint(route.allow)
            if refused and route.rewriting.pattern.may_begin(basin, prefix):
                may = "delete" if needs == MANAGE else " or ".join(sorted(need.value for need in needs))
                reason = f"route {route.name} may have streams of it that this client may not {may}"
                raise fail(FailureCode.PERMISSION_DENIED, f"{prefix or basin} is not changed: {reason}")

    def destination(self, stream: StreamRef) -> Destination:
        decision = self.decide(stream)
        return Destination(decision.route.name, decision.holder.target.name, decision.there)

    def declare_partitioned(self, basin: str, prefix: str = "") -> None:
        """Declare it to all backs of routes that lead streams of the basin there, under the names that they have
        there: a route may put text before a stream's name. Names that it changes otherwise are not kept apart."""
        for route in self._routes:
            target_basin = route.rewriting.basin_forward(basin)
            if target_basin is not None:
                prefix_there = route.rewriting.stream.beginning + prefix
                route.holder.target.back.declare_partitioned(target_basin, prefix_there)
                if route.mirror is not None:
                    self._targets[route.mirror].back.declare_partitioned(target_basin, prefix_there)

    # ---- decisions -----------------------------------------------------------------------------------------------

    @property
    def all_routes(self) -> Sequence[Route]:
        """All routes of the listener, in order, whether or not they are for the current client."""
        return self._routes

    def routes(self) -> list[Route]:
        """Return the routes that are for the current client, in order."""
        client = CLIENT.get()
        return [route for route in self._routes if route.admits(client)]

    def decide(self, stream: StreamRef) -> Decision:
        """Route a stream. Raises STREAM_NOT_FOUND if no route matches it, PERMISSION_DENIED if only routes for other
        clients do, NOT_REPRESENTABLE if its rewritten name is not legal."""
        client = CLIENT.get()
        key = (client.identity, client.gateway, stream)
        known = self._cache.get(key)
        if known is None:
            if stream.basin == INTERNAL_BASIN:
                return self._internal(stream)  # not cached: it depends on the target, which a cut-over swaps
            known = self._public(stream, client)
            if len(self._cache) >= CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = known
        _note(known, client)
        return known

    def _public(self, stream: StreamRef, client: Client) -> Decision:
        refused = None
        for route in self._routes:
            captures = route.rewriting.pattern.match(stream)
            if captures is None:
                continue
            if route.admits(client):
                return Decision(route, route.holder, stream, route.rewriting.forward(stream, captures))
            refused = refused or route
        if refused is not None:
            who = f"identity {client.identity}" if client.identity else "clients without an identity"
            raise fail(
                FailureCode.PERMISSION_DENIED, f"route {refused.name}, which has stream {stream}, is not for {who}"
            )
        raise fail(FailureCode.STREAM_NOT_FOUND, f"no route of listener {self.label} takes stream {stream}")

    def table(self, name: str, needs: frozenset[Permission]) -> tuple[TargetHolder, str]:
        """Return the target of a table, and its name there. No front asks for the gateway's own tables.

        Raises as `decide` does, and PERMISSION_DENIED if the client has none of the permissions in `needs`."""
        if name.startswith(GATEWAY_TABLES):
            return self.embedded, name
        decision = self._internal(StreamRef(INTERNAL_BASIN, name))
        decision.check(needs)
        return decision.holder, decision.there.stream

    def _internal(self, internal_stream: StreamRef) -> Decision:
        """Route an internal stream or table by the stream that it belongs to: its route and permissions apply, and the
        internal one is on its target, or in the embedded store if that target has no tables."""
        name, names = internal_stream.stream, self.names
        owner = None if names is None else names.owner_of(name)
        if names is None or owner is None:
            reason = f"no route of listener {self.label} takes {name!r:.80}, which belongs to no stream"
            raise fail(FailureCode.STREAM_NOT_FOUND, reason)
        client = CLIENT.get()
        decision = self._public(owner, client)
        _note(decision, client)
        target = decision.holder.target
        able = Capability.TABLES in target.capabilities
        target_name = (target.names or names).name_beside(decision.there, name) if able else None
        if target_name is None:
            return Decision(decision.route, self.embedded, internal_stream, internal_stream)
        return Decision(decision.route, decision.holder, internal_stream, StreamRef(INTERNAL_BASIN, target_name))


def _note(decision: Decision, client: Client) -> None:
    """Record that the client uses the stream, under the client's name of it, and the current task the route."""
    ROUTE.set(decision.route.name)
    note_use(decision.route.name, decision.asked, client.identity)
