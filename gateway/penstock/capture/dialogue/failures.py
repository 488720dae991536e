"""Count failures once each: protocol violations and the responses that report them, in however many messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.capture.dialogue.messages import Message, Problem
from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import layers_over_http

__all__ = ["MAX_REMEMBERED", "Failures"]

MAX_REMEMBERED: Final = 1000
"""Most failed exchanges of one conversation that are remembered; later items of a failure come soon."""


class Failures:
    """Memory of the exchanges that failed.

    An exchange over HTTP fails once, in however many messages. Elsewhere each failure is one of its own.
    """

    def __init__(self) -> None:
        self._failed: dict[Conversation, dict[object, None]] = {}

    def counts(self, item: Message | Problem) -> bool:
        """Return whether this is a failure that no earlier item was part of.

        Over HTTP the head of a response reports a failure, and its body describes it. A problem of the client is
        refused by the next failure in its exchange; one without an exchange, by the next failure of the conversation.
        Withheld bytes are no failure.
        """
        if item.withheld if isinstance(item, Problem) else not item.failure:
            return False
        failed = self._failed.setdefault(item.conversation, {})
        known = next((key for key in self._parts(item) if key in failed), None)
        if known is None:
            failed |= dict.fromkeys(self._follows(item))
            while len(failed) > MAX_REMEMBERED:
                del failed[next(iter(failed))]
            return True
        if isinstance(known, tuple):
            del failed[known]  # one answer refuses it
            failed |= dict.fromkeys(key for key in self._follows(item) if not isinstance(key, tuple))
        return False

    @staticmethod
    def _parts(item: Message | Problem) -> Iterator[object]:
        """Yield the keys that an item may be a part of: an exchange that failed, or the problem that it refuses."""
        if isinstance(item, Message):
            yield "refusal", item.exchange
            yield "refusal", None
        if item.exchange is not None and (isinstance(item, Problem) or item.layer in layers_over_http()):
            yield item.exchange

    @staticmethod
    def _follows(item: Message | Problem) -> Iterator[object]:
        """Yield the keys that later items may be a part of."""
        if isinstance(item, Problem):
            if item.sender is Sender.CLIENT and (item.fatal or item.exchange is not None):
                yield "refusal", item.exchange
        elif item.exchange is not None and item.layer in layers_over_http():
            yield item.exchange

    def forget(self, conversation: Conversation) -> None:
        """Forget a conversation that has ended."""
        self._failed.pop(conversation, None)
