"""A conversation in a protocol that nobody here speaks: its chunks, by size."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_codecs.capture import CaptureEvent, Chunk, Conversation
from penstock_codecs.dialogue.messages import Message, Problem

__all__ = ["OpaqueDialogue"]


class OpaqueDialogue:
    """Every chunk is a message of layer `tcp` and kind `data`, whose only field is its `size`; `rule` says why, in a
    Problem that is not fatal, before the first of them."""

    def __init__(self, conversation: Conversation, rule: str, clause: str = "") -> None:
        self._conversation = conversation
        self._rule = rule
        self._clause = clause
        self._said = False

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """A chunk as a message."""
        if not isinstance(event, Chunk):
            return
        if not self._said:
            self._said = True
            yield self._problem(event)
        yield Message(
            self._conversation,
            event.sender,
            start_ns=event.time_ns,
            end_ns=event.time_ns,
            offset=event.offset,
            length=len(event.data),
            layer="tcp",
            kind="data",
            fields={"size": len(event.data)},
        )

    def _problem(self, chunk: Chunk) -> Problem:
        return Problem(
            self._conversation,
            chunk.sender,
            chunk.time_ns,
            chunk.offset,
            self._rule,
            self._clause,
            context=bytes(chunk.data[:64]),
            context_offset=chunk.offset,
            fatal=False,
        )

    def end(self) -> Iterator[Message | Problem]:
        """Nothing is ever half said here."""
        return iter(())
