"""The analysis plug-in of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_analysis.capture import Conversation, Sender
from penstock_analysis.plugin import AnalysisPlugin, Likeness

if TYPE_CHECKING:
    from penstock_analysis.dialogue.messages import Dialogue
    from penstock_analysis.redaction.flow import Redaction

__all__ = ["PLUGIN"]


def _dialogue(conversation: Conversation, names: dict[bytes, str]) -> Dialogue:
    from penstock_analysis.kafka.conversation import KafkaDialogue

    return KafkaDialogue(conversation, names)


def _begins(sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    """Recognize a client. A server's first bytes are those of many protocols."""
    from penstock_analysis.kafka.reading import request_begins

    if sender is Sender.SERVER:
        return Likeness.NONE
    found = request_begins(first)
    return None if found is None else Likeness.SHAPE if found else Likeness.NONE


def _redaction() -> Redaction:
    from penstock_analysis.kafka.redaction import REDACTION

    return REDACTION


PLUGIN: Final = AnalysisPlugin(
    dialogue=_dialogue,
    memory=dict,
    layers=("kafka",),
    begins=_begins,
    numbered_requests=True,
    redaction=_redaction,
    hides=frozenset({Sender.CLIENT}),
    varying_fields=frozenset({"correlation_id", "throttle_time_ms"}),
)
