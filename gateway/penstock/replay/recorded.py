"""Recorded conversations as items, told apart into what their clients said and what these were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.replay.items import Finish, Item, Say, given_by
from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Opened, Sender
from penstock_codecs.dialogue import Dialogue, Message, Problem

__all__ = ["Choice", "RecordedBytes", "RecordedConversation"]

MOST_PROBLEMS: Final = 100
"""So many of one conversation are kept, which is more than a report shows."""
_REFUSED: Final = "refused with "
"""How a problem begins that only the server had with a message."""

Choice = Callable[[Message], bool]
"""Whether a client's message is to be said again: by its stream and its time."""


class RecordedConversation(Protocol):
    """Hears one recorded conversation. Memory is bounded by its dialogue's."""

    def receive(self, event: CaptureEvent) -> Iterator[Item]:
        """What an event of it says. Items are numbered and counted by whoever takes them."""

    def end(self) -> Iterator[Item]:
        """The recording has ended."""

    @property
    def records(self) -> int:
        """How many records were acknowledged to its client or delivered to it so far, of what is played."""

    @property
    def problems(self) -> list[str]:
        """What cannot be carried, in words: the first of each kind."""


class RecordedBytes:
    """A conversation over bare TCP: its client's messages are said again byte by byte.

    What its client said amid a message when it left, and what breaks the protocol, is said as it was. `numbered`:
    whether the exchanges of its dialogue are single requests, of which some may be left out.
    """

    def __init__(self, conversation: Conversation, dialogue: Dialogue, wanted: Choice, numbered: bool) -> None:
        self._conversation = conversation
        self._dialogue = dialogue
        self._wanted = wanted
        self._numbered = numbered
        self._held = bytearray()
        self._offset = 0
        self._raw = False  # what follows is not understood
        self._closing = False
        self._left_out: set[int | None] = set()
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
        for told in self._dialogue.receive(event):
            yield from self._told(told)
        if self._raw and self._held:
            yield Say(self._taken(self._end), event.time_ns)
        if isinstance(event, Closed) and (event.reset or event.sender is Sender.CLIENT):
            yield from self._finished(event)

    def end(self) -> Iterator[Item]:
        """See `RecordedConversation`."""
        for told in self._dialogue.end():
            yield from self._told(told)

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

    # ---- what was said -------------------------------------------------------------------------------------------

    def _told(self, told: Message | Problem) -> Iterator[Item]:
        if isinstance(told, Problem):
            self._flawed(told)
        elif told.sender is Sender.CLIENT:
            yield from self._said(told)
        elif (given := given_by(told, None)) is not None:
            if given.asked in self._left_out:
                self._left_out.discard(given.asked)
            elif not told.stream or self._wanted(told):
                self.records += len(told.records)
                yield given

    def _said(self, message: Message) -> Iterator[Item]:
        if not message.length:
            return
        self._taken(message.offset)  # what is not understood before it, as a half message at the start
        data = self._taken(message.offset + message.length)
        if self._wanted(message):
            yield Say(data, message.end_ns, message.exchange)
        elif self._numbered:
            self._left_out.add(message.exchange)

    def _flawed(self, problem: Problem) -> None:
        """What breaks the protocol on the client's side, or is half said when it leaves, is said as it was; anything
        else is missed."""
        if problem.sender is Sender.CLIENT and (problem.fatal or self._closing):
            self._raw = True
        elif len(self.problems) < MOST_PROBLEMS and not problem.rule.startswith(_REFUSED):
            self.problems.append(f"{problem.sender.value}, byte {problem.offset}: {problem.rule}")

    def _finished(self, event: Closed) -> Iterator[Item]:
        if self._held:
            yield Say(self._taken(self._end), event.time_ns)
        yield Finish(event.time_ns, event.reset)
