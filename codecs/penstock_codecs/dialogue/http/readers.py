"""Readers of bodies: what every kind has in common, and the one for those that nobody decodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock_codecs.capture import Sender
from penstock_codecs.dialogue.http.exchange import Exchange
from penstock_codecs.dialogue.http.places import Places, Span
from penstock_codecs.dialogue.http.targets import header
from penstock_codecs.dialogue.http.telling import Fault, Teller
from penstock_codecs.dialogue.messages import SeenRecord

__all__ = ["Deaf", "Reader", "Sizes"]


class Reader:
    """Reads one body, and says what is in it. Bytes that it cannot read raise Fault; then it is asked for nothing."""

    layer = "http"
    session = False
    """Whether it is one of many messages, so that its end is one too."""

    def __init__(self, teller: Teller, exchange: Exchange, sender: Sender) -> None:
        self._teller = teller
        self._exchange = exchange
        self._sender = sender
        self._places = Places()

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """A piece of the body (never empty), and where it stands. Raises Fault."""
        raise NotImplementedError

    def finish(self, end: Span) -> None:
        """The body is complete. Raises Fault."""

    @property
    def half(self) -> str:
        """What the body ends amid if it ends here; "" where it may."""
        return ""

    @property
    def offset(self) -> int:
        """Where that begins."""
        return self._places.offset()

    def _say(
        self,
        span: Span,
        kind: str,
        fields: Mapping[str, Any],
        *,
        records: Sequence[SeenRecord] = (),
        failure: str = "",
        event: Any = None,
        answers: int | None = None,
    ) -> None:
        self._teller.say(
            self._sender,
            span,
            self.layer,
            kind,
            exchange=self._exchange.number,
            stream=self._exchange.target.stream,
            fields=fields,
            records=records,
            state=self._exchange.state,
            failure=failure,
            event=event,
            answers=answers,
        )

    def _fault(self, fault: Fault, time_ns: int) -> None:
        """What is wrong with one message; those that follow are read."""
        self._teller.fault(self._sender, time_ns, fault, exchange=self._exchange.number, fatal=False)


_MOST_TEXT: Final = 500
_FAILED: Final = 400


class Sizes(Reader):
    """Counts the bytes of a body. Of an error's text it keeps the beginning, which says what the error is."""

    def __init__(self, teller: Teller, exchange: Exchange, sender: Sender, content_type: str) -> None:
        super().__init__(teller, exchange, sender)
        self._content_type = content_type
        plain = content_type.startswith("text/") and header(exchange.response_headers, "content-encoding") is None
        self._tells = plain and sender is Sender.SERVER and exchange.status >= _FAILED
        self._text = b""
        self._bytes = 0
        self._span: Span | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Count a piece."""
        if self._tells:
            self._text += bytes(data[: _MOST_TEXT - len(self._text)])
        self._bytes += len(data)
        span = Span(offset, offset + len(data), time_ns, time_ns)
        self._span = span if self._span is None else self._span.to(span)

    def finish(self, end: Span) -> None:
        """Say how many bytes there were."""
        del end
        if self._span is not None:
            text = self._text.decode(errors="replace").strip()
            failure = f"{self._exchange.status}: {text}" if text else ""
            fields = {"bytes": self._bytes, "content_type": self._content_type}
            self._say(self._span, "body", fields, failure=failure)


class Deaf(Reader):
    """Says nothing: the rest of a body with a fault. Its end is told."""

    session = True

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Nothing."""
