"""Requests of Durable Streams: the stream in the URL, and the readers of bodies (protocol, section 5).

Nothing is refused here: it is the server that refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import (
    CODINGS,
    READING,
    BodyReader,
    HttpProtocol,
    SeenExchange,
    header,
)
from penstock.capture.pcapng import Sender
from penstock.model.failures import RemoteProtocolError
from penstock.model.records import StreamRef
from penstock.wire.compression import Compression
from penstock.wire.http import RequestHead
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_durable.capture.bodies import AppendBody, BatchBody, ErrorBody
from penstock_durable.capture.clauses import APPENDS, CREATES, POLLS, READS
from penstock_durable.capture.content import number_of, position_fields
from penstock_durable.capture.event_stream import DurableEvents
from penstock_durable.capture.requests import asked_by, check_request, header_of, report, report_request
from penstock_durable.codec import AppendAnswer, LiveMode, PositionAnswer, append_answer, position_answer
from penstock_durable.codec.requests import Header

__all__ = ["DurableExchanges"]

_PREFIX: Final = "/v1/stream/"
"""Beginning of the paths of streams, where the recording does not say it."""
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
_EVENTS: Final = "text/event-stream"
_TOLD: Final = ("content-type", "stream-closed", "producer-epoch", "producer-seq")
"""Headers of answers to PUT and POST that are fields."""
_FAILED: Final = 400


A = TypeVar("A")


class DurableExchanges(HttpProtocol):
    """Exchanges of Durable Streams; `subject` is what a request asks for."""

    settles_by_head = True

    def claims(self, exchange: SeenExchange, request: RequestHead, _noted: Sequence[str]) -> bool:
        path = request.target.partition("?")[0]
        name = path.removeprefix(exchange.path or _PREFIX)
        if request.method not in _METHODS or (name == path and exchange.configured != "durable"):
            return False
        exchange.subject = asked_by(request)
        exchange.stream = unquote(name).lstrip("/")
        exchange.ref = StreamRef("", exchange.stream)
        return True

    def asked(self, collector: MessageCollector, exchange: SeenExchange, span: TimedRange) -> None:
        check_request(collector, exchange, span)
        if exchange.request_over and exchange.subject.method in ("PUT", "POST"):
            report_request(collector, exchange, span, {})

    def answered(self, collector: MessageCollector, exchange: SeenExchange, span: TimedRange) -> None:
        method, status = exchange.subject.method, exchange.status
        if not 200 <= status < 300 or method == "DELETE" or exchange.session:
            return
        if method == "POST":
            _settle(collector, exchange, span, "appended", _answer(collector, exchange, span, append_answer, APPENDS))
            return
        clause = CREATES if method == "PUT" else POLLS if exchange.subject.live else READS
        position = _answer(collector, exchange, span, position_answer, clause)
        if method == "PUT":
            _settle(collector, exchange, span, "created" if status == 201 else "exists", position)
        elif position is not None and (exchange.response_over or method == "HEAD" or status != 200):
            fields = position_fields(position) | {"content_type": position.content_type}
            report(collector, exchange, Sender.SERVER, span, "position", fields, event=position)

    def session(self, exchange: SeenExchange) -> str:
        events = header(exchange.response_headers, "content-type") or ""
        reads = exchange.subject.live == LiveMode.SSE.value and exchange.status == 200 and events.startswith(_EVENTS)
        return READING if reads else ""

    def reader(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, _content_type: str | None
    ) -> BodyReader | None:
        method = exchange.subject.method
        headers = exchange.headers if sender is Sender.CLIENT else exchange.response_headers
        coding = CODINGS.get((header(headers, "content-encoding") or "identity").strip().lower())
        if coding is None:
            return None
        if sender is Sender.CLIENT:
            return AppendBody(collector, exchange, sender, coding) if method in ("PUT", "POST") else None
        if exchange.status >= _FAILED:
            return ErrorBody(collector, exchange, sender, coding)
        if exchange.session:
            return DurableEvents(collector, exchange, sender) if coding is Compression.NONE else None
        return BatchBody(collector, exchange, sender, coding) if method == "GET" and exchange.status == 200 else None


def _answer(
    collector: MessageCollector, exchange: SeenExchange, span: TimedRange, parse: Callable[[Header], A], clause: str
) -> A | None:
    """Parse the head of an answer; report what is wrong in it, and return None then."""
    try:
        return parse(header_of(exchange.response_headers))
    except RemoteProtocolError as error:
        fault = HttpFault(span.start, error.failure.message, clause)
        collector.fault(Sender.SERVER, span.end_ns, fault, exchange=exchange.number, fatal=False)
        return None


def _settle(
    collector: MessageCollector,
    exchange: SeenExchange,
    span: TimedRange,
    kind: str,
    answer: AppendAnswer | PositionAnswer | None,
) -> None:
    """Report the answer to a PUT or POST, with the records that it acknowledges.

    A producer's append that the server had already is acknowledged with status 204 (5.2.1): its records have the
    numbers of the first attempt, which this answer does not tell. The body of a PUT for a stream that exists is not
    appended.
    """
    fields: dict[str, Any] = {}
    if answer is not None:
        fields["next_offset"] = answer.next_offset
    for name in _TOLD:
        if (value := header(exchange.response_headers, name)) is not None:
            fields[name.replace("-", "_")] = value
    repeated = exchange.status == 204 and header(exchange.headers, "producer-id") is not None
    if repeated:
        fields["repeated"] = True
    if kind == "exists":
        records = exchange.appends.left("the stream exists, so nothing was appended")
    elif (waiting := exchange.appends.acknowledge()) is None:
        records = ()
    else:
        behind = None if answer is None or repeated or not exchange.subject.counted else number_of(answer.next_offset)
        first = None if behind is None or behind < waiting.size else behind - waiting.size
        fields |= {"records": waiting.size} | ({} if first is None else {"first_seq_num": first})
        records = exchange.appends.numbered(waiting, first)
    report(collector, exchange, Sender.SERVER, span, kind, fields, records, answer)
