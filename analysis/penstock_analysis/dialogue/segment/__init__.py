"""Conversations of the segment protocol as messages, in both dialects (segment fact sheet)."""

from penstock_analysis.dialogue.segment.conversation import SegmentDialogue
from penstock_analysis.dialogue.segment.delivering import Deliveries

__all__ = ["Deliveries", "SegmentDialogue"]
