"""One blocking connection to a server of Durable Streams: a request, then its answer (protocol, section 5)."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from penstock_codecs.durable import PositionAnswer, failure_of_answer, position_answer, read_query
from penstock_codecs.durable.requests import Header
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock_codecs.http.events import ResponseHead
from penstock_codecs.limits import KIB
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.http import HeaderList, HttpConnection
from penstock_spark.clients.pool import PooledConnection
from penstock_spark.clients.transport import BlockingTransport

__all__ = ["DurableAnswer", "DurableConnection"]

_PREFIX: Final = "/v1/stream/"
"""The path of a stream's URL, before its name."""
_MAX_BODY: Final = 64 * KIB
"""Largest body of an answer that holds no content, in bytes."""


class DurableAnswer(NamedTuple):
    """A whole answer, also one that is an error."""

    status: int
    header: Header
    body: bytes


class DurableConnection(PooledConnection):
    """See `pool.PooledConnection`. Raises OperationFailed: the server's error (`failure_of_answer`), or UNAVAILABLE if
    it goes away or breaks the protocol. A stream's name may contain slashes, and is UTF-8."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http = HttpConnection(BlockingTransport(endpoint, alpn=("http/1.1",)), endpoint.authority)

    @property
    def clean(self) -> bool:
        return self._http.reusable

    def close(self) -> None:
        self._http.close()

    def head(self, stream: str) -> PositionAnswer:
        """Return the stream's tail and content type."""
        try:
            response = self.ask("HEAD", stream)
        except OperationFailed as error:
            raise _missing(error) from None
        return self._position(response.header)

    def read(self, stream: str, offset: str) -> PositionAnswer:
        """Ask for the content from an offset on; `receive` returns it."""
        head = self._send("GET", f"{_path(stream)}?{read_query(offset)}", [("accept-encoding", "identity")], b"")
        header = dict(reversed(head.headers)).get
        if head.status != 200:
            raise self.failed(DurableAnswer(head.status, header, self._body()))
        return self._position(header)

    def receive(self) -> bytes:
        """Return the next bytes of the content; b"" at the answer's end."""
        return self._http.receive() or b""

    def ask(self, method: str, stream: str, headers: HeaderList = (), body: bytes = b"") -> DurableAnswer:
        """Return the answer to another request, if it succeeded."""
        response = self.try_to(method, stream, headers, body)
        if not 200 <= response.status < 300:
            raise self.failed(response)
        return response

    def try_to(self, method: str, stream: str, headers: HeaderList = (), body: bytes = b"") -> DurableAnswer:
        """Return the answer to another request, whatever its status."""
        head = self._send(method, _path(stream), headers, body)
        return DurableAnswer(head.status, dict(reversed(head.headers)).get, self._body())

    def failed(self, response: DurableAnswer) -> OperationFailed:
        """Return the failure that an answer means."""
        failure = failure_of_answer(response.status, response.header, response.body)
        refused = failure.code is FailureCode.UPSTREAM_FAULT and 400 <= response.status < 500
        code = FailureCode.INVALID if refused else failure.code
        return OperationFailed(Failure(code, f"{self._endpoint}: {failure.message}", failure.details))

    # ---- internals -----------------------------------------------------------------------------------------------

    def _send(self, method: str, target: str, headers: HeaderList, body: bytes) -> ResponseHead:
        token = self._endpoint.token
        shown = [("authorization", f"Bearer {token}")] if token else []
        self._http.request(method, target, [*shown, *headers], body)
        return self._http.head()

    def _body(self) -> bytes:
        body = bytearray()
        while piece := self._http.receive():
            body += piece
            if len(body) > _MAX_BODY:
                self.close()
                raise lost(self._endpoint, f"an answer of more than {_MAX_BODY} bytes")
        return bytes(body)

    def _position(self, header: Header) -> PositionAnswer:
        try:
            return position_answer(header)
        except RemoteProtocolError as error:
            self.close()
            raise lost(self._endpoint, error.failure.message) from None


def _missing(error: OperationFailed) -> OperationFailed:
    """Return STREAM_NOT_FOUND also for a stream that was deleted and has forks (410)."""
    if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
        return error
    return OperationFailed(Failure(FailureCode.STREAM_NOT_FOUND, error.failure.message))


def _path(stream: str) -> str:
    return _PREFIX + quote(stream)
