"""Failures, each counted once: over HTTP the head of an answer says that something failed, and its body says what."""

from __future__ import annotations

from typing import Final

from penstock_codecs.capture import Conversation
from penstock_codecs.dialogue.messages import Message

__all__ = ["MAX_REMEMBERED", "Failures"]

MAX_REMEMBERED: Final = 1000
"""Most failed exchanges of one conversation that are remembered; a body comes soon after its head."""
_IN_PARTS: Final = frozenset({"http", "s2s", "sse", "grpc"})
"""Layers whose exchanges fail once, in however many messages. Elsewhere each failure is one of its own."""


class Failures:
    """Remembers the exchanges that failed."""

    def __init__(self) -> None:
        self._failed: dict[Conversation, dict[int, None]] = {}

    def counts(self, message: Message) -> bool:
        """Whether the message says of a failure, and the first of those that belong together."""
        if not message.failure or message.exchange is None or message.layer not in _IN_PARTS:
            return bool(message.failure)
        failed = self._failed.setdefault(message.conversation, {})
        if message.exchange in failed:
            return False
        failed[message.exchange] = None
        if len(failed) > MAX_REMEMBERED:
            del failed[next(iter(failed))]
        return True

    def forget(self, conversation: Conversation) -> None:
        """It has ended."""
        self._failed.pop(conversation, None)
