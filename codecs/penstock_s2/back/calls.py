"""Requests to one S2 server: how they name their basin, and how its answers are interpreted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec
import trio

from penstock.core.identity import CLIENT
from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.model.limits import KIB, MIB
from penstock.net.http.client.client import HttpClient, Response
from penstock.net.http.client.connection import HttpStream
from penstock.observe.context import TRACE
from penstock.observe.tracing import Attributes, SpanKind, span, tracer
from penstock.wire.http import ResponseHead
from penstock_s2.back.settings import BasinStyle, S2BackSettings
from penstock_s2.codec.errors import failure_from_http

__all__ = ["JSON", "PROTOBUF", "S2S", "S2Answer", "S2Requests", "encryption_key", "failure_of"]

T = TypeVar("T")

JSON: Final = "application/json"
PROTOBUF: Final = "application/protobuf"
S2S: Final = "s2s/proto"
_MAX_ANSWER: Final = 16 * MIB
"""Largest body of an answer. A batch has at most 1 MiB metered; with many small headers it is several times that on the
wire."""
_MAX_ERROR: Final = 64 * KIB
"""Bytes of an error's body that are read."""
_TELLING: Final = frozenset({401, 403, 408, 429, 501, 502, 503, 504})
"""Statuses that are meaningful without an S2 error in the body, also from a proxy."""
_NOT_OURS: Final = frozenset({FailureCode.BAD_FRAME, FailureCode.BAD_JSON, FailureCode.BAD_PROTO})
"""Errors about the encoding of a request, which the gateway and not a client has written."""

HeaderList = Sequence[tuple[str, str]]
Query = Mapping[str, object]


class S2Answer(msgspec.Struct, frozen=True):
    """A complete, successful answer. `where` names the server in messages."""

    response: Response
    where: str

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    @property
    def body(self) -> bytes:
        """The body."""
        return self.response.body

    def header(self, name: str) -> str | None:
        """Return the value of a header (lower-case name); None if it is absent."""
        return self.response.header(name)

    def read(self, decode: Callable[[bytes], T]) -> T:
        """Return the decoded body. Raises OperationFailed(UPSTREAM_FAULT) if it is invalid."""
        try:
            return decode(self.body)
        except RemoteProtocolError as error:
            raise fail(FailureCode.UPSTREAM_FAULT, f"{self.where}: {error.failure.message}") from None


class S2Requests:
    """Requests to one S2 server.

    All raise OperationFailed: the server's error, or what `Upstream` and `HttpClient` raise.
    """

    def __init__(self, http: HttpClient, settings: S2BackSettings) -> None:
        self._http = http
        self._settings = settings
        self.back = http.upstream.settings.name
        self.where = http.upstream.settings.where
        self.request_seconds = http.upstream.settings.request_seconds

    def token(self) -> str | None:
        """Return the token presented for the current task's client; None for none."""
        return self._http.upstream.credentials.token()

    async def json(
        self,
        method: str,
        path: str,
        basin: str | None,
        body: bytes = b"",
        headers: HeaderList = (),
        *,
        query: Query | None = None,
    ) -> S2Answer:
        """Make a request of the control plane, with a body in JSON."""
        typed = [("content-type", JSON)] if body else []
        return await self.call(method, path, basin, headers=[*typed, *headers], body=body, query=query)

    async def call(
        self,
        method: str,
        path: str,
        basin: str | None,
        *,
        headers: HeaderList = (),
        body: bytes = b"",
        query: Query | None = None,
    ) -> S2Answer:
        """Make a request and return the whole answer. Raises OperationFailed also for the server's errors."""
        target = f"{path}?{urlencode(query)}" if query else path
        named = self._basin(basin)
        by = tracer()
        with nullcontext() if by is None else span(by, f"{method} {self.back}", SpanKind.CLIENT, self._said(path)):
            response = await self._http.request(
                method,
                target,
                [*named, *headers, *_trace()],
                body,
                authority=self._authority(basin),
                max_body=_MAX_ANSWER,
            )
        if not 200 <= response.status < 300:
            raise OperationFailed(
                failure_of(self.where, response.status, response.body, response.header("retry-after-ms"))
            )
        return S2Answer(response, self.where)

    def open(
        self, method: str, path: str, basin: str, headers: HeaderList, query: str
    ) -> AbstractAsyncContextManager[HttpStream]:
        """Open an exchange with streamed bodies; only a POST has a request body."""
        return self._http.open(
            method,
            f"{path}?{query}" if query else path,
            [*self._basin(basin), *headers, *_trace()],
            body=method == "POST",
            authority=self._authority(basin),
        )

    def _said(self, path: str) -> Attributes:
        return {"penstock.back": self.back, "url.path": path[:200]}

    def lost(self, reason: str) -> Failure:
        """Return the failure for a server that closed the connection early."""
        return Failure(FailureCode.UNAVAILABLE, f"{self.where}: {reason}")

    def broke(self, reason: str) -> Failure:
        """Return the failure for a server that violates the protocol."""
        return _broke(self.where, reason)

    def check_media(self, head: ResponseHead, media: str) -> None:
        """Raise OperationFailed(UPSTREAM_FAULT) if a session's answer has another media type; it may have none."""
        content_type = _header(head, "content-type")
        if content_type is not None and content_type.partition(";")[0].strip().lower() != media:
            raise OperationFailed(self.broke(f"it answers with content-type {content_type!r:.80}, not {media}"))

    async def refusal(self, stream: HttpStream, head: ResponseHead) -> Failure:
        """Return the failure that the answer to a session means.

        Its body is read until the request's deadline; then the status must suffice.
        """
        body = bytearray()
        with trio.move_on_after(stream.request_seconds):
            while len(body) < _MAX_ERROR and (piece := await stream.receive()):
                body += piece
        return failure_of(self.where, head.status, bytes(body), _header(head, "retry-after-ms"))

    def _basin(self, basin: str | None) -> list[tuple[str, str]]:
        return [] if basin is None else [("s2-basin", basin)]

    def _authority(self, basin: str | None) -> str | None:
        if basin is None or self._settings.basin_style is BasinStyle.HEADER:
            return None
        return f"{basin}.{self._settings.basin_authority or self._http.authority}"


def encryption_key() -> HeaderList:
    """Return the header with the current client's key, for requests for records; none without a key."""
    key = CLIENT.get().encryption_key
    return () if key is None else [("s2-encryption-key", key.text)]


def _trace() -> HeaderList:
    """Return the headers that propagate the current task's trace."""
    trace = TRACE.get()
    return () if trace is None else trace.headers


def _header(head: ResponseHead, name: str) -> str | None:
    return next((value for key, value in head.headers if key == name), None)


def failure_of(where: str, status: int, body: bytes, retry_after_ms: str | None = None) -> Failure:
    """Return the failure that an answer means, with its Retry-After in seconds as detail `retry_after`.

    An answer without an S2 error (a redirect, a page), or one that calls the gateway's request malformed, is the
    server's fault and not a client's.
    """
    failure = failure_from_http(status, body)
    details = dict(failure.details)
    if "status" in details and status not in _TELLING:
        failure = _broke(where, f"its answer is not an error of S2: {failure.message}")
    elif "status" in details:
        failure = Failure(failure.code, f"{where}: {failure.message}")
    elif failure.code in _NOT_OURS:
        failure = _broke(where, f"it cannot read the gateway's request: {failure.message}")
    if retry_after_ms is not None and retry_after_ms.isdigit():
        details["retry_after"] = min(int(retry_after_ms[:9]), 60_000) / 1000
    return Failure(failure.code, failure.message, details)


def _broke(where: str, reason: str) -> Failure:
    return Failure(FailureCode.UPSTREAM_FAULT, f"{where}: {reason}")
