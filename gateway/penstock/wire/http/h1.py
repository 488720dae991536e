"""HTTP/1.1 on h11, both roles, full duplex: a response may begin, and continue, while its request is still coming."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import h11
from h11._writers import ChunkedWriter

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Pull, Role
from penstock.wire.http.chunked import ChunkedBody, ChunkError
from penstock.wire.http.events import (
    NO_ERROR,
    NOISE_FROM,
    Body,
    Buffer,
    Continue,
    Credit,
    Data,
    End,
    Ended,
    GoAway,
    HttpCodec,
    HttpHeaders,
    HttpLimits,
    Noise,
    Outgoing,
    Preludes,
    Received,
    RequestHead,
    Reset,
    ResponseHead,
    body_forbidden,
    without_quotes,
)
from penstock.wire.http.h1_short import BodyParts, ShortExchange, ShortRequests, encoded, response_of, text_of
from penstock.wire.http.header_names import header_name
from penstock.wire.http.preludes import h1_framing, h1_prelude

__all__ = ["Http1Connection", "authority_and_target"]

_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)(.*)")
_OVER: Final = (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR, h11.SWITCHED_PROTOCOL)


class Http1Connection(HttpCodec):
    """One HTTP/1.1 connection, as server or as client. See `HttpCodec`.

    Exchanges follow each other; the next one begins by itself when both messages of the last are complete.
    """

    version = "1.1"
    given = 0

    def __init__(self, role: Role, limits: HttpLimits | None = None, scheme: str = "http") -> None:
        self._limits = limits or HttpLimits()
        self._role = role
        self._scheme = scheme
        self._h11 = self._fresh()
        # `_head_fits` counts up to 5/4 of the bytes of a head: a line such as `a:` as five.
        self._most_short = min(self._limits.max_short, self._limits.max_head * 4 // 5) if role is Role.SERVER else 0
        self._short_requests = ShortRequests()
        self._short: ShortExchange | None = None  # server: the exchange, while h11 has seen nothing of it
        self._chunked: ChunkedBody | None = None  # client: the body of the response, which h11 does not see
        self._end_delivered = False  # its End was delivered
        self._closes = False  # client: the request announced the end of the connection
        self._last = False  # client: the connection ends with this response
        self._exchange = 1
        self._method = ""
        self._asked: RequestHead | None = None  # the heads of the exchange, as far as they are known
        self._told: ResponseHead | None = None
        self._bodiless = False  # the response has no body, so `Body` is dropped: HEAD, 204, 304
        self._out: list[Buffer] = []
        self._error: RemoteProtocolError | None = None
        self._aborted = False
        self._going_away = False
        self._discarded = 0
        self._ended = False
        self.noise = 0
        """Number of unwanted pieces of body."""

    def _fresh(self) -> h11.Connection:
        role = h11.SERVER if self._role is Role.SERVER else h11.CLIENT
        return h11.Connection(role, max_incomplete_event_size=self._limits.max_head)

    # ---- in ------------------------------------------------------------------------------------------------------
    def receive(self, data: Buffer) -> None:
        """Take bytes from the peer; b"" means that the peer has finished sending."""
        if self._error is not None or self._aborted:
            return
        if self._most_short:
            self._next_cycle()
            if self._short is not None:
                self._leave_to_h11(self._short)
            elif 0 < len(data) <= self._most_short and self._idle:
                self._short = self._short_requests.begin(bytes(data), self._exchange, self._scheme)
                if self._short is not None:
                    return
        if self._chunked is None:
            self._h11.receive_data(data)  # type: ignore[arg-type]  # it appends to a bytearray: any buffer will do
        elif data:
            self._chunked.receive(data)
        else:
            self._chunked.finish()
            self._ended = self._last = True

    @property
    def keeps(self) -> bool:
        """See `HttpCodec`."""
        return self._chunked is not None

    def next_event(self) -> Received | Pull:
        """Return the next event. Raises RemoteProtocolError."""
        if self._error is not None:
            raise self._error
        if self._short is not None and not (self._going_away or self._aborted):
            return self._short.next_event() or NEED_DATA  # once it is over the next cycle waits for its first bytes
        try:
            for _ in range(NOISE_FROM):
                self._next_cycle()
                if self.closed:
                    return PAUSED
                if self._short is not None:
                    return self._short.next_event() or NEED_DATA
                if self._chunked is not None:
                    return self._next_of_chunked(self._chunked)
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    return NEED_DATA
                if event is h11.PAUSED:
                    return PAUSED
                received = self._received(event)
                if received is not None:
                    return received
                self.noise += 1
            return Noise()
        except h11.RemoteProtocolError as error:
            raise self._refuse(str(error), error.error_status_hint) from None
        except ChunkError as error:
            raise self._refuse(str(error), 400) from None

    @property
    def _idle(self) -> bool:
        """True between exchanges, before a byte of the next."""
        parser = self._h11
        return parser.our_state is h11.IDLE and parser.their_state is h11.IDLE and not parser._receive_buffer

    def _leave_to_h11(self, short: ShortExchange) -> None:
        """Repeat what was received and sent without h11, which goes on with the exchange."""
        self._short = None
        if short.begun:
            self._asked, self._told, self._method = short.head, short.response, short.head.method
        short.repeat(self._h11)

    def _next_cycle(self) -> None:
        if self._short is not None:
            if not self._short.over:
                return
            self._short = None
        elif self._h11.our_state is not h11.DONE:
            return
        elif self._chunked is not None and self._end_delivered and not self._last:
            self._h11 = self._fresh()
            if self._chunked.surplus:  # b"" would mean that the server has closed
                self._h11.receive_data(self._chunked.surplus)
            self._chunked = None
            self._end_delivered = False
        elif self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        else:
            return
        self._exchange += 1
        self._method = ""
        self._asked = self._told = None
        self._bodiless = False
        self._discarded = 0

    def _next_of_chunked(self, body: ChunkedBody) -> Received | Pull:
        piece = body.next()
        if piece is not None:
            return Data(self._exchange, piece, len(piece))
        if not body.ended:
            return NEED_DATA
        if self._end_delivered:
            return PAUSED
        self._end_delivered = True
        return End(self._exchange, body.trailers)

    def _received(self, event: Any) -> Received | None:
        if type(event) is h11.Data:
            if self._role is Role.SERVER and self._h11.our_state is h11.DONE:
                self._discard(len(event.data))
                return None
            return Data(self._exchange, bytes(event.data), len(event.data))
        if type(event) is h11.EndOfMessage:
            self._head_fits(event.headers.raw_items())
            return End(self._exchange, text_of(event.headers))
        if type(event) is h11.Request:
            return self._request(event)
        if type(event) is h11.Response:
            self._head_fits(event.headers.raw_items())
            self._take_over(event)
            self._told = ResponseHead(self._exchange, event.status_code, text_of(event.headers))
            return self._told
        if type(event) is h11.InformationalResponse:
            return Continue(self._exchange) if event.status_code == 100 else None
        if self._ended:
            self._aborted = True
            return None
        self._ended = True
        return Ended()

    def _take_over(self, event: h11.Response) -> None:
        """Take over a chunked body and the end of the connection from h11."""
        chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        if not chunked or body_forbidden(self._method, event.status_code):
            return
        self._chunked = ChunkedBody(self._limits.max_head)
        self._end_delivered = False
        self._last = self._closes or event.http_version < b"1.1" or _has_close(text_of(event.headers))
        surplus, self._ended = self._h11.trailing_data
        if surplus:
            self._chunked.receive(surplus)
        if self._ended:
            self._chunked.finish()
            self._last = True

    def _discard(self, length: int) -> None:
        self._discarded += length
        self._aborted = self._aborted or self._discarded > self._limits.max_discard

    def _request(self, event: h11.Request) -> RequestHead:
        self._method = header_name(event.method)
        self._head_fits([(b"", event.target), *event.headers.raw_items()])
        self._body_is_framed_once(event)
        headers = text_of(event.headers)
        authority, target = authority_and_target(event.target.decode("latin-1"), headers)
        version = header_name(event.http_version)
        waits = self._h11.they_are_waiting_for_100_continue
        self._asked = RequestHead(
            self._exchange, self._method, target, headers, authority, self._scheme, version, waits
        )
        return self._asked

    def _head_fits(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        # h11 checks its limit only while a head is incomplete: one that arrives in a single read would pass.
        if sum([len(name) + len(value) + 4 for name, value in items]) > self._limits.max_head:
            raise h11.RemoteProtocolError("head too long", error_status_hint=431)

    def _body_is_framed_once(self, event: h11.Request) -> None:
        # RFC 9112, 6.1: an intermediary may have seen another end of the body, and so another next request.
        names = {name for name, _ in event.headers}
        if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
            raise h11.RemoteProtocolError("Transfer-Encoding with Content-Length or in HTTP/1.0")

    def _refuse(self, message: str, status: int) -> RemoteProtocolError:
        code = FailureCode.LIMIT_EXCEEDED if status == 431 else FailureCode.BAD_FORMAT
        message = without_quotes(message)
        self._error = RemoteProtocolError(Failure(code, f"HTTP/1.1: {message}"))
        if self._role is Role.SERVER and self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = message.encode("latin-1", "replace")
            headers = [("content-type", "text/plain"), ("content-length", str(len(text))), ("connection", "close")]
            self._send_event(response_of(status, encoded(headers)))
            if self._method != "HEAD":
                self._send_event(h11.Data(data=text))
            self._send_event(h11.EndOfMessage())
        return self._error

    # ---- out -----------------------------------------------------------------------------------------------------
    def send(self, event: Outgoing) -> None:
        """Send `event`. Raises LocalProtocolError."""
        if isinstance(event, Credit) or self._error is not None:
            return  # not reading the socket is the only flow control
        if isinstance(event, GoAway):
            self._going_away = True
            self._aborted = self._aborted or event.code != NO_ERROR
            return
        if event.stream_id != self._exchange:
            if event.stream_id > self._exchange:
                raise LocalProtocolError(f"HTTP/1.1: exchange {event.stream_id} has not begun")
            return
        try:
            self._send_now(event)
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise LocalProtocolError(f"HTTP/1.1: {error}") from error

    def _send_now(self, event: RequestHead | ResponseHead | Continue | Body | End | Reset) -> None:
        if self._short is not None:
            written = None if self._going_away else self._short.answer(event)
            if written is not None:
                self._out += written
                return
            self._leave_to_h11(self._short)
        if type(event) is Body:
            size = sum(map(len, event.parts))
            if size and not self._bodiless:
                self._send_body(event.parts, size)
            if event.end:
                self._send_event(h11.EndOfMessage())
        elif type(event) is End:
            self._send_event(h11.EndOfMessage(headers=encoded(event.trailers)))
        elif type(event) is ResponseHead:
            self._respond(event)
        elif type(event) is RequestHead:
            self._method, self._asked = event.method, event
            self._closes = _has_close(event.headers)
            target = event.target.encode("latin-1")
            self._send_event(h11.Request(method=event.method, target=target, headers=encoded(_with_host(event))))
        elif type(event) is Continue:
            if self._h11.they_are_waiting_for_100_continue:
                self._send_event(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        else:
            self._aborted = True

    def _respond(self, event: ResponseHead) -> None:
        headers = encoded(event.headers)
        # A client that was not told to continue may leave its body out; the next bytes could be either.
        if self._going_away or self._h11.they_are_waiting_for_100_continue:
            headers.append((b"connection", b"close"))
        self._told = event
        self._bodiless = body_forbidden(self._method, event.status)
        self._send_event(response_of(event.status, headers))
        if event.end:
            self._send_event(h11.EndOfMessage())

    def framed(self, stream_id: int, piece: bytes) -> bytes | None:
        """Return a chunk to be written at once; see `HttpCodec`."""
        if self._out or stream_id != self._exchange or self._error is not None or self._aborted or self._bodiless:
            return None
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._short is None and self._sends_chunks else None

    @property
    def _sends_chunks(self) -> bool:
        return self._h11.our_state is h11.SEND_BODY and type(self._h11._writer) is ChunkedWriter

    def _send_body(self, parts: Sequence[Buffer], size: int) -> None:
        """Send a piece of a body: as a chunk without h11, whose state does not change by one."""
        if self._sends_chunks:
            self._out += (b"%x\r\n" % size, *parts, b"\r\n")
        else:
            self._send_event(h11.Data(data=BodyParts(parts, size)))  # type: ignore[arg-type]

    def _send_event(self, event: Any) -> None:
        parts: Sequence[Any] = self._h11.send_with_data_passthrough(event) or ()
        for part in parts:
            if type(part) is BodyParts:
                self._out.extend(part.parts)
            else:
                self._out.append(part)

    def output(self, room: int) -> list[Buffer]:  # noqa: ARG002 - one exchange at a time: the sender's wait bounds it
        """Return all bytes to write."""
        out, self._out = self._out, []
        return out

    @property
    def has_output(self) -> bool:
        """See `HttpCodec`."""
        return bool(self._out)

    def unsent(self, stream_id: int) -> int:  # noqa: ARG002
        """Return 0: there is no window to wait for."""
        return 0

    @property
    def held(self) -> int:
        """Always 0."""
        return 0

    def window(self, stream_id: int) -> int:  # noqa: ARG002
        """Return a number larger than any message."""
        return 2**63

    def new_stream(self) -> int:
        """Return the number of a client's next request. Raises LocalProtocolError while the last is unanswered."""
        self._next_cycle()
        if self._h11.our_state is not h11.IDLE:
            raise LocalProtocolError("HTTP/1.1: the previous exchange has not ended")
        return self._exchange

    @property
    def peer_streams(self) -> int:
        """Always 1."""
        return 1

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered."""
        if self._short is not None:
            return self._short.buffered
        body = self._chunked
        return len(self._h11._receive_buffer) if body is None else body.held + len(body.surplus)

    def preludes(self) -> Preludes | None:
        if self._short is not None:
            self._leave_to_h11(self._short)
        ours, theirs, body = self._h11.our_state, self._h11.their_state, self._chunked
        if self._error is not None or self._aborted or h11.SWITCHED_PROTOCOL in (ours, theirs):
            return None
        received = h1_framing(theirs, self._h11._reader if body is None else body)
        sent = h1_framing(ours, self._h11._writer)
        held = bytes(self._h11._receive_buffer) if body is None else body.surplus or body.half_line
        server = self._role is Role.SERVER
        framings = (received, sent) if server else (sent, received)
        try:
            request, response = map(h1_prelude, (self._asked, self._told), framings)
        except (TypeError, UnicodeEncodeError):
            return None
        parts = (request, response) if server else (response, request)
        return Preludes(*parts, held, sum(map(len, self._out)))

    @property
    def amid_answered(self) -> bool:
        """True while a request that has been answered is still being received."""
        return self._h11.our_state is h11.DONE and self._h11.their_state is h11.SEND_BODY

    @property
    def closed(self) -> bool:
        """True if the connection can be closed once the output is written."""
        if self._error is not None or self._aborted:
            return True
        if self._short is not None:
            return self._going_away and (self._short.over or not self._short.begun)
        ours, theirs = self._h11.our_state, self._h11.their_state
        if self._chunked is not None and self._end_delivered and self._last:
            return True
        # The response decides: once it is complete, nothing will read the rest of the request.
        if (ours if self._role is Role.SERVER else theirs) in _OVER or ours is h11.ERROR:
            return True
        return self._going_away and ours is h11.IDLE and theirs is h11.IDLE


def _has_close(headers: HttpHeaders) -> bool:
    """Return whether the connection is not to be used again (RFC 9112, 9.6)."""
    values = (value for name, value in headers if name.lower() == "connection")
    return any(token.strip().lower() == "close" for value in values for token in value.split(","))


def _with_host(event: RequestHead) -> list[tuple[str, str]]:
    named = any(name == "host" for name, _ in event.headers)
    return list(event.headers) if named else [("host", event.authority), *event.headers]


def authority_and_target(target: str, headers: HttpHeaders) -> tuple[str, str]:
    """Return authority, and path with query, of a request whose target may be a whole URI (RFC 9112, 3.2.2)."""
    if (absolute := _ABSOLUTE.fullmatch(target)) is None:
        return next((value for name, value in headers if name == "host"), ""), target
    authority, path = absolute.groups()
    return authority, path if path.startswith("/") else "/" + path
