"""The S2 front: every endpoint of the S2 API over one back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from penstock.core.back import Back
from penstock.model.failures import OperationFailed
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.browsers import preflight_headers
from penstock.net.http.exchange import Exchange
from penstock.net.http.following import Heartbeats
from penstock.net.http.preconditions import check_preconditions
from penstock_s2.codec.media import Media
from penstock_s2.codec.routes import S2Endpoint, match_route
from penstock_s2.front.admission import RequestAdmission
from penstock_s2.front.call import S2Call, UnsupportedCoding
from penstock_s2.front.control import ControlEndpoints
from penstock_s2.front.events import EventStreams
from penstock_s2.front.metrics import MetricsEndpoints
from penstock_s2.front.parameters import accepted, media_of
from penstock_s2.front.records import RecordEndpoints
from penstock_s2.front.sessions import S2SSessions
from penstock_s2.front.settings import S2Settings
from penstock_s2.front.tokens import Tokens

__all__ = ["S2Front"]


class S2Front:
    """Front that answers HTTP exchanges as the S2 API; `handle` is the handler for an HTTP server."""

    def __init__(self, back: Back, settings: S2Settings) -> None:
        self._settings = settings
        self._draining = Draining(settings.drain_grace_seconds)
        self._records = RecordEndpoints(back, self._draining)
        heartbeats = Heartbeats(settings.heartbeat_seconds)
        self._sessions = S2SSessions(back, self._draining, heartbeats)
        self._events = EventStreams(back, self._draining, heartbeats)
        self._admission = RequestAdmission(settings)
        control, tokens, metrics = ControlEndpoints(back), Tokens(settings), MetricsEndpoints(back)
        self._endpoints: dict[S2Endpoint, Callable[[S2Call], Awaitable[None]]] = {
            S2Endpoint.HEALTH: _health,
            S2Endpoint.LIST_BASINS: control.list_basins,
            S2Endpoint.CREATE_BASIN: control.create_basin,
            S2Endpoint.ENSURE_BASIN: control.ensure_basin,
            S2Endpoint.GET_BASIN: control.get_basin,
            S2Endpoint.RECONFIGURE_BASIN: control.reconfigure_basin,
            S2Endpoint.DELETE_BASIN: control.delete_basin,
            S2Endpoint.LIST_STREAMS: control.list_streams,
            S2Endpoint.CREATE_STREAM: control.create_stream,
            S2Endpoint.ENSURE_STREAM: control.ensure_stream,
            S2Endpoint.GET_STREAM: control.get_stream,
            S2Endpoint.RECONFIGURE_STREAM: control.reconfigure_stream,
            S2Endpoint.DELETE_STREAM: control.delete_stream,
            S2Endpoint.LIST_ACCESS_TOKENS: tokens.list,
            S2Endpoint.ISSUE_ACCESS_TOKEN: tokens.issue,
            S2Endpoint.REVOKE_ACCESS_TOKEN: tokens.revoke,
            S2Endpoint.ACCOUNT_METRICS: metrics.account,
            S2Endpoint.BASIN_METRICS: metrics.basin,
            S2Endpoint.STREAM_METRICS: metrics.stream,
            S2Endpoint.LIST_LOCATIONS: control.list_locations,
            S2Endpoint.GET_DEFAULT_LOCATION: control.get_default_location,
            S2Endpoint.SET_DEFAULT_LOCATION: control.set_default_location,
            S2Endpoint.CHECK_TAIL: self._records.check_tail,
            S2Endpoint.APPEND: self._append,
            S2Endpoint.READ: self._read,
        }

    def drain(self) -> None:
        """Begin to shut down.

        New requests are refused on HTTP/2, clients are advised to reconnect, and sessions end after the grace time. A
        connection of HTTP/1.1 ends after the request that it has received, which its client may have sent before.
        """
        self._draining.grace_seconds = self._settings.drain_grace_seconds
        self._draining.begin()

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange. Never raises for errors of a client."""
        request = exchange.request
        endpoints, path_parameters = match_route(request.path)
        call = S2Call(exchange, path_parameters, self._settings)
        method = "GET" if request.method == "HEAD" else request.method
        if (refusal := self._admission.refusal(request)) is not None:
            await call.respond_failure(refusal)
        elif method == "OPTIONS" and request.header("origin") and request.header("access-control-request-method"):
            await call.respond_empty(200, *preflight_headers(request))
        elif not endpoints:
            await call.respond_empty(404)
        elif (endpoint := endpoints.get(method)) is None:
            await call.respond_empty(405, ("allow", _allow(endpoints)))
        else:
            try:
                if self._draining.begun and request.http_version == "2":
                    raise OperationFailed(SHUTTING_DOWN)
                self._admission.admit(call, endpoint)
                check_preconditions(request)
                await self._endpoints[endpoint](call)
            except OperationFailed as error:
                await call.respond_failure(error.failure)
            except UnsupportedCoding:
                await call.respond_empty(415, ("accept-encoding", "zstd,gzip"))

    async def _append(self, call: S2Call) -> None:
        call.present_key()
        if media_of(call.request) is Media.S2S:
            await self._sessions.append(call)
        else:
            await self._records.append(call)

    def _read(self, call: S2Call) -> Awaitable[None]:
        call.present_key()
        wanted = accepted(call.request)
        if media_of(call.request) is Media.S2S or wanted is Media.S2S:  # the second is the seeds' spelling
            return self._sessions.read(call)
        if wanted is Media.EVENT_STREAM:
            return self._events.read(call)
        return self._records.read(call)


async def _health(call: S2Call) -> None:
    await call.respond(200, b"OK", "text/plain; charset=utf-8")


def _allow(endpoints: Iterable[str]) -> str:
    return ",".join(method for name in endpoints for method in (("GET", "HEAD") if name == "GET" else (name,)))
