"""HTTP in captures: alone, as on the management listener, and as the carrier of other protocols."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import HTTP, CapturePlugin, Likeness
from penstock.wire.http.sniff import PREFACE

if TYPE_CHECKING:
    from penstock.capture.dialogue.messages import Dialogue

__all__ = ["HTTP_REDACTS", "PLUGIN", "VARYING_HEADERS", "http_dialogue"]

_REQUEST_LINE: Final = re.compile(rb"[A-Z]{1,16}(?: ([/*a-z])?)?")
"""A method, and how a target begins: a path, `*`, or a whole URI (RFC 9112, section 3)."""
_STATUS_LINE: Final = b"HTTP/1."
_FRAME_HEAD_BYTES: Final = 9
VARYING_HEADERS: Final = frozenset(
    {
        *("host", "authorization", "cookie", "date", "user-agent"),
        *("traceparent", "tracestate", "x-request-id", "x-correlation-id"),
        *("grpc-timeout", "content-length"),
    }
)
HTTP_REDACTS: Final = {
    "headers": "values in heads and trailers",
    "parameters": "values in URLs",
}
"""Parts that rules blank in every protocol over HTTP, see `CapturePlugin.redacts`."""


def http_dialogue(conversation: Conversation, _memory: Any) -> Dialogue:
    """Return the dialogue of a conversation over HTTP, whatever it carries."""
    from penstock.capture.dialogue.http.dialogue import HttpDialogue

    return HttpDialogue(conversation)


def _begins(sender: Sender, first: bytes, late: bool) -> Likeness | None:
    likeness = _client_begins(first) if sender is Sender.CLIENT else _server_begins(first)
    if likeness or not late or (likeness is None and len(first) < _FRAME_HEAD_BYTES):
        return likeness
    from penstock.wire.http.observer.frames import plausible

    if len(first) < _FRAME_HEAD_BYTES:
        return None
    return Likeness.GUESS if plausible(first) else likeness


def _client_begins(first: bytes) -> Likeness | None:
    if first.startswith(PREFACE):
        return Likeness.MARK
    match = _REQUEST_LINE.match(first)
    if match is None:
        return Likeness.NONE
    if match[1]:
        return Likeness.SHAPE
    return None if match.end() == len(first) else Likeness.NONE


def _server_begins(first: bytes) -> Likeness | None:
    """Compare with a status line, and with SETTINGS of stream 0, without ACK, its length a multiple of 6."""
    if _STATUS_LINE.startswith(first[: len(_STATUS_LINE)]):
        return Likeness.MARK if len(first) >= len(_STATUS_LINE) else None
    if len(first) < _FRAME_HEAD_BYTES:
        return None if first[:1] == b"\0" else Likeness.NONE
    settings = first[3:9] == b"\x04\0\0\0\0\0" and int.from_bytes(first[:3], "big") % 6 == 0
    return Likeness.MARK if settings else Likeness.NONE


PLUGIN: Final = CapturePlugin(
    dialogue=http_dialogue,
    layers=(HTTP,),
    begins=_begins,
    varying_headers=VARYING_HEADERS,
)
