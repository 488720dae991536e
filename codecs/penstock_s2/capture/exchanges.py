"""Requests of S2: endpoint, basin and stream as the S2 front finds them, and the readers of bodies (S2 fact sheet, 1).

Nothing is refused here: an illegal name is shown as it is, since it is the server that refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import (
    APPENDING,
    CODINGS,
    READING,
    BodyReader,
    HttpProtocol,
    SeenExchange,
    header,
)
from penstock.capture.pcapng import Sender
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock.wire.compression import Compression
from penstock.wire.http import RequestHead
from penstock_s2.capture.event_streams import EventStream
from penstock_s2.capture.sessions import AppendAcks, AppendInputs, GuessedAppendAcks, GuessedAppendInputs, ReadBatches
from penstock_s2.capture.unary import (
    ControlMessage,
    UnaryAppendAck,
    UnaryAppendInput,
    UnaryError,
    UnaryReadBatch,
    UnaryTail,
)
from penstock_s2.codec.media import Media, media_type
from penstock_s2.codec.names import decode_path_segment
from penstock_s2.codec.routes import S2Endpoint, match_route

__all__ = ["S2Exchanges"]

_BASIN_HOSTS: Final = (".localhost", ".b.s2.dev", ".b.aws.s2.dev")
"""Suffixes of hosts that begin with a basin: S2's own hosts, and the front's default."""
_OK: Final = 200
_UNARY = Callable[[MessageCollector, SeenExchange, Sender, Media, Compression], BodyReader]
_SESSIONS: Final[
    Mapping[tuple[S2Endpoint, Sender, Media], Callable[[MessageCollector, SeenExchange, Sender], BodyReader]]
] = {
    (S2Endpoint.APPEND, Sender.CLIENT, Media.S2S): AppendInputs,
    (S2Endpoint.APPEND, Sender.SERVER, Media.S2S): AppendAcks,
    (S2Endpoint.READ, Sender.SERVER, Media.S2S): ReadBatches,
    (S2Endpoint.READ, Sender.SERVER, Media.EVENT_STREAM): EventStream,
}
_MESSAGES: Final[Mapping[tuple[S2Endpoint, Sender, Media], _UNARY]] = {
    (S2Endpoint.APPEND, Sender.CLIENT, Media.JSON): UnaryAppendInput,
    (S2Endpoint.APPEND, Sender.CLIENT, Media.PROTOBUF): UnaryAppendInput,
    (S2Endpoint.APPEND, Sender.SERVER, Media.JSON): UnaryAppendAck,
    (S2Endpoint.APPEND, Sender.SERVER, Media.PROTOBUF): UnaryAppendAck,
    (S2Endpoint.READ, Sender.SERVER, Media.JSON): UnaryReadBatch,
    (S2Endpoint.READ, Sender.SERVER, Media.PROTOBUF): UnaryReadBatch,
    (S2Endpoint.CHECK_TAIL, Sender.SERVER, Media.JSON): UnaryTail,
}


class S2Exchanges(HttpProtocol):
    """Exchanges with S2; `subject` is the endpoint."""

    # An AppendAck has three fields that must all be there, of which a ReadBatch never has the third.
    guesses: Mapping[Sender, Mapping[Callable[[MessageCollector, SeenExchange, Sender], BodyReader], str]] = {
        Sender.CLIENT: {GuessedAppendInputs: APPENDING},
        Sender.SERVER: {GuessedAppendAcks: APPENDING, ReadBatches: READING},
    }

    def claims(self, exchange: SeenExchange, request: RequestHead, noted: Sequence[str]) -> bool:
        path, _, query = request.target.partition("?")
        endpoints, parameters = match_route(path)
        exchange.subject = endpoints.get("GET" if request.method == "HEAD" else request.method)
        if exchange.subject is None:
            return False
        name = _decoded(parameters.get("stream", ""))
        basin = _decoded(parameters["basin"]) if "basin" in parameters else _basin(request, query)
        if name and not basin:
            basin = next((note.removesuffix("/" + name) for note in noted if note.endswith("/" + name)), "")
        exchange.ref = StreamRef(basin, name)
        exchange.stream = str(exchange.ref) if name and basin else name
        return True

    def session(self, exchange: SeenExchange) -> str:
        media = media_type(header(exchange.response_headers if exchange.status else exchange.headers, "content-type"))
        if exchange.status not in (0, _OK):
            return ""
        if exchange.subject is S2Endpoint.APPEND and media is Media.S2S:
            return APPENDING
        if exchange.subject is S2Endpoint.READ and exchange.status and media in (Media.S2S, Media.EVENT_STREAM):
            return READING
        return ""

    def reader(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, content_type: str | None
    ) -> BodyReader | None:
        endpoint, media = exchange.subject, media_type(content_type)
        headers = exchange.headers if sender is Sender.CLIENT else exchange.response_headers
        coding = CODINGS.get((header(headers, "content-encoding") or "identity").strip().lower())
        if coding is None:
            return None
        failed = sender is Sender.SERVER and exchange.status >= 400
        session = None if failed or coding is not Compression.NONE else _SESSIONS.get((endpoint, sender, media))
        if session is not None:
            return session(collector, exchange, sender)
        unary = _unary(endpoint, sender, media, failed)
        return None if unary is None else unary(collector, exchange, sender, media, coding)


def _unary(endpoint: S2Endpoint, sender: Sender, media: Media, failed: bool) -> _UNARY | None:
    if failed:
        return UnaryError if media is Media.JSON else None
    kind = _MESSAGES.get((endpoint, sender, media))
    if kind is None and media is Media.JSON and endpoint not in (S2Endpoint.APPEND, S2Endpoint.READ, S2Endpoint.HEALTH):
        return ControlMessage
    return kind


def _basin(request: RequestHead, query: str) -> str:
    named = header(request.headers, "s2-basin")
    if named is not None:
        return named
    host = request.authority.rsplit(":", 1)[0].lower()
    for suffix in _BASIN_HOSTS:
        if host.endswith(suffix) and len(host) > len(suffix):
            return host[: -len(suffix)]
    if "s2-basin" not in query:
        return ""
    try:
        return parse_qs(query, max_num_fields=100).get("s2-basin", [""])[-1]
    except ValueError:
        return ""


def _decoded(segment: str) -> str:
    try:
        return decode_path_segment(segment)
    except OperationFailed:
        return segment
