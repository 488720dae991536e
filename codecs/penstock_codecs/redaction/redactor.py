"""Rules applied to capture events, for all conversations of one recording."""

from __future__ import annotations

from penstock_codecs.capture import CaptureEvent
from penstock_codecs.redaction.rules import RedactionRules

__all__ = ["Redactor"]


class Redactor:
    """Events in, events out, with secrets blanked and every length and offset kept.

    Bytes whose meaning depends on what comes next are held back, at most 128 KiB for each side of a conversation, until
    more comes or the side ends; a chunk may therefore come out later, in other cuts, and with the time at which its
    last byte went by. What cannot be understood (a protocol that breaks its rules, the middle of a conversation) is
    searched for the patterns and for what looks like a header line, and HTTP/2 heads in it are blanked whole.
    """

    def __init__(self, rules: RedactionRules) -> None:
        raise NotImplementedError

    def redact(self, event: CaptureEvent) -> list[CaptureEvent]:
        """What may be written of it now. Never raises for what peers said."""
        raise NotImplementedError

    def flush(self) -> list[CaptureEvent]:
        """What is held back, of all conversations, redacted as it stands: the recording ends or pauses."""
        raise NotImplementedError
