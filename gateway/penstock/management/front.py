"""The management listener's requests; docs/management.md has them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from penstock.fronts.exchange import Exchange
from penstock.management.about_routes import AboutRoutes
from penstock.management.about_state import AboutState
from penstock.management.about_streams import AboutStreams
from penstock.management.about_traffic import AboutTraffic
from penstock.management.admission import admit
from penstock.management.controls import Controls
from penstock.management.overview import Overview
from penstock.management.page import Events, PageFiles
from penstock.management.readiness import Readiness
from penstock.management.sampling import Sampler
from penstock.management.settings import ManagementSettings
from penstock.management.traffic import Traffic
from penstock.management.watching import Watching
from penstock.management.words import Answer, Endpoint, Endpoints, Refusal
from penstock_codecs.failures import OperationFailed
from penstock_codecs.s2.errors import failure_to_http

__all__ = ["ManagementFront"]

_JSON: Final = ("content-type", "application/json")
_NO_STORE: Final = ("cache-control", "no-store")


class ManagementFront:
    """Answers HTTP exchanges; `handle` is the handler of an HTTP server, `run` runs beside it.

    Nothing is for pages of other origins: there are no CORS headers, and what changes something wants `content-type:
    application/json`, or a method, that such a page cannot send without being asked for it first.
    """

    def __init__(
        self,
        overview: Overview,
        settings: ManagementSettings,
        traffic: Traffic | None = None,
        controls: Controls | None = None,
    ) -> None:
        """`overview`, `settings`: looked at for each request, so that a reload may change them. `traffic`: connections
        and recordings, where they are to be shown; `controls`: what may be asked of the process. The page needs both.
        """
        self._settings = settings
        self._traffic = traffic
        self._watching: Watching | None = None
        self._draining = False
        self._open: Endpoints = {("health",): {"GET": self._health}}
        self._endpoints: Endpoints = {
            **AboutRoutes(overview, settings).endpoints,
            **AboutStreams(overview).endpoints,
        }
        if traffic is not None:
            close = None if controls is None else controls.close_connection
            self._endpoints = {**self._endpoints, **AboutTraffic(traffic, settings, close).endpoints}
        if controls is not None:
            readiness = Readiness(overview, controls)
            state = AboutState(settings, controls, readiness)
            self._open = {**self._open, **state.open}
            self._endpoints = {**self._endpoints, **state.endpoints}
            if traffic is not None:
                self._watching = Watching(traffic, Sampler(traffic, controls, readiness))
                self._open = {**self._open, **PageFiles().endpoints}
                self._endpoints = {**self._endpoints, **Events(self._watching).endpoints}

    async def run(self) -> None:
        """For ever: feed the page while somebody looks at it."""
        if self._watching is not None:
            await self._watching.run()

    def drain(self) -> None:
        """From now on `GET /health` says 503, and whoever follows the traffic is told that it ends."""
        self._draining = True
        if self._traffic is not None:
            self._traffic.drain()
        if self._watching is not None:
            self._watching.drain()

    async def _health(self, _exchange: Exchange, _name: str) -> Answer:
        return (503, {"state": "draining"}) if self._draining else (200, {"state": "running"})

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange. Never raises for what a client did."""
        challenge = []
        try:
            answered = await self._answer(exchange)
            if answered is None:  # it has answered itself
                return
            status, answer = answered
            body = msgspec.json.format(msgspec.json.encode(answer)) + b"\n"
        except Refusal as refusal:
            status, body = refusal.status, msgspec.json.encode(refusal.answer)
        except OperationFailed as error:
            status, body = failure_to_http(error.failure)
            challenge = [("www-authenticate", "Bearer")] if status == 401 else []
        await exchange.respond(status, [_JSON, _NO_STORE, *challenge], body)

    async def _answer(self, exchange: Exchange) -> Answer | None:
        parts = tuple(exchange.request.path.strip("/").split("/"))
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        if parts in self._open:
            return await _of(self._open[parts], method)(exchange, "")
        name = ""
        if parts not in self._endpoints and len(parts) > 1:
            name, parts = unquote(parts[1]), (parts[0], "", *parts[2:])
        if parts not in self._endpoints:
            there = ", ".join("/" + "/".join(part or "NAME" for part in path) for path in self._endpoints)
            raise Refusal(404, "not_found", f"there is no {exchange.request.path[:100]!r} here; there are {there}")
        endpoint = _of(self._endpoints[parts], method)
        admit(exchange, self._settings)
        return await endpoint(exchange, name)


def _of(methods: Mapping[str, Endpoint], method: str) -> Endpoint:
    """What answers this method. Raises Refusal."""
    if method not in methods:
        raise Refusal(405, "method_not_allowed", f"expected {' or '.join(methods)}, got {method[:20]!r}")
    return methods[method]
