"""Pravega's REST API: scopes, streams, scaling events and reader groups as JSON, and the health of the controller.

Answers have the statuses and the JSON of Pravega 0.13. Where that answers an error without a body, the body here says
what is wrong. Listings and scaling events are sent piece by piece, since they may be long.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec
import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.net.draining import SHUTTING_DOWN
from penstock.net.http.browsers import foreign_host, foreign_page
from penstock.net.http.exchange import Exchange, Request
from penstock.net.http.preconditions import check_preconditions
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import HeldBytes, too_many
from penstock.observe.metrics.clients import count_error
from penstock.wire.http_failures import failure_to_http
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.listing import PAGE
from penstock_pravega.controller.controller.names import READER_GROUP_PREFIX, is_internal, is_stream
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.settings import ControllerSettings
from penstock_pravega.controller.controller.topology import history
from penstock_pravega.controller.front.admission import authenticate
from penstock_pravega.controller.front.rest_wire import (
    NewScope,
    NewState,
    NewStream,
    StreamPolicies,
    config_in,
    decode,
    spell_event,
    spell_group,
    spell_stream,
)

__all__ = ["RestFront", "is_rest"]

T = TypeVar("T")

_JSON: Final = [("content-type", "application/json")]
_MOST_BODY: Final = 1 << 17
"""Bytes of a request's body at most: as many tags as are allowed take 33 KB."""
_BODY_SECONDS: Final = 60.0
"""Seconds in which a request's body must arrive."""
_PIECE: Final = 1 << 16
"""Bytes from which a part of a long answer is sent."""
_STATUS: Final = {
    ControllerProblem.SCOPE_NOT_EMPTY: 412,
    ControllerProblem.STREAM_NOT_SEALED: 412,
    ControllerProblem.STREAM_SEALED: 409,
    FailureCode.LIMIT_EXCEEDED: 413,
}
"""Statuses that are not those of the failure's code."""

Answer = tuple[int, bytes]
"""Status and JSON of an answer."""


class RestCall(msgspec.Struct):
    """One request: the names in its path, its body, and what it is about."""

    controller: Controller
    exchange: Exchange
    names: list[str]
    ready: bool
    """False once the gateway is about to stop."""
    started: bool = False
    """True once a part of the answer has been sent, so that no other status is possible."""

    def query(self) -> dict[str, str]:
        """Return the query's parameters, the first of each name."""
        return {name: values[0] for name, values in parse_qs(self.exchange.request.query).items()}

    def milliseconds(self, name: str) -> int:
        """Return a time in the query. Raises INVALID."""
        text = self.query().get(name, "")
        if not (text.isascii() and text.isdigit() and int(text[:20]) < 1 << 63):
            raise fail(FailureCode.INVALID, f"{name} in the query is a time in ms since 1970, not {text[:30]!r}")
        return int(text)

    async def body(self, kind: type[T]) -> T:
        """Return the request's body. Raises INVALID, which names the field, LIMIT_EXCEEDED, REQUEST_TIMEOUT."""
        received, quota = b"", current_quota()
        with HeldBytes(quota) as held, trio.move_on_after(_BODY_SECONDS):
            while piece := await self.exchange.receive():
                received += piece
                if len(received) > _MOST_BODY:
                    raise fail(FailureCode.LIMIT_EXCEEDED, f"the body is larger than {_MOST_BODY} bytes")
                held.set(len(received))
                await quota.request_room()
            return decode(received, kind)
        raise fail(FailureCode.REQUEST_TIMEOUT, f"the body took more than {_BODY_SECONDS:g} seconds to arrive")

    async def list(
        self,
        key: str,
        page: Callable[[str], Awaitable[Sequence[str]]],
        spell: Callable[[str], Awaitable[bytes | None]],
        *,
        if_empty: bytes | None = None,
    ) -> None:
        """Answer with an object that has a list under `key`, or with `if_empty` if the list would be empty.

        `page` returns the first names after the given one, none at the end; `spell` the item for a name, or None.
        """
        response, after = ListAnswer(self, f'{{"{key}":['.encode(), b"]}"), ""
        while names := await page(after):
            for name in names:
                if (item := await spell(name)) is not None:
                    await response.add(item)
            after = names[-1]
        await response.finish(if_empty)


class ListAnswer:
    """An answer whose items, between `start` and `end`, are sent piece by piece."""

    def __init__(self, call: RestCall, start: bytes, end: bytes) -> None:
        self._call = call
        self._held = start
        self._end = end
        self._comma = b""

    async def add(self, item: bytes) -> None:
        """Add an item."""
        self._held += self._comma + item
        self._comma = b","
        if len(self._held) >= _PIECE:
            exchange, held = self._call.exchange, self._held
            if not self._call.started:
                self._call.started = True
                await exchange.start(200, _JSON)
            await exchange.room()
            await exchange.send([held])
            self._held = b""

    async def finish(self, if_empty: bytes | None = None) -> None:
        """End the answer; `if_empty` is the whole answer if there are no items."""
        exchange, rest = self._call.exchange, self._held + self._end
        await exchange.room()
        if self._call.started:
            await exchange.send([rest])
            await exchange.finish()
        else:
            await exchange.respond(200, _JSON, rest if self._comma or if_empty is None else if_empty)


# ---- scopes ----


async def _list_scopes(call: RestCall) -> None:
    async def page(after: str) -> Sequence[str]:
        return await call.controller.scopes.page(after, PAGE)

    await call.list("scopes", page, _spell_scope)


async def _spell_scope(name: str) -> bytes:
    return msgspec.json.encode(NewScope(name))


async def _create_scope(call: RestCall) -> Answer:
    scope = await call.body(NewScope)
    await call.controller.scopes.create(scope.scope_name)
    return 201, msgspec.json.encode(scope)


async def _get_scope(call: RestCall) -> Answer:
    [scope] = call.names
    await call.controller.scopes.require(scope)
    return 200, msgspec.json.encode(NewScope(scope))


async def _delete_scope(call: RestCall) -> Answer:
    await call.controller.deletion.delete(*call.names)
    return 204, b""


# ---- streams ----


async def _list_streams(call: RestCall) -> None:
    """List the streams. A filter may select those with a tag, or the internal ones."""
    query, [scope] = call.query(), call.names
    kind = query.get("filter_type")
    tag = query.get("filter_value") if kind == "tag" else None

    async def page(after: str) -> Sequence[str]:
        if kind == "showInternalStreams":
            return await _internal(call, after)
        return await call.controller.listing.streams(scope, after, tag)

    async def spell(name: str) -> bytes | None:
        try:
            return spell_stream(scope, name, await call.controller.queries.configuration(scope, name))
        except ControllerRefusal:
            return None  # it was deleted in the meantime

    await call.list("streams", page, spell)


async def _internal(call: RestCall, after: str) -> Sequence[str]:
    """Return the first streams of reader groups after this one; their names follow one another in the listing."""
    [scope] = call.names
    names = await call.controller.listing.streams(scope, after or READER_GROUP_PREFIX, with_groups=True)
    return [*takewhile(is_internal, names)]


async def _create_stream(call: RestCall) -> Answer:
    stream = await call.body(NewStream)
    [scope], name, config = call.names, stream.stream_name, config_in(stream)
    if not is_stream(name):
        raise ControllerRefusal(ControllerProblem.INVALID_NAME, f"streamName {name!r}")
    await call.controller.streams.create(scope, name, config)
    return 201, spell_stream(scope, name, config)


async def _get_stream(call: RestCall) -> Answer:
    scope, name = call.names
    return 200, spell_stream(scope, name, await call.controller.queries.configuration(scope, name))


async def _update_stream(call: RestCall) -> Answer:
    config = config_in(await call.body(StreamPolicies))
    scope, name = call.names
    await call.controller.streams.update(scope, name, config)
    return 200, spell_stream(scope, name, config)


async def _seal_stream(call: RestCall) -> Answer:
    state = await call.body(NewState)
    await call.controller.streams.seal(*call.names)
    return 200, msgspec.json.encode(state)


async def _delete_stream(call: RestCall) -> Answer:
    await call.controller.streams.delete(*call.names)
    return 204, b""


async def _scaling_events(call: RestCall) -> None:
    """List the beginnings of epochs between two times, and the last one before them, whose splits and merges do not
    count."""
    first, last = call.milliseconds("from"), call.milliseconds("to")
    if first > last:
        raise fail(FailureCode.INVALID, f"from in the query is after to: {first} > {last}")
    segments, began = await call.controller.queries.history(*call.names)
    earlier = [number for number, at in enumerate(began) if at < first]
    reference = max(earlier, key=lambda number: (began[number], number), default=None)
    wanted = [first <= at <= last or number == reference for number, at in enumerate(began)]

    response = ListAnswer(call, b"[", b"]")
    for number, epoch in enumerate(history(segments, len(began))):
        await trio.lowlevel.checkpoint()
        if wanted[number]:
            epoch = epoch._replace(splits=0, merges=0) if number == reference else epoch
            await response.add(spell_event(epoch, began, number))
    await response.finish()


# ---- reader groups ----


async def _list_groups(call: RestCall) -> None:
    async def page(after: str) -> Sequence[str]:
        return await _internal(call, after)

    async def spell(name: str) -> bytes:
        return msgspec.json.encode({"readerGroupName": name.removeprefix(READER_GROUP_PREFIX)})

    await call.list("readerGroups", page, spell, if_empty=b"{}")


async def _get_group(call: RestCall) -> Answer:
    scope, name = call.names
    group = await call.controller.groups.get(scope, name)
    return 200, spell_group(scope, name, group, await call.controller.groups.online(scope, name))


async def _delete_group(call: RestCall) -> Answer:
    scope, name = call.names
    await call.controller.groups.delete(scope, name, "")
    return 204, b""


# ---- health ----


async def _ping(_call: RestCall) -> Answer:
    return 200, b""


async def _health(call: RestCall) -> Answer:
    response = {
        "name": "",
        "status": _status(call),
        "readiness": call.ready,
        "liveness": True,
        "details": {},
        "children": {},
    }
    return 200, msgspec.json.encode(response)


async def _health_part(call: RestCall) -> Answer:
    parts = {"status": _status(call), "readiness": call.ready, "liveness": True, "details": {}}
    [name] = call.names
    if name not in parts:
        raise fail(FailureCode.STREAM_NOT_FOUND, f"there is no part {name[:100]!r} of the controller's health")
    return 200, msgspec.json.encode(parts[name])


def _status(call: RestCall) -> str:
    return "UP" if call.ready else "DOWN"


Handler = Callable[[RestCall], Awaitable[Answer | None]]
"""Answers a request: with status and body, or itself, and then returns None."""

_OPEN: Final = (_ping, _health, _health_part)
"""Requests without credentials, which are answered during a drain too."""
_ROUTES: Final[Mapping[tuple[str, int], Mapping[str, Handler]]] = {
    ("scopes", 0): {"GET": _list_scopes, "POST": _create_scope},
    ("scopes", 1): {"GET": _get_scope, "DELETE": _delete_scope},
    ("scopes/streams", 1): {"GET": _list_streams, "POST": _create_stream},
    ("scopes/streams", 2): {"GET": _get_stream, "PUT": _update_stream, "DELETE": _delete_stream},
    ("scopes/streams/state", 2): {"PUT": _seal_stream},
    ("scopes/streams/scaling-events", 2): {"GET": _scaling_events},
    ("scopes/readergroups", 1): {"GET": _list_groups},
    ("scopes/readergroups", 2): {"GET": _get_group, "DELETE": _delete_group},
    ("health", 0): {"GET": _health},
    ("health", 1): {"GET": _health_part},
}
"""Handlers by method; the paths below /v1 by their words, with the number of names between them."""


def is_rest(path: str) -> bool:
    """Return whether a request of this path is for the REST API."""
    return path == "/ping" or path.startswith("/v1/")


class RestFront:
    """The REST API of one controller; `handle` is the handler of an HTTP server."""

    def __init__(self, controller: Controller, settings: ControllerSettings) -> None:
        self._controller = controller
        self._settings = settings
        self._ready = True

    def drain(self) -> None:
        """Begin to shut down: new requests are refused with 503, and the controller is not ready."""
        self._ready = False

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request. Never raises for a client's mistake."""
        request = exchange.request
        methods, names = _route(request.path)
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        call = RestCall(self._controller, exchange, names, self._ready)
        try:
            if not methods:
                await _respond(exchange, 404, Failure(FailureCode.INVALID, f"there is no {request.path[:200]!r}"))
            elif handler is None:
                failure = Failure(FailureCode.INVALID, f"{request.method[:20]!r} is not possible here")
                await _respond(exchange, 405, failure, ("allow", ",".join(methods)))
            elif request.method in ("POST", "PUT") and not _is_json(request):
                await _respond(exchange, 415, Failure(FailureCode.INVALID, "the content-type is application/json"))
            else:
                await self._admit(request, handler)
                response = await handler(call)
                if response is not None:
                    await exchange.room()
                    status, body = response
                    await exchange.respond(status, _JSON if body else (), body)
                current_quota().admit()
        except OperationFailed as error:
            if call.started:  # the answer ends incomplete
                raise RuntimeError("a listing failed after a part of it was sent") from error
            reason = error.problem if isinstance(error, ControllerRefusal) else error.failure.code
            status = _STATUS.get(reason) or failure_to_http(error.failure)[0]
            status = 400 if status == 422 else status
            more = [("www-authenticate", "Basic")] if status == 401 else []
            if isinstance(wait := error.failure.details.get("retry_after"), float):
                more.append(("retry-after", str(math.ceil(wait))))
            await _respond(exchange, status, error.failure, *more)

    async def _admit(self, request: Request, handler: Handler) -> None:
        """Raise the reason for which the request may not be made."""
        reason = foreign_host(request) if self._settings.local else None
        reason = reason or foreign_page(request)
        if reason is not None:
            raise fail(FailureCode.PERMISSION_DENIED, reason)
        if wait := current_quota().request():
            raise too_many(wait)
        check_preconditions(request)
        if handler not in _OPEN:
            if not self._ready:
                raise OperationFailed(SHUTTING_DOWN)
            await authenticate(request, self._settings)


def _route(path: str) -> tuple[Mapping[str, Handler], list[str]]:
    """Return the handlers of a path by method, and the names in it; no handlers for a path that does not exist."""
    if path == "/ping":
        return {"GET": _ping}, []
    parts = path.removeprefix("/v1/").removesuffix("/").split("/")
    words, names = parts[::2], [unquote(part) for part in parts[1::2]]
    return _ROUTES.get(("/".join(words), len(names)), {}), names


def _is_json(request: Request) -> bool:
    return (request.header("content-type") or "").partition(";")[0].strip().lower() == "application/json"


async def _respond(exchange: Exchange, status: int, failure: Failure, *headers: tuple[str, str]) -> None:
    """Answer with an error."""
    count_error(failure.code)
    _, body = failure_to_http(failure)
    await exchange.respond(status, [*_JSON, *headers], body)
