"""The management listener's requests (docs/management.md lists them), their admission, and the page's samples of the
gateway's state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import trio

from penstock.app.management.about_captures import AboutCaptures
from penstock.app.management.about_process import AboutProcess
from penstock.app.management.about_records import AboutRecords
from penstock.app.management.about_routes import AboutRoutes
from penstock.app.management.about_state import AboutState
from penstock.app.management.about_streams import AboutStreams
from penstock.app.management.about_traffic import AboutTraffic
from penstock.app.management.admission import admit, check_may_change
from penstock.app.management.controls import Controls
from penstock.app.management.history import AboutHistory, History, clients_total, open_connections
from penstock.app.management.mcp.endpoint import McpEndpoint
from penstock.app.management.mcp.live_tools import live_tools
from penstock.app.management.mcp.recording_tools import recording_tools
from penstock.app.management.overview import Overview
from penstock.app.management.page import EventsEndpoint, PageFiles
from penstock.app.management.page_events import PageEvents
from penstock.app.management.readiness import Readiness
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.app.management.words import Answer, Endpoint, Endpoints, RequestRefused
from penstock.model.failures import OperationFailed
from penstock.net.http.exchange import Exchange
from penstock.net.http.preconditions import check_preconditions
from penstock.observe import level
from penstock.observe.metrics.families import NETWORK_BYTES
from penstock.observe.metrics.state import current
from penstock.wire.http_failures import failure_to_http

__all__ = ["ManagementFront", "Sampler"]

_JSON: Final = ("content-type", "application/json")
_NO_STORE: Final = ("cache-control", "no-store")


class Sampler:
    """Samples the gateway's state, once a second while a page is open."""

    def __init__(self, traffic: Traffic, controls: Controls, readiness: Readiness) -> None:
        self._traffic = traffic
        self._controls = controls
        self._readiness = readiness

    async def __call__(self) -> dict[str, Any]:
        """Return the `data` of a `state` event."""
        state = current()
        reasons = await self._readiness.reasons()
        return {
            "time": time.time() * 1000,
            "ready": not reasons,
            "reasons": reasons,
            "log_level": level(),
            "connections": open_connections(state),
            "bytes": clients_total(state, NETWORK_BYTES.name),
        }


class ManagementFront:
    """Answers HTTP exchanges; `handle` is the handler of an HTTP server, and `run` runs beside it.

    Pages of other origins get nothing: there are no CORS headers, and requests that change something need
    `content-type: application/json`, or a method, that such a page cannot send without a preflight request.
    """

    def __init__(
        self,
        overview: Overview,
        settings: ManagementSettings,
        traffic: Traffic | None = None,
        controls: Controls | None = None,
    ) -> None:
        """`overview`, `settings`: read on each request, so that a reload may change them. `traffic`: connections and
        recordings, if they are to be shown; `controls`: operations on the process. The page and agents need both."""
        self._settings = settings
        self._traffic = traffic
        self._page_events: PageEvents | None = None
        self._draining = False
        self._for_agents: Endpoints = {}
        self._open: Endpoints = {("health",): {"GET": self._health}}
        self._history: History | None = None
        self._records = AboutRecords(overview, settings)
        self._endpoints: Endpoints = {
            **AboutRoutes(overview, settings).endpoints,
            **AboutStreams(overview).endpoints,
            **self._records.endpoints,
        }
        if traffic is not None:
            close = None if controls is None else controls.close_connection
            self._endpoints = {**self._endpoints, **AboutTraffic(traffic, settings, close).endpoints}
        if controls is not None:
            readiness = Readiness(overview, controls)
            state = AboutState(settings, controls, readiness)
            self._open = {**self._open, **state.open}
            self._history = History()
            self._endpoints = {
                **self._endpoints,
                **state.endpoints,
                **AboutProcess(overview, controls).endpoints,
                **AboutHistory(self._history).endpoints,
            }
            if traffic is not None:
                self._page_events = PageEvents(traffic, Sampler(traffic, controls, readiness))
                self._open = {**self._open, **PageFiles().endpoints}
                self._endpoints = {
                    **self._endpoints,
                    **EventsEndpoint(self._page_events).endpoints,
                    **AboutCaptures(traffic, controls).endpoints,
                }
                tools = live_tools(overview, controls, self._page_events)
                self._for_agents = McpEndpoint([*tools, *recording_tools(traffic, controls)], settings).endpoints

    async def run(self) -> None:
        """Keep the history, and send events to open pages; never returns."""
        async with trio.open_nursery() as nursery:
            for part in (self._history, self._page_events):
                if part is not None:
                    nursery.start_soon(part.run)

    def drain(self) -> None:
        """Answer `GET /health` with 503 from now on, and end the streams of live traffic."""
        self._draining = True
        self._records.drain()
        if self._traffic is not None:
            self._traffic.drain()
        if self._page_events is not None:
            self._page_events.drain()

    async def _health(self, _exchange: Exchange, _name: str) -> Answer:
        return (503, {"state": "draining"}) if self._draining else (200, {"state": "running"})

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange. Never raises for a client's mistake."""
        challenge = []
        try:
            answered = await self._answer(exchange)
            if answered is None:  # the endpoint has responded itself
                return
            status, response = answered
            body = msgspec.json.format(msgspec.json.encode(response))
        except RequestRefused as refusal:
            status, body = refusal.status, msgspec.json.encode(refusal.answer)
        except OperationFailed as error:
            status, body = failure_to_http(error.failure)
            challenge = [("www-authenticate", "Bearer")] if status == 401 else []
        await exchange.respond(status, [_JSON, _NO_STORE, *challenge], body + b"\n")

    async def _answer(self, exchange: Exchange) -> Answer | None:
        check_preconditions(exchange.request)
        parts = tuple(exchange.request.path.strip("/").split("/"))
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        if parts in self._open:
            return await _of(self._open[parts], method)(exchange, "")
        if self._settings.mcp and parts in self._for_agents:  # a POST there need not change anything
            agents = _of(self._for_agents[parts], method)
            admit(exchange, self._settings)
            return await agents(exchange, "")
        name = ""
        if parts not in self._endpoints and len(parts) > 1:
            name, parts = unquote(parts[1]), (parts[0], "", *parts[2:])
        if parts not in self._endpoints:
            there = ", ".join("/" + "/".join(part or "NAME" for part in path) for path in self._endpoints)
            raise RequestRefused(
                404, "not_found", f"{exchange.request.path[:100]!r} does not exist; the endpoints are {there}"
            )
        endpoint = _of(self._endpoints[parts], method)
        admit(exchange, self._settings)
        check_may_change(exchange, self._settings)
        return await endpoint(exchange, name)


def _of(methods: Mapping[str, Endpoint], method: str) -> Endpoint:
    """Return the endpoint of this method. Raises Refusal."""
    if method not in methods:
        raise RequestRefused(405, "method_not_allowed", f"expected {' or '.join(methods)}, got {method[:20]!r}")
    return methods[method]
