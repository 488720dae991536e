"""The segment front: Pravega's segment store protocol, draft and released, on top of any back that keeps byte
offsets."""

from penstock_pravega.segment.front.front import SegmentFront
from penstock_pravega.segment.front.settings import SegmentSettings

__all__ = ["SegmentFront", "SegmentSettings"]
