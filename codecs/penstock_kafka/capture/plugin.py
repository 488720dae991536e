"""Kafka in captures: its plug-in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import CapturePlugin, Likeness

if TYPE_CHECKING:
    from penstock.capture.assigned_ids import AssignedIds
    from penstock.capture.dialogue.messages import Dialogue, Message
    from penstock.capture.redaction.flow import Redaction

__all__ = ["PLUGIN"]


def _dialogue(conversation: Conversation, names: dict[bytes, str]) -> Dialogue:
    from penstock_kafka.capture.conversation import KafkaDialogue

    return KafkaDialogue(conversation, names)


def _begins(sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    """Recognize a client. A server's first bytes are those of many protocols."""
    from penstock_kafka.capture.reading import request_begins

    if sender is Sender.SERVER:
        return Likeness.NONE
    begins = request_begins(first)
    return None if begins is None else Likeness.SHAPE if begins else Likeness.NONE


def _given_ids(message: Message) -> Mapping[str, Hashable]:
    from penstock_kafka.capture.ids import given_ids

    return given_ids(message)


def _reassigned(ids: AssignedIds) -> Callable[[bytes], bytes]:
    from penstock_kafka.capture.ids import reassigned

    return reassigned(ids)


def _redaction() -> Redaction:
    from penstock_kafka.capture.redaction import REDACTION

    return REDACTION


PLUGIN: Final = CapturePlugin(
    dialogue=_dialogue,
    memory=dict,
    layers=("kafka",),
    begins=_begins,
    numbered_requests=True,
    given_ids=_given_ids,
    reassigned=_reassigned,
    redaction=_redaction,
    hides=frozenset({Sender.CLIENT}),
    varying_requests=True,  # the ids of producers and members
    redacts={
        "tokens": "what clients send to SASL: passwords, SCRAM proofs, OAuth tokens",
        "record_headers": "values in record sets of every compression, and in envelopes",
        "patterns": "keys, values and headers of records, names, and error texts",
        "withheld": "batches of formats 0 and 1, damaged, or too small to be packed again; messages above 15 MiB, "
        "of unknown APIs, and without their request",
    },
)
