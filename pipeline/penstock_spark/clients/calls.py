"""Requests to one S2 server: how they name basin and stream, which connection they use, what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.model.limits import KIB, MIB
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.records import StreamRef
from penstock.wire.compression import Compression
from penstock.wire.http.events import ResponseHead
from penstock_s2.codec.errors import failure_from_http
from penstock_s2.codec.names import encode_path_segment
from penstock_spark.clients.endpoint import BASIN_LABEL, Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.http import HeaderList, HttpConnection
from penstock_spark.clients.patience import Patience
from penstock_spark.clients.transport import BlockingTransport

__all__ = ["JSON", "PROTOBUF", "Answer", "ServerRequests", "records_path", "reference", "stream_path"]

T = TypeVar("T")
Query = Mapping[str, object]

JSON: Final = "application/json"
PROTOBUF: Final = "application/protobuf"
_S2S: Final = "s2s/proto"
_STREAMS: Final = "/v1/streams"
_MAX_ANSWER: Final = 16 * MIB
"""Largest body of an answer, in bytes."""
_MAX_ERROR: Final = 64 * KIB
"""Most bytes read of the body of an error."""
_MAX_IDLE: Final = 2
"""Most idle connections kept for each host."""


def reference(stream: str) -> StreamRef:
    """Split `basin/stream`; the stream may contain slashes. Raises OperationFailed(INVALID) for an invalid name."""
    basin, slash, name = stream.partition("/")
    if not slash:
        raise fail(FailureCode.INVALID, f"{stream!r} is not a stream: a name is `basin/stream`")
    try:
        validate_basin_name(basin, FailureCode.INVALID)
        validate_stream_name(name, FailureCode.INVALID)
    except OperationFailed as error:
        raise fail(FailureCode.INVALID, f"{stream!r} is not a stream: {error.failure.message}") from None
    return StreamRef(basin, name)


def stream_path(stream: StreamRef) -> str:
    """Return the path of a stream. Its name is one encoded path segment, whatever characters it has."""
    return f"{_STREAMS}/{encode_path_segment(stream.stream)}"


def records_path(stream: StreamRef) -> str:
    """Return the path of a stream's records."""
    return f"{stream_path(stream)}/records"


class Answer(NamedTuple):
    """A complete answer that is not an error."""

    endpoint: Endpoint
    status: int
    body: bytes

    def read(self, decode: Callable[[bytes], T]) -> T:
        """Return the decoded body. Raises OperationFailed(OTHER) if it cannot be decoded."""
        try:
            return decode(self.body)
        except (RemoteProtocolError, OperationFailed) as error:
            raise fail(FailureCode.OTHER, f"{self.endpoint}: {error.failure.message}") from error


class ServerRequests:
    """Requests to one server, with its connections. Raises OperationFailed with the server's error, or as
    `BlockingTransport` does."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: dict[str, list[HttpConnection]] = {}
        self._lent: set[HttpConnection] = set()
        self._reached = False

    def patience(self) -> Patience:
        """Return a retry budget: less for a server that has never answered."""
        return Patience(self.endpoint, reached=self._reached)

    def close(self) -> None:
        """Close all connections, including those in use."""
        for connection in [*self._lent, *(idle_connection for some in self._idle.values() for idle_connection in some)]:
            connection.close()
        self._idle.clear()
        self._lent.clear()

    def ask(
        self,
        method: str,
        path: str,
        basin: str | None,
        *,
        query: Query | None = None,
        headers: HeaderList = (),
        body: bytes = b"",
    ) -> Answer:
        """Return the answer to a request, repeated while a retry can help. The request must be idempotent."""

        def once() -> Answer:
            with self.connection(basin) as connection:
                connection.request(method, _target(path, query), [*self._named(basin), *headers], body)
                head = connection.head()
                self._reached = True
                self.check(connection, head)
                return Answer(self.endpoint, head.status, self._whole(connection))

        return self.patience().over(once)

    def begin_read(self, connection: HttpConnection, stream: StreamRef, query: Query) -> None:
        """Request a read session; its frames follow."""
        headers = [*self._named(stream.basin), ("content-type", _S2S), *self._codings()]
        connection.request("GET", _target(records_path(stream), query), headers)
        self._begun(connection)

    def begin_append(self, connection: HttpConnection, stream: StreamRef) -> None:
        """Request an append session and wait for its head. No records are sent before."""
        headers = [*self._named(stream.basin), ("content-type", _S2S), *self._codings()]
        connection.open("POST", records_path(stream), headers)
        self._begun(connection)

    def _begun(self, connection: HttpConnection) -> None:
        head = connection.head()
        self._reached = True
        self.check(connection, head)
        content_type = dict(head.headers).get("content-type", "")
        if content_type.split(";")[0].strip().lower() != _S2S:
            raise fail(FailureCode.INVALID, f"{self.endpoint}: the server answers with {content_type!r}, not with S2S")

    @contextmanager
    def connection(self, basin: str | None) -> Iterator[HttpConnection]:
        """Lend a connection for one exchange. It is kept if the exchange completes, whatever its status, and closed
        otherwise."""
        host = self.host_of(basin)
        connection = self.take(host)
        try:
            yield connection
        finally:
            self.give_back(host, connection)

    def take(self, host: str) -> HttpConnection:
        """Return a connection to `host` for exclusive use; return it with `give_back`."""
        idle = self._idle.get(host, [])
        while idle:
            connection = idle.pop()
            if connection.reusable:
                break
            connection.close()
        else:
            port = self.endpoint.port
            connection = HttpConnection(
                BlockingTransport(self.endpoint, host),
                f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            )
        self._lent.add(connection)
        return connection

    def give_back(self, host: str, connection: HttpConnection) -> None:
        """Take a connection back: keep it if it can be reused, else close it."""
        self._lent.discard(connection)
        idle = self._idle.setdefault(host, [])
        if len(idle) < _MAX_IDLE and connection.reusable:
            idle.append(connection)
        else:
            connection.close()

    def check(self, connection: HttpConnection, head: ResponseHead) -> None:
        """Raise the failure of an error answer; its detail `retry_after` is the server's advice, in seconds."""
        if 200 <= head.status < 300:
            return
        body = bytearray()
        while len(body) < _MAX_ERROR and (piece := connection.receive()):
            body += piece
        failure = failure_from_http(head.status, bytes(body))
        retry_after = dict(head.headers).get("retry-after-ms", "")
        later = {"retry_after": min(int(retry_after[:9]), 60_000) / 1000} if retry_after.isdigit() else {}
        message = f"{self.endpoint}: {failure.message}"
        raise OperationFailed(Failure(failure.code, message, {**failure.details, **later}))

    # ---- internals -----------------------------------------------------------------------------------------------

    def _whole(self, connection: HttpConnection) -> bytes:
        body = bytearray()
        while piece := connection.receive():
            body += piece
            if len(body) > _MAX_ANSWER:
                raise lost(self.endpoint, f"an answer of more than {_MAX_ANSWER} bytes")
        return bytes(body)

    def _named(self, basin: str | None) -> list[tuple[str, str]]:
        named = [] if basin is None else [("s2-basin", basin)]
        token = self.endpoint.token
        return [*named, ("authorization", f"Bearer {token}")] if token else named

    def _codings(self) -> list[tuple[str, str]]:
        wanted = self.endpoint.compression
        return [] if wanted is Compression.NONE else [("accept-encoding", wanted.name.lower())]

    def host_of(self, basin: str | None) -> str:
        """Return the host of a basin. Raises OperationFailed(NOT_IMPLEMENTED) if only basins have hosts and `basin` is
        None."""
        host = self.endpoint.host
        if not host.startswith(BASIN_LABEL):
            return host
        if basin is None:
            message = f"{self.endpoint} has hosts of basins only, which do not know of each other: name the basin"
            raise fail(FailureCode.NOT_IMPLEMENTED, message)
        return f"{basin}.{host.removeprefix(BASIN_LABEL)}"


def _target(path: str, query: Query | None) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path
