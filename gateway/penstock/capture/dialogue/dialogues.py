"""Turn events of many conversations into messages: each conversation has a dialogue for as long as it lasts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from penstock.capture.dialogue.choosing import dialogue_for, memories
from penstock.capture.dialogue.messages import Dialogue, Message, Problem
from penstock.capture.pcapng import CaptureEvent, Closed, Conversation, Lost, Sender

__all__ = ["MAX_DIALOGUES", "Dialogues"]

MAX_DIALOGUES: Final = 20_000
"""Most conversations with a dialogue at once; beyond that those that were silent longest are ended."""


class Dialogues:
    """Dialogues of all wanted conversations, fed in the order of the capture; each is forgotten as it ends."""

    def __init__(
        self,
        wanted: Callable[[Conversation], bool] = lambda _conversation: True,
        most: int = MAX_DIALOGUES,
    ) -> None:
        self._wanted = wanted
        self._most = most
        self._open: OrderedDict[Conversation, _Entry] = OrderedDict()
        self._shared = memories()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, conversation: Conversation) -> bool:
        """Return whether the conversation has a dialogue."""
        return conversation in self._open

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield the items that an event completes, and those of the end of its conversation."""
        conversation = event.conversation
        entry = self._open.get(conversation)
        if entry is None:
            if not self._wanted(conversation) or isinstance(event, Closed):
                return
            if len(self._open) >= self._most:
                yield from self._open.popitem(last=False)[1].dialogue.end()
            entry = self._open[conversation] = _Entry(dialogue_for(conversation, self._shared))
        self._open.move_to_end(conversation)
        yield from entry.dialogue.receive(event)
        if entry.over(event):
            del self._open[conversation]
            yield from entry.dialogue.end()

    def end(self) -> Iterator[Message | Problem]:
        """Yield the items of all open conversations at the end of the capture."""
        while self._open:
            yield from self._open.popitem(last=False)[1].dialogue.end()


class _Entry:
    __slots__ = ("closed", "dialogue")

    def __init__(self, dialogue: Dialogue) -> None:
        self.dialogue = dialogue
        self.closed: set[Sender] = set()

    def over(self, event: CaptureEvent) -> bool:
        """Return whether no event can follow this one."""
        if isinstance(event, Closed):
            self.closed.add(event.sender)
            return event.reset or len(self.closed) == len(Sender)
        return isinstance(event, Lost) and not event.length
