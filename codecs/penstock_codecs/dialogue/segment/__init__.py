"""Conversations of the segment protocol as messages, in both dialects (segment fact sheet)."""

from penstock_codecs.dialogue.segment.conversation import SegmentDialogue
from penstock_codecs.dialogue.segment.delivering import Deliveries

__all__ = ["Deliveries", "SegmentDialogue"]
