"""One request to the S2 front, with the ways it can be answered."""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio

from penstock.fronts.exchange import Exchange, HeaderList, Request
from penstock.fronts.s2 import parameters
from penstock.fronts.s2.paced import PacedBody
from penstock.fronts.s2.settings import S2Settings
from penstock.metrics.clients import count_told
from penstock_codecs.compression import Compression, DecompressionError, compress, decompress, most_compressed
from penstock_codecs.failures import Failure, FailureCode, fail
from penstock_codecs.limits import S2_COMPRESS_RESPONSE_FROM, S2_MAX_UNARY_BODY
from penstock_codecs.model import StreamRef
from penstock_codecs.s2.errors import failure_to_http
from penstock_codecs.s2.formats import Format
from penstock_codecs.s2.json_config import decode_stream_config_header
from penstock_codecs.s2s.frames import choose_compression
from penstock_codecs.sse.dialects import S2, Dialect
from penstock_codecs.streams import StreamConfig

__all__ = ["JSON", "PROTOBUF", "Call"]

JSON = "application/json"
PROTOBUF = "application/protobuf"
_EXPOSED_HEADERS = "s2-provision-result, retry-after-ms"
_CODINGS = {"gzip": Compression.GZIP, "zstd": Compression.ZSTD, "identity": Compression.NONE}
_SPELLING = {compression: name for name, compression in _CODINGS.items()}


class UnsupportedCoding(Exception):
    """The request body has a content-encoding that is neither gzip nor zstd: 415 (fact sheet 1.1)."""


class Call:
    """One request: what it says, and how it is answered."""

    def __init__(self, exchange: Exchange, path_parameters: Mapping[str, str], settings: S2Settings) -> None:
        self.exchange = exchange
        self.request: Request = exchange.request
        self.path_parameters = path_parameters
        self.settings = settings
        self.trusted = False
        """Whether the client has shown one of the listener's own tokens, which are good for everything."""

    # ---- what it says --------------------------------------------------------------------------------------------

    def basin(self) -> str:
        """The basin of the request; raises OperationFailed where there is none or its name is not legal."""
        return parameters.basin_of(self.request, self.path_parameters, self.settings)

    def stream(self) -> StreamRef:
        """The stream of the request; raises like `basin`."""
        return parameters.stream_of(self.request, self.path_parameters, self.settings)

    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return parameters.query_of(self.request)

    def create_config(self) -> StreamConfig | None:
        """Header `s2-stream-config`: the configuration of a stream that this request creates (fact sheet 1.5)."""
        value = self.request.header("s2-stream-config")
        return None if value is None else decode_stream_config_header(value)

    def data_format(self, dialect: Dialect = S2) -> Format:
        """Header `s2-format`: how JSON spells bytes."""
        return dialect.parse_format(self.request.header("s2-format"))

    def compression(self) -> Compression:
        """What the client wants its answer compressed with."""
        accepted = self.request.header_values("accept-encoding") if self.settings.compress else []
        return choose_compression(accepted)

    async def body(self, too_large: FailureCode) -> bytes:
        """The whole request body, decompressed, at most S2_MAX_UNARY_BODY bytes; else fails with `too_large`.

        Fails with REQUEST_TIMEOUT where it takes too long to come.
        """
        compression = self._body_compression()
        most = most_compressed(compression, S2_MAX_UNARY_BODY)
        held = bytearray()
        with PacedBody(self.exchange) as body, trio.move_on_after(self.settings.body_seconds) as patience:
            while piece := await body.receive(len(held)):
                if len(held) + len(piece) > most:
                    raise fail(too_large, f"Failed to buffer the request body: larger than {most} bytes")
                held += piece
        if patience.cancelled_caught:
            why = f"the request body took more than {self.settings.body_seconds:g} seconds"
            raise fail(FailureCode.REQUEST_TIMEOUT, why)
        try:
            return decompress(compression, held, S2_MAX_UNARY_BODY)
        except DecompressionError as error:
            raise fail(too_large, f"Failed to decompress the request body: {error}") from None

    def _body_compression(self) -> Compression:
        coding = (self.request.header("content-encoding") or "identity").strip().lower()
        if coding not in _CODINGS:
            raise UnsupportedCoding(coding)
        return _CODINGS[coding]

    # ---- how it is answered --------------------------------------------------------------------------------------

    async def respond(self, status: int, body: bytes, content_type: str, *headers: tuple[str, str]) -> None:
        """A whole answer, compressed if that is worth it and wanted (fact sheet 1.1)."""
        extra = [("content-type", content_type), *headers]
        if len(body) > S2_COMPRESS_RESPONSE_FROM and (wanted := self.compression()) is not Compression.NONE:
            body = compress(wanted, body)
            extra += [("content-encoding", _SPELLING[wanted]), ("vary", "accept-encoding")]
        await self.exchange.respond(status, [*extra, *self.cors()], body)

    async def respond_empty(self, status: int, *headers: tuple[str, str]) -> None:
        """An answer without a body."""
        await self.exchange.respond(status, [*headers, *self.cors()])

    async def respond_failure(self, failure: Failure) -> None:
        """An error, always JSON (fact sheet 6)."""
        count_told(failure.code)
        status, body = failure_to_http(failure)
        challenge = [("www-authenticate", "Bearer")] if status == 401 else []  # RFC 9110, 15.5.2
        challenge += _when_to_retry(failure)
        await self.exchange.respond(status, [("content-type", JSON), *challenge, *self.cors()], body)

    async def start(self, content_type: str) -> bool:
        """The head of a session: nothing on the way may transform or hold it back (fact sheet 2.2, 3).

        Gives whether a body is to follow; a HEAD is answered by this, and would otherwise wait as long as its session.
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
        """What a browser of another origin needs to read the answer; nothing where none asks."""
        origin = self.request.header("origin")
        if origin is None or not self.settings.cors:
            return []
        return [
            ("access-control-allow-origin", origin),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", _EXPOSED_HEADERS),
            ("vary", "origin"),
        ]

    def preflight(self) -> list[tuple[str, str]]:
        """The answer to a browser's OPTIONS: whatever it asks for is mirrored (fact sheet 1.1)."""
        asked = {
            "access-control-allow-methods": self.request.header("access-control-request-method"),
            "access-control-allow-headers": self.request.header("access-control-request-headers"),
        }
        return [
            *((name, value) for name, value in asked.items() if value is not None),
            ("access-control-max-age", "600"),
        ]


def _when_to_retry(failure: Failure) -> list[tuple[str, str]]:
    """Whole seconds for everybody (RFC 9110, 10.2.3), and milliseconds for S2's clients (fact sheet 1.5)."""
    seconds = failure.details.get("retry_after")
    if not isinstance(seconds, float):
        return []
    return [("retry-after", str(math.ceil(seconds))), ("retry-after-ms", str(math.ceil(1000 * seconds)))]
