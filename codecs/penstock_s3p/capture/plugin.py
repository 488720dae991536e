"""S3P in captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import CapturePlugin, Likeness

if TYPE_CHECKING:
    from penstock.capture.dialogue.messages import Dialogue
    from penstock.capture.redaction.flow import Redaction
    from penstock.capture.wireshark.fields import WiresharkProtocol

__all__ = ["PLUGIN"]


def _dialogue(conversation: Conversation, _memory: Any) -> Dialogue:
    from penstock_s3p.capture.conversation import S3PDialogue

    return S3PDialogue(conversation)


def _begins(sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    if sender is Sender.CLIENT:
        if first == b"*":
            return None
        return Likeness.MARK if first[:1] == b"*" and first[1:2].isdigit() else Likeness.NONE
    from penstock_s3p.capture.reading import reply_begins

    begins = reply_begins(first)
    return None if begins is None else Likeness.MARK if begins else Likeness.NONE


def _redaction() -> Redaction:
    from penstock_s3p.capture.redaction import REDACTION

    return REDACTION


def _wireshark() -> dict[str, WiresharkProtocol]:
    from penstock_s3p.capture.wireshark import PROTOCOL

    return {"s3p": PROTOCOL}


PLUGIN: Final = CapturePlugin(
    dialogue=_dialogue,
    layers=("s3p",),
    numbered_requests=True,
    begins=_begins,
    wireshark=_wireshark,
    redaction=_redaction,
    packs=False,
    redacts={
        "record_headers": "values in envelopes",
        "patterns": "bulk strings and error texts",
        "withheld": "bulk strings above 4 MiB",
    },
)
