"""Recorded conversations as items: messages of clients, and the answers that they got."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from penstock.capture.dialogue import Dialogue, Message, Problem
from penstock.capture.dialogue.choosing import ENOUGH, spoken_by
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.dialogue.http.exchanges import SeenExchanges, claimed_by
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Joined, Lost, Opened, Sender
from penstock.capture.plugin import plugins
from penstock.tools.replay.items import ClientSent, Finish, Item, NewRecords, Over, given_by
from penstock.wire.http import Body, End, HttpHeaders, RequestHead, Reset, ResponseHead
from penstock.wire.http.observer.faults import TimedRange

__all__ = ["Choice", "RecordedBytes", "RecordedConversation", "RecordedExchanges", "is_http", "missed", "protocol_of"]

_LEAST: Final = 4
"""Bytes that tell protocols, their dialects and versions apart."""
MOST_PROBLEMS: Final = 100
"""Problems of one conversation that are kept, more than a report shows."""
_REFUSED: Final = "refused with "
"""Prefix of problems that only the server had with a message."""
Choice = Callable[[Message], bool]
"""Decides by stream and time whether a client's message is played."""


def is_http(protocol: str) -> bool:
    """Return whether a protocol is carried by HTTP."""
    return protocol in plugins() and plugins()[protocol].over_http


def protocol_of(conversation: Conversation, events: Sequence[CaptureEvent]) -> str | None:
    """Return the protocol of a conversation from its first events, as in `Conversation.protocol`; "" if it is unknown.

    Returns None if the client has not sent enough.
    """
    first = _first(events)
    if len(first) < _LEAST:
        return None
    if conversation.protocol:
        return conversation.protocol
    spoken = spoken_by(Sender.CLIENT, first)
    if spoken != "http":
        return spoken
    dialogue = HttpDialogue(conversation)
    for event in events:
        for item in dialogue.receive(event):
            if isinstance(item, Message) and isinstance(item.event, RequestHead):
                return claimed_by(item.event, conversation)
    return None


def _first(events: Iterable[CaptureEvent]) -> bytes:
    chunks = (event for event in events if isinstance(event, Chunk) and event.sender is Sender.CLIENT)
    return b"".join(bytes(chunk.data[:ENOUGH]) for chunk in chunks)


def in_words(problem: Problem) -> str:
    """Return the place and text of a problem."""
    return f"{problem.sender.value}, byte {problem.offset}: {problem.rule}"


def missed(problem: Problem) -> str:
    """Return what cannot be played because of a problem."""
    return f"not {'said again' if problem.sender is Sender.CLIENT else 'compared'}: {in_words(problem)}"


class RecordedConversation(Protocol):
    """Splits one recorded conversation into items. Its memory is bounded by its dialogue's."""

    def receive(self, event: CaptureEvent) -> Iterator[Item]:
        """Yield the items of an event. The consumer numbers and times them."""

    def end(self) -> Iterator[Item]:
        """Yield the last items, at the end of the recording."""

    @property
    def records(self) -> int:
        """Number of played records so far that were acknowledged to the client or delivered to it."""

    @property
    def raw(self) -> str | None:
        """Description of the part that breaks the protocol and is sent byte by byte; None if there is none."""

    @property
    def problems(self) -> list[str]:
        """Descriptions of what cannot be played: the first of each kind."""


class RecordedBytes:
    """A conversation without HTTP: its client's messages are sent again byte by byte.

    A message that was incomplete when the client left, and bytes that break the protocol, are sent as they were.
    `numbered`: whether the exchanges of its dialogue are single requests, some of which may be left out.
    """

    def __init__(self, conversation: Conversation, dialogue: Dialogue, wanted: Choice, numbered: bool) -> None:
        self._conversation = conversation
        self._dialogue = dialogue
        self._wanted = wanted
        self._numbered = numbered
        self._held = bytearray()
        self._offset = 0
        self.raw: str | None = None  # what follows is sent byte by byte
        self._closing = False
        self._left_out: set[int | None] = set()
        self._new = NewRecords()
        self.records = 0
        self.problems: list[str] = []

    def receive(self, event: CaptureEvent) -> Iterator[Item]:
        """See `RecordedConversation`."""
        if isinstance(event, Chunk) and event.sender is Sender.CLIENT:
            self._hold(event)
        elif isinstance(event, Opened) and event.client_offset > self._end:
            self._forget(event.client_offset)
        elif isinstance(event, Lost) and event.sender is Sender.CLIENT:
            self._forget(event.offset + event.length)
        self._closing = isinstance(event, Closed)
        for item in self._dialogue.receive(event):
            yield from self._items_of(item)
        if self.raw is not None and self._held:
            yield ClientSent(self._taken(self._end), event.time_ns)
        if isinstance(event, Closed) and (event.reset or event.sender is Sender.CLIENT):
            yield from self._finished(event)

    def end(self) -> Iterator[Item]:
        """See `RecordedConversation`."""
        for item in self._dialogue.end():
            yield from self._items_of(item)

    # ---- bytes ---------------------------------------------------------------------------------------------------

    @property
    def _end(self) -> int:
        return self._offset + len(self._held)

    def _hold(self, chunk: Chunk) -> None:
        if chunk.offset > self._end:
            self._forget(chunk.offset)
        self._held += chunk.data[self._end - chunk.offset :]

    def _forget(self, offset: int) -> None:
        self._held.clear()
        self._offset = offset

    def _taken(self, end: int) -> bytes:
        size = max(0, end - self._offset)
        data = bytes(memoryview(self._held)[:size])
        del self._held[:size]
        self._offset += size
        return data

    # ---- messages ------------------------------------------------------------------------------------------------

    def _items_of(self, item: Message | Problem) -> Iterator[Item]:
        if isinstance(item, Problem):
            self._flawed(item)
        elif item.sender is Sender.CLIENT:
            yield from self._sent_items(item)
        elif (items_given := given_by(item, None, self._new)) is not None:
            if items_given.asked in self._left_out:
                self._left_out.discard(items_given.asked)
            elif not item.stream or self._wanted(item):
                self.records += len(item.records)
                yield items_given

    def _sent_items(self, message: Message) -> Iterator[Item]:
        if not message.length:
            return
        self._taken(message.offset)  # skip bytes before it that are no whole message, as at the start of a recording
        data = self._taken(message.offset + message.length)
        if self._wanted(message):
            yield ClientSent(data, message.end_ns, message.exchange)
        elif self._numbered:
            self._left_out.add(message.exchange)

    def _flawed(self, problem: Problem) -> None:
        """Record a problem. If it is the client's and fatal, or an incomplete message at its end, the bytes are sent as
        they were; anything else is reported as missed."""
        if problem.sender is Sender.CLIENT and (problem.fatal or self._closing):
            self.raw = self.raw or in_words(problem)
        elif len(self.problems) < MOST_PROBLEMS and not problem.rule.startswith(_REFUSED):
            self.problems.append(missed(problem))

    def _finished(self, event: Closed) -> Iterator[Item]:
        if self._held:
            yield ClientSent(self._taken(self._end), event.time_ns)
        yield Finish(event.time_ns, event.reset)


class _Heard(SeenExchanges):
    """Exchanges that also keep their parts as items until they are taken."""

    def __init__(self, collector: MessageCollector) -> None:
        super().__init__(collector)
        self._items: list[ClientSent | Over] = []

    def take(self) -> list[ClientSent | Over]:
        """Return the items since the last call."""
        items, self._items = self._items, []
        return items

    def request(self, head: RequestHead, span: TimedRange, end: bool) -> None:
        super().request(head, span, end)
        exchange = self.get(head.stream_id)
        basin = "" if exchange is None else exchange.ref.basin
        self._items.append(ClientSent(replace(head), span.end_ns, head.stream_id, basin))
        if end:
            self._items.append(ClientSent(End(head.stream_id), span.end_ns))

    def response(self, head: ResponseHead, span: TimedRange, end: bool) -> None:
        super().response(head, span, end)
        if end:
            self._items.append(Over(head.stream_id))

    def data(self, number: int, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        super().data(number, sender, data, offset, time_ns)
        if sender is Sender.CLIENT and data:
            self._items.append(ClientSent(Body(number, [bytes(data)]), time_ns))

    def ended(self, number: int, sender: Sender, span: TimedRange, trailers: HttpHeaders) -> None:
        super().ended(number, sender, span, trailers)
        if sender is Sender.CLIENT:
            self._items.append(ClientSent(End(number, trailers), span.end_ns))
        else:
            self._items.append(Over(number))

    def reset(self, number: int, sender: Sender, span: TimedRange, code: str) -> None:
        super().reset(number, sender, span, code)
        self._items.append(
            ClientSent(Reset(number), span.end_ns) if sender is Sender.CLIENT else Over(number, bool(code))
        )


class _Dialogue(HttpDialogue):
    """A dialogue that exposes its exchanges."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation)
        self._exchanges = self.heard = _Heard(self._collector)


class RecordedExchanges:
    """A `RecordedConversation` over HTTP. `wanted` is called with the head of each request."""

    def __init__(self, conversation: Conversation, wanted: Choice) -> None:
        self._wanted = wanted
        self._dialogue = _Dialogue(conversation)
        self._playing: dict[int, set[Sender]] = {}
        self.records = 0
        self.raw: str | None = None
        self.problems: list[str] = []

    def receive(self, event: CaptureEvent) -> Iterator[Item]:
        """See `penstock.tools.replay.recorded.RecordedConversation`."""
        yield from self._items_of(self._dialogue.receive(event))
        if isinstance(event, Joined) and (under_way := self._dialogue.heard.under_way):
            requests = "a request" if under_way == 1 else f"{under_way} requests"
            self.problems.append(f"not said again: {requests} that began before the recording did")
        if isinstance(event, Closed) and (event.reset or event.sender is Sender.CLIENT):
            yield Finish(event.time_ns, event.reset)

    def end(self) -> Iterator[Item]:
        """See `penstock.tools.replay.recorded.RecordedConversation`."""
        yield from self._items_of(self._dialogue.end())

    def _items_of(self, items: Iterator[Message | Problem]) -> Iterator[Item]:
        """Yield what was given before the end of its exchange; one event belongs to one side."""
        items_given: list[Item] = []
        for one in items:
            if isinstance(one, Problem):
                if len(self.problems) < MOST_PROBLEMS:
                    self.problems.append(missed(one))
            elif one.sender is Sender.CLIENT:
                if isinstance(one.event, RequestHead) and one.exchange is not None and self._wanted(one):
                    self._playing[one.exchange] = set(Sender)
            elif one.exchange in self._playing:
                self.records += len(one.records)
                item = given_by(one, one.exchange, NewRecords())
                if item is not None:
                    items_given.append(item)
        yield from items_given
        for part in self._dialogue.heard.take():
            yield from self._chosen(part)

    def _chosen(self, item: ClientSent | Over) -> Iterator[Item]:
        """Yield an item if its exchange is played, until both of its messages are complete."""
        number = item.exchange if isinstance(item, Over) else getattr(item.move, "stream_id", None)
        if number is None or number not in self._playing:
            return
        yield item
        going_on = self._playing[number]
        if isinstance(item, Over):
            going_on.discard(Sender.SERVER)
        elif isinstance(item.move, End):
            going_on.discard(Sender.CLIENT)
        elif isinstance(item.move, Reset):
            going_on.clear()
        if not going_on:
            del self._playing[number]
