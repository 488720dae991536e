"""The segment front: Pravega's segment store protocol, draft and released, on top of any back that keeps byte
offsets."""

from penstock.protocols.segment.front.front import SegmentFront
from penstock.protocols.segment.front.settings import SegmentSettings

__all__ = ["SegmentFront", "SegmentSettings"]
