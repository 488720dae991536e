"""One request to the S2 front, and the ways to answer it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.failures import Failure, FailureCode, fail
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.http.browsers import cors_headers
from penstock.net.http.exchange import Exchange, HeaderList, Request
from penstock.net.http.paced import whole_body
from penstock.observe.metrics.clients import count_error
from penstock.wire.compression import Compression, DecompressionError, compress, decompress, most_compressed
from penstock.wire.http_failures import failure_to_http
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.json_config import decode_stream_config_header
from penstock_s2.codec.limits import S2_COMPRESS_RESPONSE_FROM, S2_MAX_ENCRYPTION_KEY, S2_MAX_UNARY_BODY
from penstock_s2.codec.names import invalid_header
from penstock_s2.codec.s2s.frames import choose_compression
from penstock_s2.codec.sse.dialects import S2, SseDialect
from penstock_s2.front import parameters
from penstock_s2.front.settings import S2Settings

__all__ = ["JSON", "PROTOBUF", "S2Call"]

JSON = "application/json"
PROTOBUF = "application/protobuf"
_EXPOSED_HEADERS = "s2-provision-result, retry-after-ms"
_CODINGS = {"gzip": Compression.GZIP, "zstd": Compression.ZSTD, "identity": Compression.NONE}
_SPELLING = {compression: name for name, compression in _CODINGS.items()}


class UnsupportedCoding(Exception):
    """The request body has a content-encoding that is neither gzip nor zstd: 415 (fact sheet 1.1)."""


class S2Call:
    """One request: its parameters, and the ways to answer it."""

    __slots__ = ("exchange", "path_parameters", "request", "settings", "trusted")

    def __init__(self, exchange: Exchange, path_parameters: Mapping[str, str], settings: S2Settings) -> None:
        self.exchange = exchange
        self.request: Request = exchange.request
        self.path_parameters = path_parameters
        self.settings = settings
        self.trusted = False
        """True if the client has presented one of the listener's own tokens, which allow everything."""

    # ---- the request ---------------------------------------------------------------------------------------------

    def basin(self) -> str:
        """Return the request's basin. Raises OperationFailed if there is none or its name is invalid."""
        return parameters.basin_of(self.request, self.path_parameters, self.settings)

    def stream(self) -> StreamRef:
        """Return the request's stream. Raises like `basin`."""
        return parameters.stream_of(self.request, self.path_parameters, self.settings)

    def query(self) -> dict[str, str]:
        """Return the query's parameters."""
        return parameters.query_of(self.request)

    def create_config(self) -> StreamConfig | None:
        """Return the configuration for a stream that this request creates (fact sheet 1.5).

        It is header `s2-stream-config`; None if it is absent.
        """
        value = self.request.header("s2-stream-config")
        return None if value is None else decode_stream_config_header(value)

    def present_key(self) -> None:
        """Set the client's encryption key, from header `s2-encryption-key`; a plain stream ignores it.

        Raises BAD_HEADER if it has an impossible length.
        """
        value = self.request.header("s2-encryption-key")
        if value is not None:
            text = value.strip()
            if not 0 < len(text) <= S2_MAX_ENCRYPTION_KEY:
                reason = f"invalid encryption key: key material length {len(text)} is out of range"
                raise invalid_header("s2-encryption-key", reason)
            CLIENT.set(replace(CLIENT.get(), encryption_key=EncryptionKey(text)))

    def data_format(self, dialect: SseDialect = S2) -> BytesFormat:
        """Return the encoding of bytes in JSON, from header `s2-format`."""
        return dialect.parse_format(self.request.header("s2-format"))

    def compression(self) -> Compression:
        """Return the compression for the answer, from header `accept-encoding`."""
        accepted = self.request.header_values("accept-encoding") if self.settings.compress else []
        return choose_compression(accepted)

    async def body(self, too_large: FailureCode) -> bytes:
        """Return the whole request body, decompressed. Fails with `too_large` above S2_MAX_UNARY_BODY bytes.

        Fails with REQUEST_TIMEOUT if it takes more than `body_seconds` to arrive.
        """
        compression = self._body_compression()
        most = most_compressed(compression, S2_MAX_UNARY_BODY)
        sent = await whole_body(self.exchange, most, self.settings.body_seconds, too_large)
        try:
            return decompress(compression, sent, S2_MAX_UNARY_BODY)
        except DecompressionError as error:
            raise fail(too_large, f"Failed to decompress the request body: {error}") from None

    def _body_compression(self) -> Compression:
        coding = self.request.header("content-encoding")
        coding = "identity" if coding is None else coding.strip().lower()
        if coding not in _CODINGS:
            raise UnsupportedCoding(coding)
        return _CODINGS[coding]

    # ---- the answer ----------------------------------------------------------------------------------------------

    def respond(
        self,
        status: int,
        body: bytes,
        content_type: str,
        *headers: tuple[str, str],
        reproduce: Callable[[], Awaitable[bytes]] | None = None,
    ) -> Awaitable[None]:
        """Send a whole answer, compressed if it is large enough and the client accepts it (fact sheet 1.1).

        `reproduce` makes the same body again (`Exchange.send`); this is no coroutine, which would keep the body.
        """
        extra = [("content-type", content_type), *headers]
        compression = self.compression() if len(body) > S2_COMPRESS_RESPONSE_FROM else Compression.NONE
        if compression is not Compression.NONE:
            body = compress(compression, body)
            extra += [("content-encoding", _SPELLING[compression]), ("vary", "accept-encoding")]

        async def refetch() -> list[bytes]:
            assert reproduce is not None, "the answer can be reproduced"
            again = await reproduce()
            return [again if compression is Compression.NONE else compress(compression, again)]

        headers_sent = [*extra, *self.cors()]
        return self.exchange.respond(status, headers_sent, body, refetch=None if reproduce is None else refetch)

    async def respond_empty(self, status: int, *headers: tuple[str, str]) -> None:
        """Send an answer without a body."""
        await self.exchange.respond(status, [*headers, *self.cors()])

    async def respond_failure(self, failure: Failure) -> None:
        """Send an error, always in JSON (fact sheet 6)."""
        count_error(failure.code)
        status, body = failure_to_http(failure)
        challenge = [("www-authenticate", "Bearer")] if status == 401 else []  # RFC 9110, 15.5.2
        challenge += _when_to_retry(failure)
        await self.exchange.respond(status, [("content-type", JSON), *challenge, *self.cors()], body)

    async def start(self, content_type: str) -> bool:
        """Send the head of a session, which forbids proxies to transform or buffer it (fact sheet 2.2, 3).

        Returns whether a body is to follow: a HEAD is complete with this, and would otherwise wait as long as its
        session.
        """
        headers: HeaderList = [
            ("content-type", content_type),
            ("cache-control", "no-cache, no-transform"),
            ("x-accel-buffering", "no"),
            *self.cors(),
        ]
        await self.exchange.start(200, headers)
        if self.request.method != "HEAD":
            return True
        await self.exchange.finish()
        return False

    def cors(self) -> list[tuple[str, str]]:
        """Return the headers that let a page of an allowed origin read the answer; none for other requests."""
        return cors_headers(self.request, self.settings.cors_origins, _EXPOSED_HEADERS)


def _when_to_retry(failure: Failure) -> list[tuple[str, str]]:
    """Return Retry-After in whole seconds for all clients (RFC 9110, 10.2.3) and in ms for S2's (fact sheet 1.5)."""
    seconds = failure.details.get("retry_after")
    if not isinstance(seconds, float):
        return []
    return [("retry-after", str(math.ceil(seconds))), ("retry-after-ms", str(math.ceil(1000 * seconds)))]
