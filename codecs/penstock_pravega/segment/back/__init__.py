"""Segment stores as backs: Pravega's, or any that speaks its protocol (segment fact sheet)."""

from penstock_pravega.segment.back.back import SegmentBack, open_segment
from penstock_pravega.segment.back.settings import SegmentBackSettings

__all__ = ["SegmentBack", "SegmentBackSettings", "open_segment"]
