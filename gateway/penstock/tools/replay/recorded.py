"""Recorded conversations as items: what their clients said, and what these were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.tools.replay.items import ClientSent, Finish, Item, NewRecords, given_by
from penstock_analysis.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Opened, Sender
from penstock_analysis.dialogue import Dialogue, Message, Problem

__all__ = ["Choice", "RecordedBytes", "RecordedConversation", "missed"]


def in_words(problem: Problem) -> str:
    """Return the place and text of a problem."""
    return f"{problem.sender.value}, byte {problem.offset}: {problem.rule}"


def missed(problem: Problem) -> str:
    """Return what cannot be played because of a problem."""
    return f"not {'said again' if problem.sender is Sender.CLIENT else 'compared'}: {in_words(problem)}"


MOST_PROBLEMS: Final = 100
"""Problems of one conversation that are kept, more than a report shows."""
_REFUSED: Final = "refused with "
"""Prefix of problems that only the server had with a message."""

Choice = Callable[[Message], bool]
"""Decides by stream and time whether a client's message is played."""


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
        elif (given := given_by(item, None, self._new)) is not None:
            if given.asked in self._left_out:
                self._left_out.discard(given.asked)
            elif not item.stream or self._wanted(item):
                self.records += len(item.records)
                yield given

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
