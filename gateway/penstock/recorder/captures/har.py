"""HTTP exchanges as HAR 1.2, which browsers' developer tools import; entries are written while the capture is read.

Fields that HAR does not define begin with `_`: the messages of sessions and event streams are in `_messages`, the
gateway's own names in `_penstock`. Bodies are included, decompressed, if they are a single text (JSON, for example)
that was sent in one piece.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.http.exchange import CODINGS
from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Sender
from penstock.model.limits import KIB
from penstock.recorder.captures.lines import conversation_keys, utc
from penstock.recorder.captures.recent import RecentBytes
from penstock.wire.compression import DecompressionError, decompress
from penstock.wire.http import RequestHead, ResponseHead

__all__ = ["MAX_EXCHANGES", "HarEntries", "har_head"]

MAX_EXCHANGES: Final = 1000
"""Maximum number of open exchanges per connection; beyond it the oldest are written incomplete."""
MAX_MESSAGES: Final = 1000
"""Maximum number of messages listed in one entry."""
MAX_RECENT: Final = 1000
"""Number of senders whose last bytes are kept, at most 2 * MAX_TEXT each; the least recently active is dropped
first."""
MAX_TEXT: Final = 64 * KIB
"""Maximum size of a body that is written as text, in bytes."""

_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}
_OVER: Final = ("done", "reset")
_TEXTS: Final = re.compile(r"text/|x-unknown$|application/([^;]*\+)?(json|xml|x-www-form-urlencoded)\b", re.IGNORECASE)
_VERSIONS: Final = {"1.0": "HTTP/1.0", "1.1": "HTTP/1.1", "2": "HTTP/2", "2.0": "HTTP/2"}


def har_head(version: str) -> dict[str, Any]:
    """Return the log's members without its entries. `version`: Penstock's."""
    return {"version": "1.2", "creator": {"name": "Penstock", "version": version}, "pages": []}


class HarEntries:
    """Converts messages to HAR entries, each when its exchange ends."""

    def __init__(self) -> None:
        self._open: dict[Conversation, OrderedDict[int, _Exchange]] = {}
        self._recent: OrderedDict[tuple[Conversation, Sender], RecentBytes] = OrderedDict()

    def receive_event(self, event: CaptureEvent) -> None:
        """Take an event before the messages decoded from it, to keep the bytes of bodies as they were sent."""
        if isinstance(event, Chunk):
            recent = self._recent.setdefault((event.conversation, event.sender), RecentBytes(MAX_TEXT))
            self._recent.move_to_end((event.conversation, event.sender))
            recent.add(event.offset, event.data)
            if len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)

    def receive(self, item: Message | Problem) -> Iterator[dict[str, Any]]:
        """Take a message of any protocol; yield the entries that it completes. Messages that are not HTTP are
        ignored."""
        if isinstance(item, Problem) or item.exchange is None:
            return
        if isinstance(item.event, RequestHead):
            yield from self._begin(item, item.exchange)
            return
        exchanges = self._open.get(item.conversation)
        exchange = exchanges.get(item.exchange) if exchanges else None
        if exchanges is None or exchange is None:
            return
        exchange.add(item, self._recent.get((item.conversation, item.sender)))
        if isinstance(item.event, ResponseHead) and not exchange.head.version.startswith("2"):
            yield from self._earlier(exchanges, item.exchange)
        if item.state in _OVER:
            yield exchanges.pop(item.exchange).entry()

    def forget(self, conversation: Conversation) -> Iterator[dict[str, Any]]:
        """Yield the exchanges of a conversation that has ended, complete or not."""
        for sender in Sender:
            self._recent.pop((conversation, sender), None)
        for exchange in self._open.pop(conversation, {}).values():
            yield exchange.entry()

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the exchanges that are open at the end of the capture."""
        for conversation in list(self._open):
            yield from self.forget(conversation)

    def _begin(self, message: Message, number: int) -> Iterator[dict[str, Any]]:
        exchanges = self._open.setdefault(message.conversation, OrderedDict())
        if len(exchanges) >= MAX_EXCHANGES:
            yield exchanges.popitem(last=False)[1].entry()
        exchanges[number] = _Exchange(message, number)

    @staticmethod
    def _earlier(exchanges: OrderedDict[int, _Exchange], number: int) -> Iterator[dict[str, Any]]:
        """Yield the exchanges before `number`: over HTTP/1.1 a response implies that earlier ones are complete."""
        while (first := next(iter(exchanges))) < number:
            yield exchanges.pop(first).entry()


class _Exchange:
    """A request, and the part of its response that was read so far."""

    def __init__(self, request: Message, number: int) -> None:
        self.number = number
        self.head: RequestHead = request.event
        self._request = request
        self._response: Message | None = None
        self._sizes = dict.fromkeys(Sender, 0)  # sizes of bodies as sent, without framing
        self._begun: set[Sender] = set()  # senders whose body has begun
        self._whole: set[Sender] = set()  # senders whose body has ended
        self._texts: dict[Sender, str] = {}
        self._ends = {Sender.CLIENT: request.end_ns}
        self._messages: list[dict[str, Any]] = []
        self._failure = ""

    def add(self, message: Message, recent: RecentBytes | None) -> None:
        """Add a message of this exchange. `recent`: the last bytes of its sender."""
        self._ends[message.sender] = message.end_ns
        self._failure = message.failure or self._failure  # the body is more specific than the head
        if isinstance(message.event, ResponseHead):
            if message.event.status >= 200:
                self._response = message
            return
        first = message.sender not in self._begun
        text = self._text(message, recent) if first else None
        if message.length:
            self._begun.add(message.sender)
        if message.body_bytes is not None:
            self._whole.add(message.sender)
            self._sizes[message.sender] = message.body_bytes
        elif message.sender not in self._whole:
            self._sizes[message.sender] += message.length  # an approximation for a body that does not end
        if text is not None:
            self._texts[message.sender] = text
        elif message.length:
            self._texts.pop(message.sender, None)
        if len(self._messages) < MAX_MESSAGES:
            told: dict[str, Any] = {
                "type": "send" if message.sender is Sender.CLIENT else "receive",
                "kind": message.kind,
            }
            told |= {"time": utc(message.end_ns), "length": message.length, "fields": message.fields}
            self._messages.append(told)

    def _text(self, message: Message, recent: RecentBytes | None) -> str | None:
        """Return the text of a body that is a single message: as decoded, or else from the bytes as sent. None if it
        has none."""
        if isinstance(message.event, bytes):
            return message.event.decode(errors="replace") if len(message.event) <= MAX_TEXT else None
        answers = message.sender is Sender.SERVER and self._response is not None
        headers = self._response.event.headers if answers and self._response else self.head.headers
        coding = CODINGS.get(_value(headers, "content-encoding", "identity").strip().lower())
        # A body in several chunks or frames is interleaved with their headers.
        if recent is None or coding is None or message.fields.get("bytes") != message.length:
            return None
        data, start = recent.between(message.offset, message.offset + message.length)
        if start != message.offset or len(data) != message.length or not _TEXTS.match(_media(headers)):
            return None
        try:
            return decompress(coding, data, MAX_TEXT).decode()
        except (DecompressionError, UnicodeDecodeError):
            return None

    def entry(self) -> dict[str, Any]:
        """Return the exchange as a HAR entry; times in ms."""
        start, request_end = self._request.start_ns, self._ends[Sender.CLIENT]
        answered = self._response.start_ns if self._response else request_end
        end = max(self._ends.get(Sender.SERVER, request_end), answered)
        send, wait, receive = _ms(min(request_end, answered) - start), _ms(answered - request_end), _ms(end - answered)
        conversation = self._request.conversation
        entry: dict[str, Any] = {
            "startedDateTime": utc(start),
            "time": send + wait + receive,
            "request": self._asked(),
            "response": self._answered(),
            "cache": {},
            "timings": {"send": send, "wait": wait, "receive": receive},
            "serverIPAddress": conversation.server.host,
            "connection": str(conversation.number),
            "_penstock": {**conversation_keys(conversation), "exchange": self.number, "stream": self._request.stream},
        }
        if self._messages:
            entry["_messages"] = self._messages
        if self._failure:
            entry["_penstock"]["failure"] = self._failure
        return entry

    def _asked(self) -> dict[str, Any]:
        head = self.head
        scheme = "https" if self._request.conversation.tls else "http"
        url = f"{scheme}://{head.authority or self._request.conversation.server}{head.target}"
        request_entry: dict[str, Any] = {
            "method": head.method,
            "url": url,
            "httpVersion": _version(head),
            "cookies": [],
            "headers": _pairs(head.headers),
            "queryString": _pairs(_query(head.target)),
            "headersSize": self._request.length,
            "bodySize": self._sizes[Sender.CLIENT],
        }
        if self._sizes[Sender.CLIENT]:
            request_entry["postData"] = {"mimeType": _media(head.headers), "text": self._texts.get(Sender.CLIENT, "")}
        return request_entry

    def _answered(self) -> dict[str, Any]:
        """Return the response; its status is 0 if none was recorded."""
        head = self._response.event if self._response else None
        headers: Sequence[tuple[str, str]] = head.headers if head else ()
        size = self._sizes[Sender.SERVER]
        content: dict[str, Any] = {"size": size, "mimeType": _media(headers)}
        if Sender.SERVER in self._texts:
            content["text"] = self._texts[Sender.SERVER]
            content["size"] = len(content["text"].encode())  # decompressed, as HAR defines it
            if content["size"] != size:
                content["compression"] = content["size"] - size
        return {
            "status": head.status if head else 0,
            "statusText": _PHRASES.get(head.status, "") if head else "",
            "httpVersion": _version(self.head),
            "cookies": [],
            "headers": _pairs(headers),
            "content": content,
            "redirectURL": _value(headers, "location", ""),
            "headersSize": self._response.length if self._response else -1,
            "bodySize": size if head else -1,
        }


def _ms(ns: int) -> float:
    return max(0, ns) / 1_000_000


def _version(head: RequestHead) -> str:
    return _VERSIONS.get(head.version, head.version or "HTTP/1.1")


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _query(target: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(target).query, keep_blank_values=True)
    except ValueError:  # a peer may send any text as the target
        return []


def _media(headers: Sequence[tuple[str, str]]) -> str:
    return _value(headers, "content-type", "x-unknown")


def _value(headers: Sequence[tuple[str, str]], wanted: str, otherwise: str) -> str:
    return next((value for name, value in headers if name == wanted), otherwise)
