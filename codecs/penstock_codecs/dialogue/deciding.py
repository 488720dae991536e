"""A conversation of which nobody has said what is spoken: it is kept until its bytes show that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Protocol

from penstock_codecs.capture import CaptureEvent, Chunk, Conversation, Lost, Opened, Sender
from penstock_codecs.dialogue.messages import Dialogue, Message, Problem

__all__ = ["MOST_BYTES", "MOST_EVENTS", "DecidingDialogue"]

MOST_BYTES: Final = 64 * 1024
MOST_EVENTS: Final = 1024
"""So much is kept, and then the conversation is taken for one that nobody here speaks."""
_ENOUGH: Final = 64


class SpokenBy(Protocol):
    """What a side speaks that begins with these bytes; None where they are too few. See `choosing.spoken_by`."""

    def __call__(self, sender: Sender, first: bytes, *, late: bool = False) -> str | None:
        """`late`: they begin a message, and not the conversation."""


class DecidingDialogue:
    """Keeps what comes until `spoken_by` knows the protocol from a side's bytes; then that dialogue hears it all.

    Of a side that was recorded from its beginning only the first bytes count; of another, every chunk may begin with
    a message, and nothing else is proved by one that does not.
    """

    def __init__(
        self,
        conversation: Conversation,
        spoken_by: SpokenBy,
        make: Callable[[str], Dialogue],
        unknown: str = "",
    ) -> None:
        self._conversation = conversation
        self._spoken_by = spoken_by
        self._make = make
        self._unknown = unknown
        self._kept: list[CaptureEvent] = []
        self._bytes = 0
        self._firsts: dict[Sender, bytes] = {}
        self._late: set[Sender] = set()
        self._inner: Dialogue | None = None

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """What an event completes, and at the decision what those before it did."""
        if self._inner is not None:
            yield from self._inner.receive(event)
            return
        if isinstance(event, Chunk):
            event = replace(event, data=bytes(event.data))
            self._bytes += len(event.data)
        self._kept.append(event)
        protocol = self._decided(event)
        if protocol is None and (self._bytes > MOST_BYTES or len(self._kept) > MOST_EVENTS):
            protocol = self._unknown
        if protocol is not None:
            yield from self._hear(self._make(protocol))

    def _hear(self, dialogue: Dialogue) -> Iterator[Message | Problem]:
        self._inner = dialogue
        kept, self._kept = self._kept, []
        for event in kept:
            yield from dialogue.receive(event)

    def _decided(self, event: CaptureEvent) -> str | None:
        match event:
            case Opened():
                offsets = {Sender.CLIENT: event.client_offset, Sender.SERVER: event.server_offset}
                self._late |= {sender for sender, offset in offsets.items() if offset}
            case Lost():
                self._late.add(event.sender)
                self._firsts.pop(event.sender, None)
            case Chunk():
                return self._first_bytes(event.sender, bytes(event.data))
            case _:
                pass
        return None

    def _first_bytes(self, sender: Sender, data: bytes) -> str | None:
        if sender in self._late:
            return self._spoken_by(sender, data, late=True) or None
        first = self._firsts.get(sender, b"")
        if len(first) >= _ENOUGH:
            return None
        self._firsts[sender] = first = (first + data)[:_ENOUGH]
        spoken = self._spoken_by(sender, first)
        # A server's greeting may be anything; what the client says first is the protocol's own.
        return None if spoken == self._unknown and sender is Sender.SERVER else spoken

    def end(self) -> Iterator[Message | Problem]:
        """The recording has ended: where nothing was decided, what there is was said in a protocol unknown."""
        if self._inner is None:
            yield from self._hear(self._make(self._unknown))
        assert self._inner is not None, "decided at last"
        yield from self._inner.end()
