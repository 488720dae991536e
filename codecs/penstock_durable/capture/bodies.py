"""Read bodies of Durable Streams that are complete before they mean something: appends, answers, errors."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.capture.dialogue.http.appends import MAX_WAITING, MAX_WAITING_BYTES
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import SeenExchange, header
from penstock.capture.dialogue.http.json_places import place_of
from penstock.capture.dialogue.http.whole_body import WholeBody
from penstock.capture.pcapng import Sender
from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.model.operations import Append
from penstock.model.records import metered_size
from penstock.wire.compression import Compression
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_durable.capture.clauses import BODIES, JSON_MODE
from penstock_durable.capture.content import delivered, first_number, number_of, position_fields, read_body
from penstock_durable.capture.requests import Asked, header_of, report_request
from penstock_durable.codec import failure_of_answer, is_json, position_answer

__all__ = ["AppendBody", "BatchBody", "ErrorBody"]

_LIMIT: Final = 64 * MIB
"""Largest body, in bytes. The protocol sets none; Penstock's append has 1 MiB, and its answers 8 MiB."""


class _Body(WholeBody):
    layer = "durable"

    def __init__(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, coding: Compression
    ) -> None:
        super().__init__(collector, exchange, sender, coding, _LIMIT, BODIES)

    def _undecodable(self, content: bytes, span: TimedRange, reason: str) -> HttpFault:
        return self._fault_in(content, span, place_of(content, reason), reason, JSON_MODE)


class AppendBody(_Body):
    """The body of a PUT or POST."""

    def finish(self, end: TimedRange) -> None:
        """Report the request, also if its body turned out to be empty."""
        if self._held:
            super().finish(end)
        else:
            report_request(self._collector, self._exchange, end, {})

    def _understand(self, content: bytes, span: TimedRange) -> None:
        exchange = self._exchange
        records = read_body(header(exchange.headers, "content-type"), content, answer=False)
        bodies = list(records.bodies)
        append = Append(exchange.ref, bodies, metered_size(bodies, records.headers), headers=records.headers)
        if bodies and not exchange.appends.ask(append, span.end_ns):
            rule = f"of at most {MAX_WAITING} appends and {MAX_WAITING_BYTES} bytes an acknowledgement is waited for"
            self._fault(HttpFault(span.start, rule, ""), span.end_ns)
        exchange.subject = exchange.subject._replace(counted=records.counted)
        carried = exchange.appends.carried(append, span.end_ns)
        report_request(self._collector, exchange, span, {"records": len(bodies)} | self._size(), carried)


class BatchBody(_Body):
    """The data that a GET is answered with."""

    def finish(self, end: TimedRange) -> None:
        """Report the answer, also if its body turned out to be empty."""
        if self._held:
            super().finish(end)
        else:
            self._understand(b"", end)

    def _understand(self, content: bytes, span: TimedRange) -> None:
        exchange, subject = self._exchange, self._exchange.subject
        assert isinstance(subject, Asked)
        kind = header(exchange.response_headers, "content-type")
        records = read_body(kind, content, answer=True)
        fields: dict[str, Any] = {"records": len(records.bodies)} | self._size()
        first = event = None
        try:
            event = position_answer(header_of(exchange.response_headers))
        except RemoteProtocolError:  # the head is a problem already
            pass
        else:
            fields |= position_fields(event)
            behind = number_of(event.next_offset)
            first = first_number(records, subject.start, behind, exact=_keeps_boundaries(kind))
        if first is not None and records.bodies:
            fields["first_seq_num"] = first
        seen = delivered(records, first, exchange.stream, self._collector.conversation, span.end_ns)
        self._report(span, "batch", fields, records=seen, event=event)


class _ErrorShape(msgspec.Struct):
    code: str
    message: str


class _ErrorDocument(msgspec.Struct):
    error: _ErrorShape


class ErrorBody(_Body):
    """The body of an error, which refuses the appended records. Its form is open; Penstock names a code and the
    reason."""

    def _understand(self, content: bytes, span: TimedRange) -> None:
        exchange = self._exchange
        failure = failure_of_answer(exchange.status, header_of(exchange.response_headers), content[:1000])
        code, message = failure.code.value, failure.message
        try:
            error = msgspec.json.decode(content, type=_ErrorDocument).error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        else:
            code, message = error.code, error.message
        reason = f"{code}: {message}"
        fields = {"code": code, "message": message, **failure.details} | self._size()
        self._report(span, "error", fields, records=exchange.appends.left(reason), failure=reason, event=failure)


def _keeps_boundaries(content_type: str | None) -> bool:
    """Return whether readers see where the records of a stream with this content type begin."""
    try:
        return content_type is not None and is_json(content_type)
    except OperationFailed:
        return False
