"""Builds the router of a configuration, with its backs, routes and mirrors, and replaces it on reload."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import structlog

from penstock.app.bootstrap.mirrors import Mirrors, mirrored_route, open_mirrors, open_route
from penstock.app.bootstrap.open_backs import OpenBack, OpenBacks, config_digest_of, open_backs
from penstock.app.config import EMBEDDED, Config, RouteTable
from penstock.app.config.references import state_back
from penstock.backends.logged_tables import LoggedTables
from penstock.backends.store_at_server import StoreAtServer
from penstock.core.back import Back
from penstock.core.errors import CannotStart, out_of_groups
from penstock.core.permissions import Permission
from penstock.net.upstream import Watch, unwatched
from penstock.observe.metrics.series import sampling
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.samples import router_samples
from penstock.routing.target import Target, TargetHolder

if TYPE_CHECKING:
    from penstock.routing.mirror.route import MirroredRoute

__all__ = ["RouterPlan", "Routing", "open_router", "open_routing"]

log = structlog.get_logger()


class RouterPlan(msgspec.Struct, eq=False):
    """A complete router that is not yet in force. `backs` and `mirrors`: all that it uses, by name; each mirror with
    what it depends on."""

    router: Router
    backs: dict[str, OpenBack]
    mirrors: dict[str, _Mirror] = msgspec.field(default_factory=dict)


class _Mirror(msgspec.Struct, frozen=True, eq=False):
    """A mirrored route and what it was built from. `before`: the tables of its route and of the preceding routes;
    `targets`: both its sides."""

    mirrored: MirroredRoute
    route: Route
    before: tuple[RouteTable, ...]
    targets: tuple[Target, Target]

    def is_for(self, before: tuple[RouteTable, ...], targets: tuple[Target, Target]) -> bool:
        return self.before == before and all(a is b for a, b in zip(self.targets, targets, strict=True))


class Routing:
    """The router in force and its replacement: `prepare` a plan, then `commit` or `abandon` it. `state`: what keeps the
    gateway's tables; `store`: the embedded store, or what stands in for it."""

    def __init__(self, state: Back, store: Back, backs: OpenBacks, mirrors: Mirrors) -> None:
        self._state = state
        self._embedded = Target(EMBEDDED, EMBEDDED, store)
        self._backs = backs
        self._mirrors = mirrors
        self._now = RouterPlan(Router((), store, state=state), {})

    @property
    def router(self) -> Router:
        """The router in force."""
        return self._now.router

    async def prepare(self, config: Config) -> RouterPlan:
        """Build the router of a configuration. Unchanged backs and mirrors are reused; an unreachable server is no
        error. Raises CannotStart for files of a back that cannot be used, and if the store fails."""
        backs: dict[str, OpenBack] = {}
        try:
            envelopes = config.listeners.envelopes
            for name, table in config.backs.items():
                known = self._now.backs.get(name)
                if known is not None and known.config_digest == config_digest_of(table, envelopes):
                    backs[name] = known
                else:
                    with out_of_groups():
                        backs[name] = await self._backs.open(name, table, envelopes)
            return await self._plan(config, backs)
        except BaseException:
            self._discard(backs, self._now)
            raise

    async def _plan(self, config: Config, backs: dict[str, OpenBack]) -> RouterPlan:
        targets = {EMBEDDED: self._embedded, **{name: back.target for name, back in backs.items()}}
        routes: list[Route] = []
        mirrors: dict[str, _Mirror] = {}
        for index, table in enumerate(config.routes):
            if table.mirror is None:
                routes.append(_route(table, targets))
                continue
            mirror = await self._mirror(config.routes[: index + 1], routes, targets)
            mirrors[table.name] = mirror
            routes.append(mirror.route)
        mirrored = {name: mirror.mirrored for name, mirror in mirrors.items()}
        return RouterPlan(Router(routes, self._embedded.back, targets, mirrored, self._state), backs, mirrors)

    async def _mirror(
        self, tables: tuple[RouteTable, ...], before: Sequence[Route], targets: Mapping[str, Target]
    ) -> _Mirror:
        """Return the mirrored route of the last of `tables`; reuse the running one if nothing it depends on has
        changed."""
        table = tables[-1]
        sides = targets[table.back], targets[table.mirror or ""]
        known = self._now.mirrors.get(table.name)
        if known is not None and known.is_for(tables, sides):
            return known
        if known is not None and known.mirrored.cutting:
            raise CannotStart(f"route {table.name}: a cut-over is in progress: try again when it has ended")
        route = _route(table, targets)
        return _Mirror(await open_route(mirrored_route(table, route, before, targets)), route, tables, sides)

    def commit(self, plan: RouterPlan) -> None:
        """Put a plan in force at once. Backs that it does not use close as soon as no operation is in flight on
        them."""
        before, self._now = self._now, plan
        for name, mirror in before.mirrors.items():
            if plan.mirrors.get(name) is not mirror:
                self._mirrors.end(mirror.mirrored, mirror.targets[0])
        for name, mirror in plan.mirrors.items():
            if before.mirrors.get(name) is not mirror:
                self._mirrors.begin(mirror.mirrored)
        for name, back in before.backs.items():
            if plan.backs.get(name) is not back:
                back.retire()

    def abandon(self, plan: RouterPlan) -> None:
        """Discard a plan and close the backs that were opened for it."""
        self._discard(plan.backs, self._now)

    def _discard(self, backs: Mapping[str, OpenBack], instead: RouterPlan) -> None:
        for name, back in backs.items():
            if instead.backs.get(name) is not back:
                back.close()


@asynccontextmanager
async def open_routing(config: Config, embedded: Back, watch: Watch = unwatched) -> AsyncIterator[Routing]:
    """Open everything that the configuration routes to, until the block ends. `watch` is called with each connection to
    a server. Raises CannotStart; see `Routing.prepare`."""
    with out_of_groups():
        store = embedded
        if isinstance(embedded, LoggedTables):
            name = state_back(config.backs)
            assert name is not None, "it keeps the state"
            store = StoreAtServer(embedded, lambda: routing.router.targets[name].back)
        async with open_backs(embedded, store, watch) as backs, open_mirrors() as mirrors:
            routing = Routing(embedded, store, backs, mirrors)
            routing.commit(await routing.prepare(config))
            with sampling(lambda: router_samples(routing.router)):
                yield routing


@asynccontextmanager
async def open_router(config: Config, embedded: Back, watch: Watch = unwatched) -> AsyncIterator[Router]:
    """Open a router that is never replaced; see `open_routing`."""
    async with open_routing(config, embedded, watch) as routing:
        yield routing.router


def _route(table: RouteTable, targets: Mapping[str, Target]) -> Route:
    return Route(
        table.name,
        table.rewriting(),
        TargetHolder(targets[table.back]),
        frozenset(table.listeners),
        frozenset(table.identity),
        table.create_streams,
        table.mirror,
        frozenset(map(Permission, table.permissions)),
    )
