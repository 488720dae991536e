"""Exchanges of one connection of either HTTP version: heads become messages, bodies go to their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from penstock.capture.dialogue.http.appends import PendingAppendLimit, PendingAppends
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import (
    BodyReader,
    HttpProtocol,
    SeenExchange,
    SilentReader,
    SizeReader,
    header,
)
from penstock.capture.dialogue.http.mid_body import MidBodyReader
from penstock.capture.dialogue.messages import SeenRecord
from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import plugins
from penstock.wire.grpc import error_in
from penstock.wire.http import End, HttpHeaders, RequestHead, ResponseHead
from penstock.wire.http.observer.faults import HttpFault, TimedRange

__all__ = ["MAX_EXCHANGES", "SeenExchanges", "claimed_by", "http_protocols", "stream_asked_for"]

MAX_EXCHANGES: Final = 1000
"""Most exchanges that are followed at once."""

_CANCEL: Final = "CANCEL"
"""Error code of a client that needs no more of a response (RFC 9113, 7); some end every session with it."""
_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}


class SeenExchanges:
    """Receiver of the parts that an `HttpDecoder` finds. Parts of unknown exchanges are ignored."""

    def __init__(self, collector: MessageCollector) -> None:
        self._collector = collector
        self._room = PendingAppendLimit()
        self._exchanges: dict[int, SeenExchange] = {}
        self._readers: dict[tuple[int, Sender], BodyReader] = {}
        self._too_many_reported = False
        self.client_left = False
        """True if the client ended the connection, or its side of it, before the server did."""
        self.noted_streams: list[str] = []
        """Streams that the gateway knew, for requests that name no basin."""

    # ---- heads -------------------------------------------------------------------------------------------------------
    def request(self, head: RequestHead, span: TimedRange, end: bool) -> None:
        """Handle the head of a request; with `end`, the whole request."""
        exchange = self._open(head.stream_id, span)
        if exchange is None:
            return
        exchange.request = head
        exchange.request_over = end
        exchange.asked_ns = span.end_ns
        protocols = http_protocols(self._collector.conversation.protocol)
        exchange.protocol = next(
            (protocol for protocol in protocols if protocol.claims(exchange, head, self.noted_streams)), None
        )
        exchange.appends.stream = exchange.stream
        exchange.session = _session_of(exchange)
        fields = {"target": head.target, "authority": head.authority, "version": head.version}
        self._report(Sender.CLIENT, span, head.method, exchange, fields | _shown(head.headers), event=head)
        if exchange.protocol is not None:
            exchange.protocol.asked(self._collector, exchange, span)
        if not end:
            self._readers[exchange.number, Sender.CLIENT] = _reader(self._collector, exchange, Sender.CLIENT)

    def unasked(self, number: int, span: TimedRange) -> None:
        """Handle a response, begun or promised, without a request: one that could not be read, or a push."""
        exchange = self._open(number, span)
        if exchange is not None:
            exchange.request_over = True

    def interim(self, head: ResponseHead, span: TimedRange) -> None:
        """Handle an interim response: 100 Continue and the like."""
        exchange = self._exchanges.get(head.stream_id)
        if exchange is not None:
            self._report(Sender.SERVER, span, str(head.status), exchange, _shown(head.headers), event=head)

    def response(self, head: ResponseHead, span: TimedRange, end: bool) -> None:
        """Handle the head of a response; with `end`, the whole response."""
        exchange = self._exchanges.get(head.stream_id)
        if exchange is None:
            return
        exchange.status = head.status
        exchange.response_headers = head.headers
        exchange.session = _session_of(exchange)
        exchange.response_over = end
        failure = _failure(head, end)
        asked_ns, protocol = exchange.asked_ns, exchange.protocol
        settled = end and not (protocol is not None and protocol.settles_by_head and 200 <= head.status < 300)
        self._report(
            Sender.SERVER,
            span,
            str(head.status),
            exchange,
            _shown(head.headers),
            records=exchange.appends.left(failure) if settled else (),
            failure=failure,
            event=head,
            answers=None if asked_ns is None else span.end_ns - asked_ns,
        )
        if protocol is not None:
            protocol.answered(self._collector, exchange, span)
        if end:
            self._forget_if_over(exchange)
        else:
            self._readers[exchange.number, Sender.SERVER] = _reader(self._collector, exchange, Sender.SERVER)

    # ---- bodies ------------------------------------------------------------------------------------------------------
    def data(self, number: int, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        """Handle a piece of body at `offset` of the side's bytes."""
        reader = self._readers.get((number, sender))
        if reader is None or not data:
            return
        self._exchanges[number].body_bytes[sender] += len(data)
        if sender is Sender.CLIENT:
            self._exchanges[number].asked_ns = time_ns
        try:
            reader.receive(data, offset, time_ns)
        except HttpFault as fault:
            self.broken(number, sender, fault, time_ns)

    def ended(self, number: int, sender: Sender, span: TimedRange, trailers: HttpHeaders) -> None:
        """Handle the end of a message. `span`: the bytes that ended it."""
        exchange = self._exchanges.get(number)
        reader = self._readers.pop((number, sender), None)
        if exchange is None:
            return
        if sender is Sender.CLIENT:
            exchange.request_over, exchange.asked_ns = True, span.end_ns
        else:
            exchange.response_over = True
        before = self._collector.count
        self._collector.body_bytes = exchange.body_bytes[sender]
        try:
            if reader is not None:
                reader.finish(span)
        except HttpFault as fault:
            self._collector.fault(sender, span.end_ns, fault, exchange=number)
        left = exchange.appends.left() if exchange.response_over else ()
        silent = exchange.over and self._collector.count == before
        if trailers or left or silent or (reader is not None and reader.session):
            failure = _call_failure(trailers) if trailers else ""
            kind = "trailers" if trailers else "END"
            event = End(number, trailers)
            self._report(sender, span, kind, exchange, _shown(trailers), records=left, failure=failure, event=event)
        self._collector.body_bytes = None
        self._forget_if_over(exchange)

    def reset(self, number: int, sender: Sender, span: TimedRange, code: str) -> None:
        """Handle the reset of an exchange by a side. `code`: the reason, "" if that is not a failure."""
        exchange = self._exchanges.get(number)
        if exchange is None:
            self._collector.add(sender, span, "http", "RST_STREAM", exchange=number, failure=code)
            return
        exchange.reset = True
        for side in Sender:
            self._give_up(number, side)
        left = exchange.appends.left()
        failure = "" if sender is Sender.CLIENT and code == _CANCEL else code
        self._report(sender, span, "RST_STREAM", exchange, {"code": code or "NO_ERROR"}, records=left, failure=failure)
        self._forget_if_over(exchange)

    def broken(self, number: int, sender: Sender, fault: HttpFault, time_ns: int) -> None:
        """Stop reading this side of an exchange."""
        self._collector.fault(sender, time_ns, fault, exchange=number)
        exchange = self._exchanges.get(number)
        if exchange is not None:
            self._give_up(number, sender)
            self._readers[number, sender] = SilentReader(self._collector, exchange, sender)

    def join(self) -> None:
        """Read the current bodies from their middle."""
        for exchange in self._exchanges.values():
            exchange.appends.unsure = True
        for number, sender in self._readers:
            exchange = self._exchanges[number]
            self._readers[number, sender] = MidBodyReader(self._collector, exchange, sender, _reader)

    def left_alone(self, number: int, sender: Sender) -> bool:
        """Return whether a side may stop in the middle of its message: a client whose request is answered in full (RFC
        9112, section 9.5), or whose session was terminated, and a server whose client has left a session, or broken off
        its own request."""
        exchange = self._exchanges.get(number)
        if exchange is None:
            return False
        if sender is Sender.CLIENT:
            return exchange.response_over or exchange.terminated
        return self.client_left and (exchange.session != "" or not exchange.request_over)

    # ---- the end -----------------------------------------------------------------------------------------------------
    def abandon(self, sender: Sender, span: TimedRange, kind: str, reason: str = "the rest was not recorded") -> None:
        """End all exchanges: bytes of `sender` were lost, or the recording or the connection has ended. Unacknowledged
        appends come in messages of this kind, one for each exchange."""
        for (number, side), reader in self._readers.items():
            reader.abandon()
            if reader.half and not self.left_alone(number, side):
                rule = f"{reader.half} is not whole: {reason}"
                self._collector.fault(
                    side, span.end_ns, HttpFault(reader.offset, rule, ""), exchange=number, fatal=False
                )
        for exchange in self._exchanges.values():
            left = exchange.appends.left()
            if left:
                self._report(sender, span, kind, exchange, {}, records=left)
        self._exchanges.clear()
        self._readers.clear()

    def __contains__(self, number: int) -> bool:
        """Return whether the exchange is open and tracked."""
        return number in self._exchanges

    @property
    def under_way(self) -> int:
        """Number of open exchanges that are tracked."""
        return len(self._exchanges)

    def get(self, number: int) -> SeenExchange | None:
        """Return an open exchange that is tracked, or None."""
        return self._exchanges.get(number)

    # ---- within ------------------------------------------------------------------------------------------------------
    def _open(self, number: int, span: TimedRange, sender: Sender = Sender.CLIENT) -> SeenExchange | None:
        if len(self._exchanges) >= MAX_EXCHANGES:
            if not self._too_many_reported:
                rule = f"no more than {MAX_EXCHANGES} exchanges are followed at once"
                self._collector.fault(
                    sender, span.end_ns, HttpFault(span.start, rule, ""), exchange=number, fatal=False
                )
            self._too_many_reported = True
            return None
        self._too_many_reported = False
        exchange = self._exchanges[number] = SeenExchange(
            number,
            PendingAppends(self._collector.conversation, self._room),
            self._collector.conversation.protocol,
            self._collector.conversation.path,
        )
        return exchange

    def _give_up(self, number: int, sender: Sender) -> None:
        """Note that no more of a body will be read."""
        reader = self._readers.get((number, sender))
        if reader is not None:
            reader.abandon()

    def _forget_if_over(self, exchange: SeenExchange) -> None:
        if exchange.over:
            self._exchanges.pop(exchange.number, None)
            for sender in Sender:
                self._readers.pop((exchange.number, sender), None)

    def _report(
        self,
        sender: Sender,
        span: TimedRange,
        kind: str,
        exchange: SeenExchange,
        fields: Mapping[str, Any],
        *,
        records: Sequence[SeenRecord] = (),
        failure: str = "",
        event: Any = None,
        answers: int | None = None,
    ) -> None:
        self._collector.add(
            sender,
            span,
            "http",
            kind,
            exchange=exchange.number,
            stream=exchange.stream,
            fields=fields,
            records=records,
            state=exchange.state,
            failure=failure,
            event=event,
            answers=answers,
        )


@cache
def http_protocols(protocol: str) -> tuple[HttpProtocol, ...]:
    """Return the protocols over HTTP that requests in a conversation may belong to: its own one, or all of them."""
    own = plugins().get(protocol)
    return tuple(plugin.http() for plugin in (plugins().values() if own is None else (own,)) if plugin.http is not None)


def claimed_by(request: RequestHead, conversation: Conversation) -> str:
    """Return the name of the plug-in to which a request over HTTP belongs; "" if there is none."""
    exchange = SeenExchange(
        0, PendingAppends(conversation, PendingAppendLimit()), conversation.protocol, conversation.path
    )
    claiming = (
        name for name, plugin in plugins().items() if plugin.http and plugin.http().claims(exchange, request, ())
    )
    return next(claiming, None) or next((name for name, plugin in plugins().items() if plugin.takes_unclaimed), "")


def stream_asked_for(request: RequestHead, conversation: Conversation) -> str:
    """Return the stream that a request is about, as in `SeenRecord`; "" if it is about none."""
    exchange = SeenExchange(
        0, PendingAppends(conversation, PendingAppendLimit()), conversation.protocol, conversation.path
    )
    for protocol in http_protocols(conversation.protocol):
        if protocol.claims(exchange, request, ()):
            return exchange.stream
    return ""


def _session_of(exchange: SeenExchange) -> str:
    return "" if exchange.protocol is None else exchange.protocol.session(exchange)


def _reader(collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> BodyReader:
    headers = exchange.headers if sender is Sender.CLIENT else exchange.response_headers
    content_type = header(headers, "content-type")
    protocol = exchange.protocol
    reader = None if protocol is None else protocol.reader(collector, exchange, sender, content_type)
    return SizeReader(collector, exchange, sender, content_type or "") if reader is None else reader


def _shown(headers: HttpHeaders) -> dict[str, Any]:
    return {"headers": [[name, value] for name, value in headers]}


def _failure(head: ResponseHead, end: bool) -> str:
    """Return the failure in the head of a response, or "". A gRPC call may end with its head (trailers only)."""
    if head.status >= 400:
        return f"{head.status}: {_PHRASES.get(head.status, 'an error')}"
    return _call_failure(head.headers) if end else ""


def _call_failure(fields: HttpHeaders) -> str:
    """Return the failure in the trailers of a gRPC call, or "" if it succeeded, or is not one."""
    if all(name != "grpc-status" for name, _ in fields):
        return ""
    error = error_in(fields)
    return "" if error is None else f"{error.code.name}: {error.message}"
