"""Choose the reader of a body by endpoint, method, status and content-type, as the S2 front and its clients do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue.http.calls import CallMessage, method_of
from penstock_analysis.dialogue.http.event_streams import EventStream
from penstock_analysis.dialogue.http.exchange import APPENDING, READING, Exchange
from penstock_analysis.dialogue.http.readers import Reader, Sizes
from penstock_analysis.dialogue.http.sessions import Acknowledgements, Batches, Inputs
from penstock_analysis.dialogue.http.targets import header
from penstock_analysis.dialogue.http.telling import Teller
from penstock_analysis.dialogue.http.unary import CODINGS, Acknowledgement, Batch, Control, Error, Input, Tail
from penstock_codecs.compression import Compression
from penstock_codecs.grpc import accepts_content_type
from penstock_codecs.http import Headers
from penstock_codecs.s2.media import Media, media_type
from penstock_codecs.s2.routes import Endpoint

__all__ = ["request_reader", "response_reader", "session_of"]

_OK: Final = 200
_UNARY = Callable[[Teller, Exchange, Sender, Media, Compression], Reader]
_SESSIONS: Final[Mapping[tuple[Endpoint, Sender, Media], Callable[[Teller, Exchange, Sender], Reader]]] = {
    (Endpoint.APPEND, Sender.CLIENT, Media.S2S): Inputs,
    (Endpoint.APPEND, Sender.SERVER, Media.S2S): Acknowledgements,
    (Endpoint.READ, Sender.SERVER, Media.S2S): Batches,
    (Endpoint.READ, Sender.SERVER, Media.EVENT_STREAM): EventStream,
}
_MESSAGES: Final[Mapping[tuple[Endpoint, Sender, Media], _UNARY]] = {
    (Endpoint.APPEND, Sender.CLIENT, Media.JSON): Input,
    (Endpoint.APPEND, Sender.CLIENT, Media.PROTOBUF): Input,
    (Endpoint.APPEND, Sender.SERVER, Media.JSON): Acknowledgement,
    (Endpoint.APPEND, Sender.SERVER, Media.PROTOBUF): Acknowledgement,
    (Endpoint.READ, Sender.SERVER, Media.JSON): Batch,
    (Endpoint.READ, Sender.SERVER, Media.PROTOBUF): Batch,
    (Endpoint.CHECK_TAIL, Sender.SERVER, Media.JSON): Tail,
}


def session_of(exchange: Exchange) -> str:
    """Return the kind of session of the exchange, as far as its heads reveal it, or "" for none."""
    said = exchange.response_headers if exchange.status else exchange.headers
    media = media_type(header(said, "content-type"))
    if exchange.status not in (0, _OK):
        return ""
    if exchange.target.endpoint is Endpoint.APPEND and media is Media.S2S:
        return APPENDING
    if exchange.target.endpoint is Endpoint.READ and exchange.status and media in (Media.S2S, Media.EVENT_STREAM):
        return READING
    return ""


def request_reader(teller: Teller, exchange: Exchange) -> Reader:
    """Return the reader of a request's body."""
    return _reader(teller, exchange, Sender.CLIENT, exchange.headers)


def response_reader(teller: Teller, exchange: Exchange) -> Reader:
    """Return the reader of a response's body."""
    return _reader(teller, exchange, Sender.SERVER, exchange.response_headers)


def _reader(teller: Teller, exchange: Exchange, sender: Sender, headers: Headers) -> Reader:
    content_type = header(headers, "content-type")
    method = method_of(exchange.request.target) if exchange.request is not None else None
    if method is not None and accepts_content_type(content_type):
        return CallMessage(teller, exchange, sender, method)
    endpoint, media = exchange.target.endpoint, media_type(content_type)
    coding = CODINGS.get((header(headers, "content-encoding") or "identity").strip().lower())
    if endpoint is not None and coding is not None:
        failed = sender is Sender.SERVER and exchange.status >= 400
        session = None if failed or coding is not Compression.NONE else _SESSIONS.get((endpoint, sender, media))
        if session is not None:
            return session(teller, exchange, sender)
        unary = _unary(endpoint, sender, media, failed)
        if unary is not None:
            return unary(teller, exchange, sender, media, coding)
    return Sizes(teller, exchange, sender, content_type or "")


def _unary(endpoint: Endpoint, sender: Sender, media: Media, failed: bool) -> _UNARY | None:
    if failed:
        return Error if media is Media.JSON else None
    found = _MESSAGES.get((endpoint, sender, media))
    if found is None and media is Media.JSON and endpoint not in (Endpoint.APPEND, Endpoint.READ, Endpoint.HEALTH):
        return Control
    return found
