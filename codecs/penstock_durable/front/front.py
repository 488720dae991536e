"""The front of Durable Streams: each method of HTTP on the URL of a stream (protocol, section 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

import structlog
import trio

from penstock.core.back import Back
from penstock.core.clock import Clock, wall_clock
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.browsers import ANY_ORIGIN, browser_refusal, cors_headers, preflight_headers
from penstock.net.http.exchange import Exchange, Refetch, Request
from penstock.net.http.paced import whole_body
from penstock.net.http.preconditions import check_preconditions
from penstock.observe.metrics.clients import count_error
from penstock.routing.access.clients import admit
from penstock_durable.codec import (
    LiveMode,
    append_request,
    check_conditions,
    create_request,
    failure_to_status,
    read_request,
    spell_failure,
    spell_offset,
)
from penstock_durable.front.appends import AppendOutcome, AppendRefused, Appends, StreamClosed
from penstock_durable.front.catalog import DurableCatalog, KnownStream
from penstock_durable.front.creation import PreconditionFailed, StreamCreation
from penstock_durable.front.live import LiveReads
from penstock_durable.front.reads import Reads, position_headers, tail_of
from penstock_durable.front.settings import DurableSettings

__all__ = ["DurableFront"]

log = structlog.get_logger()

Headers = list[tuple[str, str]]

_PRECONDITIONS: Final = {"GET": ("if-none-match",), "PUT": ("if-match", "if-none-match")}
"""The preconditions that are evaluated, by method."""
_METHODS = "GET,HEAD,PUT,POST,DELETE"
_EXPOSED = ", ".join(
    (
        *("stream-next-offset", "stream-up-to-date", "stream-cursor", "stream-closed", "stream-ttl"),
        *("stream-expires-at", "stream-sse-data-encoding", "producer-epoch", "producer-seq"),
        *("producer-expected-seq", "producer-received-seq", "etag", "location"),
    )
)


class DurableFront:
    """Front that answers HTTP exchanges; `handle` is the handler for an HTTP server.

    `back` carries out what clients ask for, `own` what no client asks for: the table beside the streams, and expiry.
    """

    def __init__(self, back: Back, own: Back, settings: DurableSettings, clock: Clock = wall_clock) -> None:
        self._back = back
        self._settings = settings
        self._draining = Draining(settings.drain_grace_seconds)
        self._catalog = DurableCatalog(back, own, settings, clock)
        self._creation = StreamCreation(back, self._catalog, settings.names, clock)
        self._appends = Appends(back, self._catalog)
        self._reads = Reads(back, self._catalog, settings, self._draining, clock)
        self._events = LiveReads(back, self._catalog, settings, self._draining, clock)
        self._answers: dict[str, Callable[[Exchange, StreamRef], Awaitable[None]]] = {
            "GET": self._get,
            "HEAD": self._head,
            "PUT": self._put,
            "POST": self._post,
            "DELETE": self._delete,
        }

    def drain(self) -> None:
        """Begin to shut down: new requests are refused on HTTP/2, and reads that wait end after the grace time. A
        connection of HTTP/1.1 ends after the request that it has received, which its client may have sent before."""
        self._draining.grace_seconds = self._settings.drain_grace_seconds
        self._draining.begin()

    async def run(self) -> None:
        """Delete streams as they expire, until cancelled."""
        while True:
            await trio.sleep(self._settings.sweep_seconds)
            try:
                await self._catalog.sweep()
            except OperationFailed as error:
                log.warning("expiry failed", reason=str(error.failure))

    async def handle(self, exchange: Exchange) -> None:
        """ReadAnswer one exchange. Never raises for errors of a client."""
        request = exchange.request
        refusal = browser_refusal(request, self._settings.hosts, self._settings.cors_origins)
        handler = self._answers.get(request.method)
        try:
            if refusal is not None:
                raise fail(FailureCode.PERMISSION_DENIED, refusal)
            if request.method == "OPTIONS" and request.header("origin"):
                await self._respond(exchange, 204, preflight_headers(request))
            elif handler is None:
                await self._respond(exchange, 405, [("allow", _METHODS)])
            else:
                if self._draining.begun and request.http_version == "2":
                    raise OperationFailed(SHUTTING_DOWN)
                admit(request, self._settings.clients)
                check_preconditions(request, *_PRECONDITIONS.get(request.method, ()))
                check_conditions(request.method, (name for name, _ in request.headers), _parameters(request))
                await handler(exchange, self._settings.names.to_stream(request.path))
        except AppendRefused as error:
            await self._fail(exchange, error.failure, error.headers, status=error.status)
        except PreconditionFailed as error:
            await self._fail(exchange, error.failure, [], status=412)
        except StreamClosed as error:
            headers = [("stream-closed", "true"), ("stream-next-offset", spell_offset(error.next_seq))]
            await self._fail(exchange, error.failure, headers)
        except OperationFailed as error:
            await self._fail(exchange, error.failure, [])

    # ---- methods -----------------------------------------------------------------------------------------------------

    async def _put(self, exchange: Exchange, ref: StreamRef) -> None:
        request = exchange.request
        wanted = create_request(request.header)
        body = await self._body(exchange)
        stream, is_new = await self._creation.ensure(ref, wanted, request.header("stream-expires-at"), body)
        headers = [("content-type", stream.meta.content_type), ("stream-next-offset", await self._offset(stream))]
        if stream.closed:
            headers.append(("stream-closed", "true"))
        if is_new:
            headers.append(("location", f"{request.scheme}://{request.authority}{request.path}"))
        await self._respond(exchange, 201 if is_new else 200, headers)

    async def _post(self, exchange: Exchange, ref: StreamRef) -> None:
        request = append_request(exchange.request.header)
        outcome = await self._appends.append(ref, request, await self._body(exchange))
        await self._respond(exchange, 200 if outcome.new else 204, _outcome_headers(outcome))

    async def _get(self, exchange: Exchange, ref: StreamRef) -> None:
        request = exchange.request
        wanted = read_request(_parameters(request))
        stream = await self._catalog.find(ref)
        if wanted.live is LiveMode.SSE:
            await self._catalog.used(stream)
            await self._events.follow(stream, wanted, exchange, self._common(request))
            return
        answer = await self._reads.read(stream, wanted, request.header_values("if-none-match"), exchange)
        await self._catalog.used(stream)
        response = self._respond(exchange, answer.status, answer.headers, answer.body, answer.refetch)
        del answer  # not to be kept while it waits for the client
        await response

    async def _head(self, exchange: Exchange, ref: StreamRef) -> None:
        stream = await self._catalog.find(ref)
        meta = stream.meta
        headers = [("content-type", meta.content_type), ("cache-control", "no-store")]
        headers += position_headers(stream, await tail_of(self._back, stream), caught_up=stream.closed)
        if meta.ttl is not None:
            headers.append(("stream-ttl", str(meta.ttl)))
        if meta.expires_text is not None:
            headers.append(("stream-expires-at", meta.expires_text))
        await self._respond(exchange, 200, headers)

    async def _delete(self, exchange: Exchange, ref: StreamRef) -> None:
        async with self._catalog.alone(ref):
            await self._catalog.delete(await self._catalog.find(ref, locked=True))
        await self._respond(exchange, 204, [])

    # ---- parts of requests and answers -------------------------------------------------------------------------------

    async def _body(self, exchange: Exchange) -> bytes:
        coding = (exchange.request.header("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            raise fail(FailureCode.BAD_HEADER, f"content-encoding: {coding!r:.80} is not accepted here")
        settings = self._settings
        return await whole_body(exchange, settings.max_append_bytes, settings.body_seconds, FailureCode.LIMIT_EXCEEDED)

    async def _offset(self, stream: KnownStream) -> str:
        return spell_offset(await tail_of(self._back, stream))

    def _common(self, request: Request) -> Headers:
        """Return the headers of every answer (protocol, 10.7)."""
        anywhere = ANY_ORIGIN in self._settings.cors_origins
        return [
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "cross-origin" if anywhere else "same-origin"),
            *cors_headers(request, self._settings.cors_origins, _EXPOSED),
        ]

    def _respond(
        self, exchange: Exchange, status: int, headers: Headers, body: bytes = b"", refetch: Refetch | None = None
    ) -> Awaitable[None]:
        """Send a whole answer. This is no coroutine, which would keep the body (`Exchange.send`)."""
        return exchange.respond(status, [*headers, *self._common(exchange.request)], body, refetch=refetch)

    async def _fail(self, exchange: Exchange, failure: Failure, headers: Headers, *, status: int | None = None) -> None:
        count_error(failure.code)
        status = failure_to_status(failure) if status is None else status
        headers = [("content-type", "application/json"), ("cache-control", "no-store"), *headers]
        if status == 401:
            headers.append(("www-authenticate", "Bearer"))
        if isinstance(seconds := failure.details.get("retry_after"), float):
            headers.append(("retry-after", str(max(1, round(seconds)))))
        await self._respond(exchange, status, headers, spell_failure(failure))


def _outcome_headers(outcome: AppendOutcome) -> Headers:
    headers = [("stream-next-offset", spell_offset(outcome.next_seq))]
    if outcome.closed:
        headers.append(("stream-closed", "true"))
    if outcome.producer is not None:
        headers += [("producer-epoch", str(outcome.producer.epoch)), ("producer-seq", str(outcome.seq))]
    return headers


def _parameters(request: Request) -> list[tuple[str, str]]:
    """Return the decoded parameters. Raises BAD_QUERY."""
    try:
        return parse_qsl(request.query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise fail(FailureCode.BAD_QUERY, f"the query cannot be decoded: {error}") from None
