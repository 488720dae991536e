"""Heads of requests: what they ask for, and what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import SeenExchange, header
from penstock.capture.dialogue.messages import SeenRecord
from penstock.capture.pcapng import Sender
from penstock.model.failures import OperationFailed
from penstock.wire.http import HttpHeaders, RequestHead
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_durable.capture.clauses import APPENDS, CREATES, POLLS, READS
from penstock_durable.capture.content import number_of
from penstock_durable.codec import BEGINNING, append_request, create_request, read_request
from penstock_durable.codec.offsets import is_offset
from penstock_durable.codec.requests import Header

__all__ = ["Asked", "asked_by", "check_request", "header_of", "report", "report_request"]

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "PUT": (
        *("content-type", "stream-ttl", "stream-expires-at", "stream-closed"),
        *("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset"),
    ),
    "POST": ("content-type", "stream-closed", "producer-id", "producer-epoch", "producer-seq", "stream-seq"),
}
"""Headers that say what a request wants, by method."""
_KINDS: Final = {"PUT": "create", "POST": "append"}


class Asked(NamedTuple):
    """Parts of a request that its answer is read with. `start`: the sequence number at which a read begins, None if it
    is unknown; `counted`: the records of an append have a number each."""

    method: str
    start: int | None = None
    live: str = ""
    counted: bool = True


def header_of(headers: HttpHeaders) -> Header:
    """Return the function by which codecs ask for headers."""
    return lambda name: header(headers, name)


def asked_by(request: RequestHead) -> Asked:
    """Return the parts of a request that its answer is read with."""
    query = dict(_query(request))
    return Asked(request.method, number_of(query.get("offset")), query.get("live", ""))


def _query(request: RequestHead) -> list[tuple[str, str]]:
    try:
        return parse_qsl(request.target.partition("?")[2], keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []


def check_request(collector: MessageCollector, exchange: SeenExchange, span: TimedRange) -> None:
    """Report what is wrong in the head of a request. Offsets of other servers are accepted: they are opaque."""
    request, subject = exchange.request, exchange.subject
    assert request is not None
    clause = {"PUT": CREATES, "POST": APPENDS}.get(subject.method, POLLS if subject.live == "long-poll" else READS)
    try:
        if subject.method == "PUT":
            known = {name: _known(name, value) for name, value in reversed(request.headers)}
            create_request(known.get)
        elif subject.method == "POST":
            append_request(header_of(request.headers))
        elif subject.method == "GET":
            read_request([(name, _known(name, text)) for name, text in _query(request) if name != "cursor"])
    except OperationFailed as error:
        fault = HttpFault(span.start, error.failure.message, clause)
        collector.fault(Sender.CLIENT, span.end_ns, fault, exchange=exchange.number, fatal=False)


def _known(name: str, value: str) -> str:
    """Return the value of a header or parameter, but for an offset of any server one that the codec knows."""
    return BEGINNING if name in ("offset", "stream-fork-offset") and is_offset(value) else value


def report_request(
    collector: MessageCollector,
    exchange: SeenExchange,
    span: TimedRange,
    fields: Mapping[str, Any],
    carried: Sequence[SeenRecord] = (),
) -> None:
    """Report a whole PUT or POST. `fields`, `carried`: what its body says."""
    method = exchange.subject.method
    values = ((name, header(exchange.headers, name)) for name in _FIELDS[method])
    named_values = {name.replace("-", "_"): value for name, value in values if value is not None}
    fields = {**fields, **named_values}
    report(collector, exchange, Sender.CLIENT, span, _KINDS[method], fields, event=exchange.request, carried=carried)


def report(
    collector: MessageCollector,
    exchange: SeenExchange,
    sender: Sender,
    span: TimedRange,
    kind: str,
    fields: Mapping[str, Any],
    records: Sequence[SeenRecord] = (),
    event: Any = None,
    carried: Sequence[SeenRecord] = (),
) -> None:
    """Report a message of an exchange."""
    collector.add(
        sender,
        span,
        "durable",
        kind,
        exchange=exchange.number,
        stream=exchange.stream,
        fields=fields,
        records=records,
        carried=carried,
        state=exchange.state,
        event=event,
    )
