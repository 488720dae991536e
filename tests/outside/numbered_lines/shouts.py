"""A protocol over HTTP that no part of Penstock knows: `POST /shout/<stream>`, and `POST /shout-tokens` for a token."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.capture.dialogue import APPENDED, SeenRecord
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, HttpProtocol, SeenExchange
from penstock.capture.dialogue.http.plugin import http_dialogue
from penstock.capture.pcapng import Sender
from penstock.capture.plugin import HTTP, CapturePlugin
from penstock.capture.redaction.requests import HttpBodies
from penstock.capture.redaction.requests import RequestParts as RedactedExchange
from penstock.wire.http import RequestHead
from penstock.wire.http.observer.faults import TimedRange


class Shout(BodyReader):
    """The body of a request."""

    layer = "shouts"
    body = b""

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        self._places.add(offset, len(data), time_ns)
        self.body += data

    def finish(self, end: TimedRange) -> None:
        record = SeenRecord(APPENDED, self._exchange.stream, self.body, time_ns=end.end_ns)
        self._report(self._places.whole, "shout", {"loud": self.body.isupper()}, records=[record])


class Shouts(HttpProtocol):
    """Requests and bodies."""

    def claims(self, exchange: SeenExchange, request: RequestHead, noted: Sequence[str]) -> bool:
        exchange.stream = request.target.removeprefix("/shout/")
        return request.target.startswith("/shout/")

    def reader(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, content_type: str | None
    ) -> BodyReader | None:
        return Shout(collector, exchange, sender) if sender is Sender.CLIENT else None


class ShoutBodies(HttpBodies):
    """Secrets in bodies."""

    def issues(self, exchange: RedactedExchange) -> bool:
        return exchange.path == b"/shout-tokens"


PLUGIN = CapturePlugin(
    dialogue=http_dialogue,
    layers=(HTTP, "shouts"),
    secret_headers=("shout-password",),
    http=Shouts,
    bodies=ShoutBodies,
)
