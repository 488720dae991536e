"""The segment protocol in captures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import CapturePlugin, Likeness

if TYPE_CHECKING:
    from penstock.capture.assigned_ids import AssignedIds
    from penstock.capture.dialogue.messages import Dialogue
    from penstock.capture.redaction.flow import Redaction
    from penstock.capture.wireshark.fields import WiresharkProtocol

__all__ = ["PLUGIN"]

_SEGMENT: Final = re.compile(r"/[0-9]+(?:\.#epoch\.[0-9]+)?(?:#transaction\.[0-9a-f]+)?\Z")


def _dialogue(conversation: Conversation, memory: Any) -> Dialogue:
    from penstock_pravega.capture.conversation import SegmentDialogue

    return SegmentDialogue(conversation, memory)


def _memory() -> Any:
    from penstock_pravega.capture.delivering import Deliveries

    return Deliveries()


def _begins(sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    from penstock_pravega.capture.dialect_detection import HELLO, DetectedDialect
    from penstock_pravega.codec.layout import Direction

    if first.startswith(HELLO):
        return Likeness.MARK
    begins = DetectedDialect().begins(Direction.REQUEST if sender is Sender.CLIENT else Direction.REPLY, first)
    return None if begins is None else Likeness.SHAPE if begins else Likeness.NONE


def _stream_of(name: str) -> str:
    """Return `scope/stream` for a segment's full name, also for one of a transaction; other names unchanged.

    A segment's name ends with its number, and mostly an epoch: `scope/stream/0.#epoch.0`. A name of another protocol
    such as `basin/a/0` looks like one, so this is a guess.
    """
    return name if name.count("/") < 2 else _SEGMENT.sub("", name)


def _reassigned(ids: AssignedIds) -> Callable[[bytes], bytes]:
    from penstock_pravega.capture.ids import reassigned

    return reassigned(ids)


def _redaction() -> Redaction:
    from penstock_pravega.capture.redaction import REDACTION

    return REDACTION


def _wireshark() -> dict[str, WiresharkProtocol]:
    from penstock_pravega.capture.wireshark import segment_protocol

    return {"pravega": segment_protocol()}


PLUGIN: Final = CapturePlugin(
    dialogue=_dialogue,
    layers=("segment",),
    begins=_begins,
    memory=_memory,
    stream_of=_stream_of,
    settles_by_record=True,
    varying_requests=True,  # the ids of writers
    wireshark=_wireshark,
    reassigned=_reassigned,
    redaction=_redaction,
    hides=frozenset({Sender.CLIENT}),
    redacts={
        "tokens": "delegation tokens",
        "record_headers": "values in envelopes",
        "patterns": "events, names, and keys and values of tables",
        "withheld": "messages above 9 MiB, and what cannot be parsed",
    },
)
