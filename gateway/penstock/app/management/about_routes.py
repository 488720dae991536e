"""The management endpoints for routes, backs, mirrors and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.app.management.overview import BackView, Overview, RouteView
from penstock.app.management.positions import Positions, query_of
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.words import Answer, Endpoints, RequestRefused, read_words, whole_number
from penstock.model.failures import FailureCode, fail
from penstock.net.http.exchange import Exchange

if TYPE_CHECKING:
    from penstock.routing.mirror.route import MirroredRoute

__all__ = ["AboutRoutes"]

_MOST_STREAMS: Final = 1000
_MOST_WAIT: Final = 600.0


class _CutOverWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    force: bool = False
    wait_seconds: float = 30.0


class AboutRoutes:
    """The endpoints; see docs/management.md."""

    def __init__(self, overview: Overview, settings: ManagementSettings) -> None:
        self._overview = overview
        self._settings = settings
        self._positions = Positions(overview)
        self.endpoints: Endpoints = {
            ("backs",): {"GET": self._backs},
            ("routes",): {"GET": self._routes},
            ("positions",): {"GET": self._find},
            ("routes", "", "streams"): {"GET": self._streams},
            ("routes", "", "cut-over"): {"POST": self._cut_over},
        }

    async def _find(self, exchange: Exchange, _name: str) -> Answer:
        return 200, await self._positions.find(exchange.request.query)

    async def _backs(self, _exchange: Exchange, _name: str) -> Answer:
        return 200, {"backs": [_back(back) for back in self._overview.backs]}

    async def _routes(self, _exchange: Exchange, _name: str) -> Answer:
        return 200, {"routes": [self._route(route) for route in self._overview.routes.values()]}

    def _route(self, route: RouteView) -> dict[str, Any]:
        circuit = next((back.circuit().state for back in self._overview.backs if back.name == route.leads_to), None)
        return {
            "name": route.name,
            "match": route.match,
            "back": route.leads_to,
            "configured_back": route.back,
            "circuit": circuit,
            "mirror": None if route.mirrored is None else route.mirrored.status(),
        }

    async def _streams(self, exchange: Exchange, name: str) -> Answer:
        query = query_of(exchange.request.query, ("after", "limit"))
        limit = whole_number("limit", query.get("limit", "100"), _MOST_STREAMS)
        mirrored = self._mirrored(name)
        streams, more = await mirrored.streams(query.get("after", ""), limit)
        return 200, {"streams": streams, "has_more": more}

    async def _cut_over(self, exchange: Exchange, name: str) -> Answer:
        mirrored = self._mirrored(name)
        words = await read_words(exchange, _CutOverWords, self._settings.body_seconds)
        if not 0 <= words.wait_seconds <= _MOST_WAIT:
            raise fail(FailureCode.BAD_JSON, f"wait_seconds: expected 0 to {_MOST_WAIT:g}, got {words.wait_seconds:g}")
        done = await mirrored.cut_over(force=words.force, wait_seconds=words.wait_seconds)
        return (200 if done.swapped else 409), done

    def _mirrored(self, name: str) -> MirroredRoute:
        route = self._overview.routes.get(name)
        if route is None:
            routes = ", ".join(self._overview.routes) or "none"
            raise RequestRefused(
                404, "route_not_found", f"route {name!r:.80} does not exist; expected one of: {routes}"
            )
        if route.mirrored is None:
            raise RequestRefused(409, "no_mirror", f"route {name} has no mirror")
        return route.mirrored


def _back(back: BackView) -> dict[str, Any]:
    circuit = back.circuit()
    return {
        "name": back.name,
        "kind": back.kind,
        "address": back.address,
        "circuit": circuit.state,
        "since": circuit.since,
        "reason": circuit.reason,
    }
