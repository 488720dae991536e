"""The segment protocol's client for the source, the sink and the jobs."""

from penstock_spark.clients.segment.client import SegmentStreams

__all__ = ["SegmentStreams"]
