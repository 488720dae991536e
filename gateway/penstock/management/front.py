"""The management listener's requests; docs/management.md has them all."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import trio

from penstock.errors import CannotStart
from penstock.fronts.exchange import Exchange
from penstock.management.hosts import is_local_name
from penstock.management.overview import BackView, Overview, RouteView
from penstock.management.positions import Positions, query_of
from penstock.management.settings import ManagementSettings
from penstock.management.traffic import SelectionWords, Traffic, words_of
from penstock.mirror.route import MirroredRoute
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import KIB
from penstock_codecs.s2.errors import failure_to_http

__all__ = ["ManagementFront"]

_MOST_BODY: Final = 16 * KIB
_MOST_STREAMS: Final = 1000
_MOST_WAIT: Final = 600.0
_JSON: Final = ("content-type", "application/json")
_NO_STORE: Final = ("cache-control", "no-store")
_Answer = tuple[int, Any]
W = TypeVar("W")


class _CutOverWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    force: bool = False
    wait_seconds: float = 30.0


class _NoWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.answer = {"code": code, "message": message}


class ManagementFront:
    """Answers HTTP exchanges in JSON; `handle` is the handler of an HTTP server.

    Nothing is for web pages: there are no CORS headers, and what changes something wants `content-type:
    application/json`, which a page of another origin cannot send without being asked for it first.
    """

    def __init__(self, overview: Overview, settings: ManagementSettings, traffic: Traffic | None = None) -> None:
        """`traffic`: connections and recordings, where they are to be shown."""
        self._overview = overview
        self._settings = settings
        self._positions = Positions(overview)
        self._traffic = traffic
        self._draining = False
        self._endpoints: dict[tuple[str, ...], dict[str, Callable[[Exchange, str], Awaitable[_Answer | None]]]] = {
            ("health",): {"GET": self._health},
            ("backs",): {"GET": self._backs},
            ("routes",): {"GET": self._routes},
            ("positions",): {"GET": self._find},
            ("routes", "", "streams"): {"GET": self._streams},
            ("routes", "", "cut-over"): {"POST": self._cut_over},
        }
        if traffic is not None:
            self._endpoints |= {
                ("connections",): {"GET": self._connections},
                ("recordings",): {"GET": self._recordings, "POST": self._record},
                ("recordings", "", "stop"): {"POST": self._stop_recording},
                ("tail",): {"GET": self._tail},
            }

    def drain(self) -> None:
        """From now on `GET /health` says 503, and whoever follows the traffic is told that it ends."""
        self._draining = True
        if self._traffic is not None:
            self._traffic.recordings.drain()

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange. Never raises for what a client did."""
        challenge = []
        try:
            answered = await self._answer(exchange)
            if answered is None:  # it has answered itself
                return
            status, answer = answered
            body = msgspec.json.format(msgspec.json.encode(answer)) + b"\n"
        except _Refusal as refusal:
            status, body = refusal.status, msgspec.json.encode(refusal.answer)
        except OperationFailed as error:
            status, body = failure_to_http(error.failure)
            challenge = [("www-authenticate", "Bearer")] if status == 401 else []
        await exchange.respond(status, [_JSON, _NO_STORE, *challenge], body)

    async def _answer(self, exchange: Exchange) -> _Answer | None:
        parts = exchange.request.path.strip("/").split("/")
        name = unquote(parts[1]) if len(parts) == 3 else ""
        methods = self._endpoints.get((parts[0], "", parts[2]) if len(parts) == 3 else tuple(parts))
        if methods is None:
            there = ", ".join("/" + "/".join(part or "NAME" for part in path) for path in self._endpoints)
            raise _Refusal(404, "not_found", f"there is no {exchange.request.path[:100]!r} here; there are {there}")
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        if method not in methods:
            raise _Refusal(405, "method_not_allowed", f"expected {' or '.join(methods)}, got {method[:20]!r}")
        if methods.get(method) != self._health:
            self._admit(exchange)
        return await methods[method](exchange, name)

    def _admit(self, exchange: Exchange) -> None:
        tokens, authority = self._settings.bearer_tokens, exchange.request.authority
        if self._settings.loopback and not tokens and not is_local_name(authority):
            raise _Refusal(403, "foreign_name", f"{authority!r:.80} is no name of this machine: ask by its address")
        scheme, _, token = (exchange.request.header("authorization") or "").partition(" ")
        known = [hmac.compare_digest(token.strip().encode(), each.encode()) for each in tokens]
        if tokens and (scheme.lower() != "bearer" or not any(known)):
            raise fail(FailureCode.AUTHN, "a valid bearer token is required")

    # ---- what is asked -------------------------------------------------------------------------------------------

    async def _health(self, _exchange: Exchange, _name: str) -> _Answer:
        return (503, {"state": "draining"}) if self._draining else (200, {"state": "running"})

    async def _find(self, exchange: Exchange, _name: str) -> _Answer:
        return 200, await self._positions.find(exchange.request.query)

    async def _backs(self, _exchange: Exchange, _name: str) -> _Answer:
        return 200, {"backs": [_back(one) for one in self._overview.backs]}

    async def _routes(self, _exchange: Exchange, _name: str) -> _Answer:
        return 200, {"routes": [self._route(one) for one in self._overview.routes.values()]}

    def _route(self, route: RouteView) -> dict[str, Any]:
        mirrored = route.mirrored
        back = route.back if mirrored is None else mirrored.primary
        circuit = next((one.circuit().state for one in self._overview.backs if one.name == back), None)
        return {
            "name": route.name,
            "match": route.match,
            "back": back,
            "configured_back": route.back,
            "circuit": circuit,
            "mirror": None if mirrored is None else mirrored.status(),
        }

    async def _streams(self, exchange: Exchange, name: str) -> _Answer:
        asked = query_of(exchange.request.query, ("after", "limit"))
        limit = asked.get("limit", "100")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MOST_STREAMS:
            raise fail(FailureCode.BAD_QUERY, f"limit: expected 1 to {_MOST_STREAMS}, got {limit!r:.80}")
        mirrored = self._mirrored(name)
        streams, more = await mirrored.streams(asked.get("after", ""), int(limit))
        return 200, {"streams": streams, "has_more": more}

    async def _cut_over(self, exchange: Exchange, name: str) -> _Answer:
        mirrored = self._mirrored(name)
        words = await self._body(exchange, _CutOverWords)
        if not 0 <= words.wait_seconds <= _MOST_WAIT:
            raise fail(FailureCode.BAD_JSON, f"wait_seconds: expected 0 to {_MOST_WAIT:g}, got {words.wait_seconds:g}")
        done = await mirrored.cut_over(force=words.force, wait_seconds=words.wait_seconds)
        return (200 if done.swapped else 409), done

    def _mirrored(self, name: str) -> MirroredRoute:
        route = self._overview.routes.get(name)
        if route is None:
            routes = ", ".join(self._overview.routes) or "none"
            raise _Refusal(404, "route_not_found", f"there is no route {name!r:.80}; there are: {routes}")
        if route.mirrored is None:
            raise _Refusal(409, "no_mirror", f"route {name} has no mirror")
        return route.mirrored

    async def _body(self, exchange: Exchange, wanted: type[W]) -> W:
        essence = (exchange.request.header("content-type") or "").split(";")[0].strip().lower()
        if essence != "application/json":
            raise fail(FailureCode.BAD_HEADER, "content-type: expected application/json")
        held = b""
        with trio.move_on_after(self._settings.body_seconds) as patience:
            while piece := await exchange.receive():
                held += piece
                if len(held) > _MOST_BODY:
                    raise fail(FailureCode.BAD_JSON, f"the body has more than {_MOST_BODY} bytes")
        if patience.cancelled_caught:
            raise fail(FailureCode.REQUEST_TIMEOUT, f"the body took more than {self._settings.body_seconds:g} seconds")
        try:
            return msgspec.json.decode(held or b"{}", type=wanted)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise fail(FailureCode.BAD_JSON, str(error)) from None

    # ---- traffic -------------------------------------------------------------------------------------------------

    @property
    def _known_traffic(self) -> Traffic:
        assert self._traffic is not None, "there are no such endpoints without it"
        return self._traffic

    async def _connections(self, _exchange: Exchange, _name: str) -> _Answer:
        return 200, {"connections": await self._known_traffic.connections()}

    async def _recordings(self, _exchange: Exchange, _name: str) -> _Answer:
        return 200, {"recordings": self._known_traffic.running()}

    async def _record(self, exchange: Exchange, _name: str) -> _Answer:
        words = await self._body(exchange, SelectionWords)
        try:
            return 200, await self._known_traffic.start(words)
        except CannotStart as error:
            raise _Refusal(409, "cannot_record", str(error)) from None

    async def _stop_recording(self, exchange: Exchange, name: str) -> _Answer:
        await self._body(exchange, _NoWords)
        stopped = await self._known_traffic.stop(name)
        if stopped is None:
            raise _Refusal(404, "recording_not_found", f"no recording {name!r:.80} is running")
        return 200, stopped

    async def _tail(self, exchange: Exchange, _name: str) -> None:
        """What goes by from now on, until the client goes away."""
        words = words_of(exchange.request.query)
        head = [("content-type", "application/x-pcapng"), _NO_STORE]
        async with self._known_traffic.listening(words) as live:
            if exchange.request.method == "HEAD":
                await exchange.respond(200, head)
                return
            await exchange.start(200, head)
            async for piece in live:
                await exchange.send([piece])
            await exchange.finish()


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
