"""Readers of bodies: their base, and the one for bodies that are not decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue.http.exchange import Exchange
from penstock_analysis.dialogue.http.places import Places, Span
from penstock_analysis.dialogue.http.targets import header
from penstock_analysis.dialogue.http.telling import Fault, Teller
from penstock_analysis.dialogue.messages import SeenRecord

__all__ = ["Deaf", "Reader", "Sizes"]


class Reader:
    """Reader of one body, which reports its messages. It raises Fault at bytes it cannot read, and ends there."""

    layer = "http"
    session = False
    """True if the body has many messages, so that its end is reported as one too."""

    def __init__(self, teller: Teller, exchange: Exchange, sender: Sender) -> None:
        self._teller = teller
        self._exchange = exchange
        self._sender = sender
        self._places = Places()

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Read a piece of the body (never empty) at its place. Raises Fault."""
        raise NotImplementedError

    def finish(self, end: Span) -> None:
        """Finish: the body is complete. Raises Fault."""

    @property
    def half(self) -> str:
        """Name of the incomplete part if the body ends here; "" if it may end."""
        return ""

    @property
    def offset(self) -> int:
        """Offset of the incomplete part."""
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
        """Report a fault of one message; those that follow are read."""
        self._teller.fault(self._sender, time_ns, fault, exchange=self._exchange.number, fatal=False)


_MOST_TEXT: Final = 500
_FAILED: Final = 400


class Sizes(Reader):
    """Reader that counts the bytes of a body. Of an error's text it keeps the beginning, which describes the error."""

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
        """Report how many bytes there were."""
        del end
        if self._span is not None:
            text = self._text.decode(errors="replace").strip()
            failure = f"{self._exchange.status}: {text}" if text else ""
            fields = {"bytes": self._bytes, "content_type": self._content_type}
            self._say(self._span, "body", fields, failure=failure)


class Deaf(Reader):
    """Reader that reports nothing: of the rest of a body with a fault. Its end is reported."""

    session = True

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Ignore a piece."""
