"""The analysis plug-in of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock_analysis.capture import Conversation, Sender
from penstock_analysis.plugin import AnalysisPlugin, Likeness

if TYPE_CHECKING:
    from penstock_analysis.dialogue.messages import Dialogue
    from penstock_analysis.redaction.flow import Redaction

__all__ = ["PLUGIN"]


def _dialogue(conversation: Conversation, _memory: Any) -> Dialogue:
    from penstock_analysis.kafka.conversation import KafkaDialogue

    return KafkaDialogue(conversation)


def _begins(sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    from penstock_analysis.kafka.reading import request_begins, response_begins

    found = request_begins(first) if sender is Sender.CLIENT else response_begins(first)
    if found is None:
        return None
    likely = Likeness.SHAPE if sender is Sender.CLIENT else Likeness.GUESS
    return likely if found else Likeness.NONE


def _redaction() -> Redaction:
    from penstock_analysis.kafka.redaction import REDACTION

    return REDACTION


PLUGIN: Final = AnalysisPlugin(
    dialogue=_dialogue,
    layers=("kafka",),
    begins=_begins,
    numbered_requests=True,
    redaction=_redaction,
    hides=frozenset({Sender.CLIENT}),
    varying_fields=frozenset({"correlation_id", "throttle_time_ms"}),
)
