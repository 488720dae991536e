"""What recorded conversations speak, and who hears them."""

from __future__ import annotations

import re
from typing import Final

from penstock_codecs.capture import Conversation
from penstock_codecs.dialogue import Dialogue
from penstock_codecs.dialogue.http.dialogue import HttpDialogue
from penstock_codecs.dialogue.s3p import S3PDialogue
from penstock_codecs.dialogue.segment import SegmentDialogue

__all__ = ["dialogue_of_protocol", "is_http", "protocol_of"]

_HTTP: Final = frozenset({"s2", "controller"})
_REQUEST: Final = re.compile(rb"(PRI|[A-Z]{3,16}) ")
_CONTROLLER: Final = b"io.pravega.controller"


def is_http(protocol: str) -> bool:
    """Whether a protocol rides on HTTP."""
    return protocol in _HTTP


def protocol_of(conversation: Conversation, first: bytes) -> str:
    """What a conversation speaks, whose client began with `first`; "" where nobody knows."""
    if conversation.protocol:
        return conversation.protocol
    if not first:
        return ""
    if first.startswith(b"*"):
        return "s3p"
    if _REQUEST.match(first):
        return "s2"
    return "segment" if first.startswith((b"\xff\xff\xff\x81", b"\0")) else ""


def dialogue_of_protocol(conversation: Conversation, protocol: str) -> Dialogue:
    """Who hears such a conversation."""
    if is_http(protocol):
        return HttpDialogue(conversation)
    return S3PDialogue(conversation) if protocol == "s3p" else SegmentDialogue(conversation)
