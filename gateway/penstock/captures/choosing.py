"""Which conversations and messages somebody wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from penstock_codecs.capture import Conversation
from penstock_codecs.dialogue import Message, Problem, SeenRecord

__all__ = ["PROTOCOLS", "Choice"]

_CARRIED: Final = {
    "s2": ("http", "s2s", "sse"),
    "s3p": ("s3p",),
    "segment": ("segment",),
    "controller": ("http", "grpc"),
    "management": ("http",),
}
"""The layers of what such a listener or back says."""
_UNKNOWN: Final = "tcp"
_LAYERS: Final = ("http", "s2s", "sse", "grpc", "s3p", "segment", _UNKNOWN)
PROTOCOLS: Final = tuple(dict.fromkeys((*_CARRIED, *_LAYERS)))
"""What can be asked for: what a listener or a back speaks, or the layer of a message."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Empty sequences want everything; patterns are globs (`*`, `?`, `[...]`), a match of any suffices."""

    connections: Sequence[int] = ()
    protocols: Sequence[str] = ()
    streams: Sequence[str] = ()
    kinds: Sequence[str] = ()

    def conversation(self, conversation: Conversation) -> bool:
        """Whether anything of it may be wanted."""
        if self.connections and conversation.number not in self.connections:
            return False
        return self._may_speak(conversation.protocol)

    def said(self, item: Message | Problem) -> bool:
        """Whether a message or a problem of a wanted conversation is wanted."""
        return self.problem(item) if isinstance(item, Problem) else self.message(item)

    def noted(self, conversation: Conversation, streams: Sequence[str]) -> bool:
        """Whether a conversation is wanted for what the gateway noted of it, whatever was said. `streams`: those."""
        if self.kinds or (self.protocols and conversation.protocol not in self.protocols):
            return False
        return not self.streams or any(map(self.stream, streams))

    def message(self, message: Message) -> bool:
        """Whether a message of a wanted conversation is wanted."""
        if (
            self.protocols
            and message.conversation.protocol not in self.protocols
            and message.layer not in self.protocols
        ):
            return False
        return self.stream(message.stream) and _matches(message.kind, self.kinds)

    def stream(self, stream: str) -> bool:
        """Whether what is about this stream is wanted."""
        return _matches(stream, self.streams)

    def record(self, record: SeenRecord) -> bool:
        """Whether a record of a wanted conversation is wanted."""
        return self.stream(record.stream)

    def problem(self, problem: Problem) -> bool:
        """Whether a problem is wanted: nobody knows its stream, so only where none is asked for, and of its layer only
        which ones there may be."""
        if not self._may_speak(problem.conversation.protocol):
            return False
        return not self.streams and _matches("problem", self.kinds)

    def _may_speak(self, protocol: str) -> bool:
        """Whether anything of a wanted protocol may be said where the gateway speaks this one; "": nobody knows."""
        if not self.protocols or protocol not in _CARRIED:
            return True
        return not {protocol, *_CARRIED[protocol], _UNKNOWN}.isdisjoint(self.protocols)


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
