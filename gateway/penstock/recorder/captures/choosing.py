"""Filters for the conversations and messages of a capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from penstock_analysis.capture import Conversation
from penstock_analysis.dialogue import Message, Problem, SeenRecord
from penstock_analysis.plugin import plugins

__all__ = ["PROTOCOLS", "CaptureFilter"]

_UNKNOWN: Final = "tcp"
PROTOCOLS: Final = tuple(
    dict.fromkeys((*plugins(), *(layer for plugin in plugins().values() for layer in plugin.layers), _UNKNOWN))
)
"""Accepted filter values: the protocol of a listener or a back, or the layer of a message."""


@dataclass(frozen=True, slots=True)
class CaptureFilter:
    """A filter. Empty sequences accept everything; patterns are globs (`*`, `?`, `[...]`), and one match is enough.
    `text`: in a field or the failure of a message, in one of its records, or in the rule of a problem."""

    connections: Sequence[int] = ()
    protocols: Sequence[str] = ()
    streams: Sequence[str] = ()
    kinds: Sequence[str] = ()
    text: str = ""

    def conversation(self, conversation: Conversation) -> bool:
        """Return whether any message of this conversation may be wanted."""
        if self.connections and conversation.number not in self.connections:
            return False
        return self._may_speak(conversation.protocol)

    def accepts(self, item: Message | Problem) -> bool:
        """Return whether a message or a problem of a wanted conversation is wanted."""
        return self.problem(item) if isinstance(item, Problem) else self.message(item)

    def noted(self, conversation: Conversation, streams: Sequence[str]) -> bool:
        """Return whether a conversation is wanted by the streams that the gateway noted for it, regardless of its
        messages."""
        if self.kinds or self.text or (self.protocols and conversation.protocol not in self.protocols):
            return False
        return not self.streams or any(map(self.stream, streams))

    def message(self, message: Message) -> bool:
        """Return whether a message of a wanted conversation is wanted."""
        if (
            self.protocols
            and message.conversation.protocol not in self.protocols
            and message.layer not in self.protocols
        ):
            return False
        return self.stream(message.stream) and _matches(message.kind, self.kinds) and self._says(message)

    def stream(self, stream: str) -> bool:
        """Return whether items about this stream are wanted."""
        return _matches(stream, self.streams)

    def record(self, record: SeenRecord) -> bool:
        """Return whether a record of a wanted conversation is wanted."""
        return self.stream(record.stream)

    def problem(self, problem: Problem) -> bool:
        """Return whether a problem is wanted. A problem has no stream, so it is wanted only without a stream filter;
        its layer is known only to be one of those that the conversation may carry."""
        if not self._may_speak(problem.conversation.protocol):
            return False
        return not self.streams and _matches("problem", self.kinds) and self.text in problem.rule

    def _says(self, message: Message) -> bool:
        """Return whether the text is in a message."""
        if not self.text or self.text in message.failure or _has(message.fields, self.text):
            return True
        data = self.text.encode("utf-8", "surrogateescape")
        return any(data in part for record in message.records for part in _parts(record))

    def _may_speak(self, protocol: str) -> bool:
        """Return whether a conversation of this protocol ("": unknown) may carry a wanted protocol or layer."""
        if not self.protocols or protocol not in plugins():
            return True
        return not {protocol, *plugins()[protocol].layers, _UNKNOWN}.isdisjoint(self.protocols)


def _has(value: Any, text: str) -> bool:
    """Return whether a text is in a field, or in one inside it."""
    if isinstance(value, Mapping):
        return any(_has(each, text) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_has(each, text) for each in value)
    return text in str(value)


def _parts(record: SeenRecord) -> Iterator[bytes]:
    yield record.body
    for header in record.headers:
        yield from header


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
