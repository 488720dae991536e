"""The protocols of recorded conversations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock_analysis.capture import CaptureEvent, Chunk, Conversation, Sender
from penstock_analysis.dialogue import Message
from penstock_analysis.dialogue.choosing import ENOUGH, spoken_by
from penstock_analysis.dialogue.http.dialogue import HttpDialogue
from penstock_analysis.dialogue.http.exchanges import claimed_by
from penstock_analysis.plugin import plugins
from penstock_codecs.http import RequestHead

__all__ = ["is_http", "protocol_of"]

_LEAST: Final = 4
"""Bytes that tell protocols, their dialects and versions apart."""


def is_http(protocol: str) -> bool:
    """Return whether a protocol is carried by HTTP."""
    return protocol in plugins() and plugins()[protocol].over_http


def protocol_of(conversation: Conversation, events: Sequence[CaptureEvent]) -> str | None:
    """Return the protocol of a conversation from its first events, as in `Conversation.protocol`; "" if it is unknown.

    Returns None if the client has not sent enough.
    """
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
        for item in dialogue.receive(event):
            if isinstance(item, Message) and isinstance(item.event, RequestHead):
                return claimed_by(item.event, conversation)
    return None


def _first(events: Iterable[CaptureEvent]) -> bytes:
    chunks = (event for event in events if isinstance(event, Chunk) and event.sender is Sender.CLIENT)
    return b"".join(bytes(chunk.data[:ENOUGH]) for chunk in chunks)
