"""The router: one back to each front, many behind it. The first route that takes a stream has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock.backs.passing import S2SPassage, s2s_passage
from penstock.identity import CLIENT, Client
from penstock.metrics.metered import metered_appends, metered_reads
from penstock.mirror.route import MirroredRoute
from penstock.observe.context import ROUTE
from penstock.recorder.tap import note_use
from penstock.routing.carrying import carry_out
from penstock.routing.internal import owner_of, renamed
from penstock.routing.noting import Noting
from penstock.routing.permissions import Permission
from penstock.routing.route import Decision, Route
from penstock.routing.segments import INTERNAL_BASIN, INTERNAL_TABLES, SegmentNames
from penstock.routing.sessions import append_session, passage, read_session
from penstock.routing.target import Target, TargetHolder
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["EMBEDDED", "Router", "View"]

R = TypeVar("R")

EMBEDDED: Final = "embedded"
_CHANGING: Final = frozenset({Permission.APPEND, Permission.MANAGE})
CACHED: Final = 10_000
"""Decisions that are remembered for each listener, so that patterns are not tried for every operation."""


class Router:
    """All routes, in order. Without any, all streams are in the embedded store.

    `targets`: all backs by name, and `mirrored`: the routes that have two, for the management listener.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        embedded: Back,
        targets: Mapping[str, Target] | None = None,
        mirrored: Mapping[str, MirroredRoute] | None = None,
    ) -> None:
        self.routes = tuple(routes)
        self.embedded = TargetHolder(Target(EMBEDDED, EMBEDDED, embedded))
        self.targets = targets or {EMBEDDED: self.embedded.target}
        self.mirrored = mirrored or {}

    def for_listener(self, label: str, names: SegmentNames | None = None) -> Back:
        """What the front of this listener (`s2`, `s2.public`) is given. `names`: how its clients name segments."""
        if not self.routes:
            return Noting(self.embedded.target.back, names or SegmentNames(), EMBEDDED)
        return View(self, label, names or SegmentNames())

    def route(self, name: str) -> Route | None:
        """The route of this name."""
        return next((route for route in self.routes if route.name == name), None)


class View:
    """A router as the clients of one listener see it. See `Back`."""

    def __init__(self, router: Router, label: str, names: SegmentNames) -> None:
        self.label = label
        self.names = names
        self.embedded = router.embedded
        self._routes = tuple(route for route in router.routes if route.serves(label))
        self._cache: dict[tuple[str, bool, StreamRef], Decision] = {}

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What all routes of this listener lead to can do; one of them may do more."""
        able = [route.holder.target.capabilities for route in self._routes]
        return frozenset.intersection(*able) if able else self.embedded.target.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        return await carry_out(self, operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
        return self._append_session(stream, create_config, create_if_missing)

    @asynccontextmanager
    async def _append_session(
        self, stream: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[AppendSession]:
        decision = self.decide(stream)
        entering = append_session(decision, create_config, create_if_missing)
        async with metered_appends(decision.meter, entering) as session:
            yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        """See `Back.read_session`."""
        decision = self.decide(read.stream)
        async with metered_reads(decision.meter, read_session(decision, read)) as session:
            yield session

    def s2s_passage(self, stream: StreamRef) -> S2SPassage | None:
        """See `penstock.backs.passing.PassesS2S`. Sessions that are to be mirrored, or that may not do everything, are
        not passed through."""
        try:
            decision = self.decide(stream)
        except OperationFailed:
            return None  # the operation itself will say why
        mirrored = decision.route is not None and decision.route.mirror is not None
        if mirrored or decision.restricted or not decision.creates:
            return None
        inner = s2s_passage(decision.holder.target.back, decision.there)
        return None if inner is None else passage(decision, inner)

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        """See `penstock.routing.permissions.Restricts`."""
        try:
            self.decide(stream).check(needs)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:  # what no route takes is nobody's
                raise

    def require_all(self, basin: str, prefix: str) -> None:
        """See `penstock.routing.permissions.Restricts`."""
        admitted = self.routes()
        for route in self._routes:
            if (route not in admitted or not route.manages) and route.rewriting.pattern.may_begin(basin, prefix):
                why = f"route {route.name} may have streams of it that are not this client's to delete"
                raise fail(FailureCode.PERMISSION_DENIED, f"{prefix or basin} stays as it is: {why}")

    # ---- decisions -----------------------------------------------------------------------------------------------

    @property
    def all_routes(self) -> Sequence[Route]:
        """Those of the listener, in order, whoever may take them."""
        return self._routes

    def routes(self) -> list[Route]:
        """Those that the current client may take, in order."""
        client = CLIENT.get()
        return [route for route in self._routes if route.admits(client)]

    def decide(self, stream: StreamRef) -> Decision:
        """Where a stream is. Raises STREAM_NOT_FOUND where no route takes it, PERMISSION_DENIED where one does that is
        not for this client, NOT_REPRESENTABLE where it has no legal name there."""
        client = CLIENT.get()
        key = (client.identity, client.gateway, stream)
        known = self._cache.get(key)
        if known is None:
            if stream.basin == INTERNAL_BASIN:
                return self._internal(stream)  # where that is depends on the target, which a cut-over changes
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

    def _internal(self, stream: StreamRef) -> Decision:
        there = self._with_owner(stream.stream)
        if there is None:
            return Decision(None, self.embedded, stream, stream)
        decision, name = there
        return Decision(decision.route, decision.holder, stream, StreamRef(INTERNAL_BASIN, name))

    def table(self, name: str, changes: bool) -> tuple[TargetHolder, str]:
        """Where a table is, and by what name. Raises PERMISSION_DENIED for changes where there may be none."""
        there = None if name.startswith(INTERNAL_TABLES) else self._with_owner(name)
        if there is None:
            return self.embedded, name
        decision, called = there
        if changes:
            decision.check(_CHANGING)
        return decision.holder, called

    def _with_owner(self, name: str) -> tuple[Decision, str] | None:
        """Where the stream is that something of this name belongs to, and the name there; None where the embedded
        store has it all the same. Raises PERMISSION_DENIED where the stream is not for the current client."""
        owned = owner_of(name, self.names)
        if owned is None:
            return None
        client = CLIENT.get()
        try:
            decision = self._public(owned[1], client)
        except OperationFailed as error:
            if error.failure.code is FailureCode.PERMISSION_DENIED:
                raise  # it belongs to a stream of others
            return None  # there is no such stream for anybody: what a client keeps by this name stays here
        _note(decision, client)
        target = decision.holder.target
        if Capability.TABLES not in target.capabilities:
            return None
        there = renamed(owned[0], decision.there, target.names or self.names)
        return None if there is None else (decision, there)


def _note(decision: Decision, client: Client) -> None:
    """The client's connection has to do with the stream, by its name for the client, and the task with the route."""
    route = "" if decision.route is None else decision.route.name
    ROUTE.set(route)
    note_use(route, decision.asked, client.identity)
