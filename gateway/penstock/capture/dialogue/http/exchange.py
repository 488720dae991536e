"""One exchange over HTTP, readers of its bodies, and what the protocol adds that the exchange belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.capture.dialogue.http.appends import PendingAppends
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.places import BodyPlaces
from penstock.capture.dialogue.messages import SeenRecord
from penstock.capture.pcapng import Sender
from penstock.model.records import StreamRef
from penstock.wire.compression import Compression
from penstock.wire.http import HttpHeaders, RequestHead
from penstock.wire.http.observer.faults import HttpFault, TimedRange

__all__ = [
    "APPENDING",
    "CODINGS",
    "READING",
    "BodyReader",
    "HttpProtocol",
    "SeenExchange",
    "SilentReader",
    "SizeReader",
    "header",
]

APPENDING: Final = "appending"
READING: Final = "reading"
CODINGS: Final[Mapping[str, Compression]] = {
    "identity": Compression.NONE,
    "gzip": Compression.GZIP,
    "zstd": Compression.ZSTD,
}
"""Values of content-encoding that are understood."""
_NOWHERE: Final = StreamRef("", "")
_MOST_TEXT: Final = 500
_FAILED: Final = 400


def header(headers: HttpHeaders, name: str) -> str | None:
    """Return the first header of this name."""
    return next((value for header_name, value in headers if header_name == name), None)


class SeenExchange:
    """State of an exchange. `session`: APPENDING or READING, if it is a session of either kind. `protocol`: that of the
    request, None if it is unknown; `subject`: what it has found in the head. `stream`: the name of the stream, as in
    `SeenRecord`; `ref`: its parts as far as they are known. `terminated`: the server has said that the session is over,
    so neither side needs to end its body. `configured`: the protocol of the conversation, as far as it is known without
    its bytes; `path`: see `Conversation`."""

    __slots__ = (
        "appends",
        "asked_ns",
        "body_bytes",
        "configured",
        "number",
        "path",
        "protocol",
        "ref",
        "request",
        "request_over",
        "reset",
        "response_headers",
        "response_over",
        "session",
        "status",
        "stream",
        "subject",
        "terminated",
    )

    def __init__(self, number: int, appends: PendingAppends, configured: str = "", path: str = "") -> None:
        self.number = number
        self.configured = configured
        self.path = path
        self.body_bytes = dict.fromkeys(Sender, 0)
        self.appends = appends
        self.protocol: HttpProtocol | None = None
        self.subject: Any = None
        self.ref = _NOWHERE
        self.stream = ""
        self.request: RequestHead | None = None
        self.request_over = False
        self.status = 0
        self.response_headers: HttpHeaders = ()
        self.response_over = False
        self.reset = False
        self.terminated = False
        self.session = ""
        self.asked_ns: int | None = None
        """Time of the last byte of the request that has arrived."""

    @property
    def headers(self) -> HttpHeaders:
        """Headers of the request."""
        return self.request.headers if self.request is not None else ()

    @property
    def over(self) -> bool:
        """True if no more messages can follow in it."""
        return self.reset or (self.request_over and self.response_over)

    @property
    def state(self) -> str:
        """State: `open`, `appending`, `reading`, `half-closed` (the client has finished), `answered` (the server has,
        and the client has not), `done`, `reset`."""
        if self.reset:
            return "reset"
        if self.response_over:
            return "done" if self.request_over else "answered"
        if self.session == READING:
            return READING
        if self.request_over:
            return "half-closed"
        return self.session or "open"


class BodyReader:
    """Reader of one body, which reports its messages. It raises Fault at bytes it cannot read, and ends there."""

    layer = "http"
    session = False
    """True if the body has many messages, so that its end is reported as one too."""

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> None:
        self._collector = collector
        self._exchange = exchange
        self._sender = sender
        self._places = BodyPlaces()

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Read a piece of the body (never empty) at its place. Raises Fault."""
        raise NotImplementedError

    def finish(self, end: TimedRange) -> None:
        """Finish: the body is complete. Raises Fault."""

    def abandon(self) -> None:
        """Report messages that wait for something behind them: no more of the body will come."""

    @property
    def half(self) -> str:
        """Name of the incomplete part if the body ends here; "" if it may end."""
        return ""

    @property
    def offset(self) -> int:
        """Offset of the incomplete part."""
        return self._places.offset()

    def _report(
        self,
        span: TimedRange,
        kind: str,
        fields: Mapping[str, Any],
        *,
        records: Sequence[SeenRecord] = (),
        failure: str = "",
        event: Any = None,
        answers: int | None = None,
        carried: Sequence[SeenRecord] = (),
    ) -> None:
        self._collector.add(
            self._sender,
            span,
            self.layer,
            kind,
            exchange=self._exchange.number,
            stream=self._exchange.stream,
            fields=fields,
            records=records,
            state=self._exchange.state,
            failure=failure,
            event=event,
            answers=answers,
            carried=carried,
        )

    def _fault(self, fault: HttpFault, time_ns: int) -> None:
        """Report a fault of one message; those that follow are read."""
        self._collector.fault(self._sender, time_ns, fault, exchange=self._exchange.number, fatal=False)


class SizeReader(BodyReader):
    """Reader that counts the bytes of a body. Of an error's text it keeps the beginning, which describes the error."""

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, content_type: str) -> None:
        super().__init__(collector, exchange, sender)
        self._content_type = content_type
        plain = content_type.startswith("text/") and header(exchange.response_headers, "content-encoding") is None
        self._keeps_text = plain and sender is Sender.SERVER and exchange.status >= _FAILED
        self._text = b""
        self._bytes = 0
        self._span: TimedRange | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Count a piece."""
        if self._keeps_text:
            self._text += bytes(data[: _MOST_TEXT - len(self._text)])
        self._bytes += len(data)
        span = TimedRange(offset, offset + len(data), time_ns, time_ns)
        self._span = span if self._span is None else self._span.to(span)

    def finish(self, end: TimedRange) -> None:
        """Report how many bytes there were."""
        del end
        if self._span is not None:
            text = self._text.decode(errors="replace").strip()
            failure = f"{self._exchange.status}: {text}" if text else ""
            fields = {"bytes": self._bytes, "content_type": self._content_type}
            self._report(self._span, "body", fields, failure=failure)


class SilentReader(BodyReader):
    """Reader that reports nothing: of the rest of a body with a fault. Its end is reported."""

    session = True

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Ignore a piece."""


class HttpProtocol:
    """One protocol over HTTP: how its requests and bodies are read. This base reads nothing."""

    guesses: Mapping[Sender, Mapping[Callable[[MessageCollector, SeenExchange, Sender], BodyReader], str]] = {}
    """Readers, with their sessions, that are tried on bodies whose heads were not recorded. The first one that decodes
    a message reads on."""

    def claims(self, exchange: SeenExchange, request: RequestHead, noted: Sequence[str]) -> bool:
        """Return whether a request belongs to this protocol, and set the exchange's `subject`, `ref` and `stream` then.
        `noted`: streams that the gateway noted for the connection."""
        raise NotImplementedError

    settles_by_head = False
    """True if `answered` reports the appends that an answer with status 2xx settles."""

    def asked(self, collector: MessageCollector, exchange: SeenExchange, span: TimedRange) -> None:
        """Report what the head of a request means beside itself. It was reported; so far no body came."""

    def answered(self, collector: MessageCollector, exchange: SeenExchange, span: TimedRange) -> None:
        """Report what the head of a response means beside itself. It was reported; so far no body came."""

    def session(self, _exchange: SeenExchange) -> str:
        """Return APPENDING or READING if the heads so far begin such a session, else ""."""
        return ""

    def reader(
        self, _collector: MessageCollector, _exchange: SeenExchange, _sender: Sender, _content_type: str | None
    ) -> BodyReader | None:
        """Return the reader of a body, or None if it is shown as its size."""
        return None
