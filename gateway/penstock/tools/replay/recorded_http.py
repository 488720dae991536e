"""Recorded conversations over HTTP as items: the parts of requests, whatever frames carried them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from penstock.tools.replay.items import ClientSent, Finish, Item, NewRecords, Over, given_by
from penstock.tools.replay.recorded import MOST_PROBLEMS, Choice, missed
from penstock_analysis.capture import CaptureEvent, Closed, Conversation, Joined, Sender
from penstock_analysis.dialogue import Message, Problem
from penstock_analysis.dialogue.http.collector import MessageCollector
from penstock_analysis.dialogue.http.dialogue import HttpDialogue
from penstock_analysis.dialogue.http.exchanges import SeenExchanges
from penstock_codecs.http import Body, End, HttpHeaders, RequestHead, Reset, ResponseHead
from penstock_codecs.http.observer.faults import TimedRange

__all__ = ["RecordedExchanges"]


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
        given: list[Item] = []
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
                    given.append(item)
        yield from given
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
