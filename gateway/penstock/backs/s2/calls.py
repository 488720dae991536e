"""Requests to one S2 server: how they name their basin, and what its answers mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlencode

import trio

from penstock.backs.http.client import HttpClient, Response
from penstock.backs.http.stream import HttpStream
from penstock.backs.s2.settings import BasinStyle, S2BackSettings
from penstock.observe.context import TRACE
from penstock.observe.tracing import Attributes, SpanKind, span, tracer
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock_codecs.limits import KIB, MIB
from penstock_codecs.s2.errors import failure_from_http

__all__ = ["JSON", "PROTOBUF", "S2S", "Answer", "Calls", "failure_of", "refusal"]

T = TypeVar("T")

JSON: Final = "application/json"
PROTOBUF: Final = "application/protobuf"
S2S: Final = "s2s/proto"
_MAX_ANSWER: Final = 16 * MIB
"""Largest body of an answer. A batch has at most 1 MiB metered; of small headers it is some times that on the wire."""
_MAX_ERROR: Final = 64 * KIB
"""How much of the body of an error is read."""

HeaderList = Sequence[tuple[str, str]]
Query = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that is no error. `where`: the server, as messages name it."""

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
        """The value of a header (lower case); None where it is absent."""
        return self.response.header(name)

    def read(self, decode: Callable[[bytes], T]) -> T:
        """What the body says. Raises OperationFailed(OTHER) where it is nonsense."""
        try:
            return decode(self.body)
        except RemoteProtocolError as error:
            raise self.nonsense(error.failure.message) from None

    def nonsense(self, why: str) -> OperationFailed:
        """The server does not speak as it should: nobody knows what it has done."""
        return fail(FailureCode.OTHER, f"{self.where}: {why}")


class Calls:
    """See the module. All raise OperationFailed: what the server says, or what `Upstream` and `HttpClient` raise."""

    def __init__(self, http: HttpClient, settings: S2BackSettings) -> None:
        self._http = http
        self._settings = settings
        self.back = http.upstream.settings.name
        self.where = http.upstream.settings.where
        self.request_seconds = http.upstream.settings.request_seconds

    def token(self) -> str | None:
        """What is shown for the client that the current task works for."""
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
    ) -> Answer:
        """A request of the control plane."""
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
    ) -> Answer:
        """A whole exchange. Raises OperationFailed for errors that the server tells of, too."""
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
            raise OperationFailed(failure_of(response.status, response.body, response.header("retry-after-ms")))
        return Answer(response, self.where)

    def open(
        self, method: str, path: str, basin: str, headers: HeaderList, query: str
    ) -> AbstractAsyncContextManager[HttpStream]:
        """An exchange whose bodies are streamed; a POST has one."""
        return self._http.open(
            method,
            f"{path}?{query}" if query else path,
            [*self._basin(basin), *headers, *_trace()],
            body=method == "POST",
            authority=self._authority(basin),
        )

    def _said(self, path: str) -> Attributes:
        return {"penstock.back": self.back, "url.path": path[:200]}

    def lost(self, why: str) -> Failure:
        """A server that broke off, or breaks the protocol."""
        return Failure(FailureCode.UNAVAILABLE, f"{self.where}: {why}")

    def late(self, what: str, seconds: float) -> Failure:
        """A server that does not answer."""
        return Failure(FailureCode.UPSTREAM_TIMEOUT, f"{self.where}: no {what} in {seconds:g} s")

    def _basin(self, basin: str | None) -> list[tuple[str, str]]:
        return [] if basin is None else [("s2-basin", basin)]

    def _authority(self, basin: str | None) -> str | None:
        if basin is None or self._settings.basin_style is BasinStyle.HEADER:
            return None
        return f"{basin}.{self._settings.basin_authority or self._http.authority}"


def _trace() -> HeaderList:
    """What tells the server of the trace that the current task is part of."""
    trace = TRACE.get()
    return () if trace is None else trace.headers


async def refusal(stream: HttpStream, status: int, retry_after_ms: str | None) -> Failure:
    """The failure that an answer to a session means, whose body is still to come. What does not come in time is not
    waited for: the status says enough."""
    body = bytearray()
    with trio.move_on_after(stream.request_seconds):
        while len(body) < _MAX_ERROR and (piece := await stream.receive()):
            body += piece
    return failure_of(status, bytes(body), retry_after_ms)


def failure_of(status: int, body: bytes, retry_after_ms: str | None = None) -> Failure:
    """The failure that an answer means; detail `retry_after` is what it says about that, in seconds."""
    failure = failure_from_http(status, body)
    if retry_after_ms is None or not retry_after_ms.isdigit():
        return failure
    details = {**failure.details, "retry_after": min(int(retry_after_ms[:9]), 60_000) / 1000}
    return Failure(failure.code, failure.message, details)
