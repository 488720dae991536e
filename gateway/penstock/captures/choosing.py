"""Which conversations and messages somebody wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from penstock_codecs.capture import Conversation
from penstock_codecs.dialogue import Message, Problem, SeenRecord

__all__ = ["PROTOCOLS", "Choice"]

_CONFIGURED: Final = ("s2", "s3p", "segment", "controller", "management")
_LAYERS: Final = ("http", "s2s", "sse", "grpc", "s3p", "segment", "tcp")
PROTOCOLS: Final = tuple(dict.fromkeys(_CONFIGURED + _LAYERS))
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
        if not self.protocols or not conversation.protocol or conversation.protocol in self.protocols:
            return True
        return any(name not in _CONFIGURED for name in self.protocols)

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
        """Whether a problem is wanted: nobody knows its stream, so only where none is asked for."""
        del problem
        return not self.streams and _matches("problem", self.kinds)


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
