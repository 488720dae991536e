"""The segment front: Pravega's segment store protocol, draft and released, on top of any back that knows bytes."""

from penstock.fronts.segment.front import SegmentFront
from penstock.fronts.segment.settings import SegmentSettings

__all__ = ["SegmentFront", "SegmentSettings"]
