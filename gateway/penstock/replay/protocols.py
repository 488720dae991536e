"""What recorded conversations speak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock_codecs.capture import CaptureEvent, Chunk, Conversation, Sender
from penstock_codecs.dialogue import Message
from penstock_codecs.dialogue.choosing import ENOUGH, spoken_by
from penstock_codecs.dialogue.http.dialogue import HttpDialogue
from penstock_codecs.http import RequestHead

__all__ = ["is_http", "protocol_of"]

_HTTP: Final = frozenset({"s2", "controller"})
_LEAST: Final = 4
"""So many bytes show which version of HTTP it is, and which dialect of the segment protocol."""
_CONTROLLER: Final = "/io.pravega.controller."


def is_http(protocol: str) -> bool:
    """Whether a protocol rides on HTTP."""
    return protocol in _HTTP


def protocol_of(conversation: Conversation, events: Iterable[CaptureEvent]) -> str | None:
    """What a conversation speaks that began so: as in `Conversation.protocol`, "" where nobody knows. None: its client
    has not said enough."""
    first = _first(events)
    if len(first) < _LEAST:
        return None
    if conversation.protocol:
        return conversation.protocol
    spoken = spoken_by(Sender.CLIENT, first)
    if spoken != "http":
        return spoken
    dialogue = HttpDialogue(conversation)
    for event in events:
        for told in dialogue.receive(event):
            if isinstance(told, Message) and isinstance(told.event, RequestHead):
                return "controller" if told.event.target.startswith(_CONTROLLER) else "s2"
    return None


def _first(events: Iterable[CaptureEvent]) -> bytes:
    chunks = (event for event in events if isinstance(event, Chunk) and event.sender is Sender.CLIENT)
    return b"".join(bytes(chunk.data[:ENOUGH]) for chunk in chunks)
