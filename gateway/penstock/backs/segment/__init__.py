"""Segment stores as backs: Pravega's, or any that speaks its protocol (segment fact sheet)."""

from penstock.backs.segment.back import SegmentBack, open_segment
from penstock.backs.segment.settings import SegmentBackSettings

__all__ = ["SegmentBack", "SegmentBackSettings", "open_segment"]
