"""Takes conversations apart into exchanges: each a request and its answer, in parts.

Over HTTP a part is a head or a piece of body, whatever frames carried it; the parts of both sides are in the order in
which they were recorded, so a session is answered step by step. Of other protocols a part is a whole message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple, Protocol

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.choosing import dialogue_for
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.dialogue.http.exchanges import SeenExchanges
from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Lost, Sender
from penstock.capture.plugin import plugins
from penstock.protocols.plugin import listener_kinds
from penstock.tools.replay.recorded import is_http
from penstock.wire.http import HttpHeaders, RequestHead, ResponseHead
from penstock.wire.http.observer.faults import TimedRange

__all__ = [
    "CommandExchanges",
    "ExchangeReader",
    "HttpExchanges",
    "Part",
    "PartKind",
    "exchange_reader",
    "has_equal_requests",
    "over_http",
    "request_head",
]

HOP_BY_HOP: Final = frozenset(
    {"connection", "expect", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
"""Headers about one connection (RFC 9110, 7.6.1 and 10.1.1), which are neither compared nor passed on."""


class PartKind(Enum):
    """The kind of a part. The values are those in the database."""

    REQUEST = "request"
    """The beginning of an exchange; `text` is the head that requests are found by."""
    ASKED = "asked"
    """Bytes of the client."""
    ASKED_ALL = "asked all"
    """The end of the client's bytes."""
    HEAD = "head"
    """The head of an answer: `text` is its status and headers, as JSON."""
    ANSWER = "answer"
    """Bytes of the server."""
    END = "end"
    """The end of the answer: `text` is its trailers, as JSON."""
    RESET = "reset"
    """The server broke off the answer."""


class Part(NamedTuple):
    """A part of the exchange with this number. `stream`: the one that a request is about, as in `SeenRecord`."""

    exchange: int
    kind: PartKind
    data: bytes = b""
    text: str = ""
    stream: str = ""


class ExchangeReader(Protocol):
    """Takes one conversation apart."""

    def receive(self, event: CaptureEvent) -> Iterator[Part]:
        """Yield the parts that an event completes."""


def exchange_reader(conversation: Conversation, protocol: str) -> ExchangeReader | None:
    """Return a reader for a conversation in this protocol; None if its messages are not single requests."""
    if over_http(protocol):
        return HttpExchanges(conversation)
    return CommandExchanges(conversation) if has_equal_requests(protocol) else None


def has_equal_requests(protocol: str) -> bool:
    """Return whether messages of a protocol without HTTP are single requests whose bytes are the same in every run."""
    plugin = plugins().get(protocol)
    return plugin is not None and plugin.numbered_requests and not plugin.varying_requests


def over_http(protocol: str) -> bool:
    """Return whether HTTP carries a protocol; a listener's counts even if nothing can read its captures."""
    kind = listener_kinds().get(protocol)
    return is_http(protocol) or (kind is not None and kind.over_http)


def request_head(method: str, target: str, headers: HttpHeaders) -> str:
    """Return the head of a request as text, without headers that differ between runs; its first line names it."""
    left_out = HOP_BY_HOP.union(*(plugin.varying_headers for plugin in plugins().values()))
    return "\n".join(
        (f"{method} {target}", *sorted(f"{name}: {value}" for name, value in headers if name not in left_out))
    )


# ---- HTTP ------------------------------------------------------------------------------------------------------------


class _PartsSeen(SeenExchanges):
    """Exchanges that keep their parts until they are taken."""

    def __init__(self, collector: MessageCollector) -> None:
        super().__init__(collector)
        self.parts: list[Part] = []

    def request(self, head: RequestHead, span: TimedRange, end: bool) -> None:
        super().request(head, span, end)
        text = request_head(head.method, head.target, head.headers)
        exchange = self.get(head.stream_id)
        stream = "" if exchange is None else exchange.stream
        self.parts.append(Part(head.stream_id, PartKind.REQUEST, text=text, stream=stream))
        if end:
            self.parts.append(Part(head.stream_id, PartKind.ASKED_ALL))

    def response(self, head: ResponseHead, span: TimedRange, end: bool) -> None:
        super().response(head, span, end)
        headers = [pair for pair in head.headers if pair[0] not in HOP_BY_HOP and pair[0] != "date"]
        self.parts.append(Part(head.stream_id, PartKind.HEAD, text=json.dumps([head.status, headers])))
        if end:
            self.parts.append(Part(head.stream_id, PartKind.END, text="[]"))

    def data(self, number: int, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        super().data(number, sender, data, offset, time_ns)
        kind = PartKind.ASKED if sender is Sender.CLIENT else PartKind.ANSWER
        self.parts.append(Part(number, kind, bytes(data)))

    def ended(self, number: int, sender: Sender, span: TimedRange, trailers: HttpHeaders) -> None:
        super().ended(number, sender, span, trailers)
        if sender is Sender.CLIENT:
            self.parts.append(Part(number, PartKind.ASKED_ALL))
        else:
            self.parts.append(Part(number, PartKind.END, text=json.dumps(list(trailers))))

    def reset(self, number: int, sender: Sender, span: TimedRange, code: str) -> None:
        super().reset(number, sender, span, code)
        if sender is Sender.SERVER and code:
            self.parts.append(Part(number, PartKind.RESET))


class _Dialogue(HttpDialogue):
    """A dialogue that exposes the parts of its exchanges."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation)
        self._exchanges = self.seen = _PartsSeen(self._collector)


class HttpExchanges:
    """The exchanges of a conversation over HTTP, of either version."""

    def __init__(self, conversation: Conversation) -> None:
        self._dialogue = _Dialogue(conversation)

    def receive(self, event: CaptureEvent) -> Iterator[Part]:
        """See `ExchangeReader`."""
        self._dialogue.receive(event)
        parts, self._dialogue.seen.parts = self._dialogue.seen.parts, []
        return iter(parts)


# ---- other protocols -------------------------------------------------------------------------------------------------


class _Bytes:
    """The bytes of one side that no message has taken yet."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._offset = 0

    def add(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        if offset != self._offset + len(self._held):
            self._held.clear()
            self._offset = offset
        self._held += data

    def take(self, offset: int, length: int) -> bytes:
        """Return the bytes of a message; those before it are dropped."""
        start = offset - self._offset
        data = bytes(self._held[start : start + length])
        del self._held[: start + length]
        self._offset = offset + length
        return data


class CommandExchanges:
    """The exchanges of a conversation whose messages are single requests, numbered in their order, and their answers.

    `broken`: the client's bytes cannot be read any further.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._dialogue = dialogue_for(conversation)
        self._sides = {sender: _Bytes() for sender in Sender}
        self._conversation = conversation
        self.broken = False

    def receive(self, event: CaptureEvent) -> Iterator[Part]:
        """See `ExchangeReader`."""
        if isinstance(event, Chunk):
            self._sides[event.sender].add(event.offset, event.data)
        self.broken = self.broken or isinstance(event, Lost)
        for item in self._dialogue.receive(event):
            if self.broken:
                return
            yield from self._parts(item)

    def _parts(self, item: Message | Problem) -> Iterable[Part]:
        if isinstance(item, Problem):
            self.broken = self.broken or item.fatal
            return ()
        if item.exchange is None or not item.length:
            return ()
        data = self._sides[item.sender].take(item.offset, item.length)
        if item.sender is Sender.SERVER:
            return Part(item.exchange, PartKind.ANSWER, data), Part(item.exchange, PartKind.END, text="[]")
        head = f"{item.kind} {item.stream}".rstrip()
        return (
            Part(item.exchange, PartKind.REQUEST, text=head, stream=item.stream),
            Part(item.exchange, PartKind.ASKED, data),
            Part(item.exchange, PartKind.ASKED_ALL),
        )
