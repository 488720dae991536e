"""Conformance cases of the segment protocol: `RELEASED` and `DRAFT`, a suite for each dialect."""

from penstock_pravega.segment.conformance.draft import DRAFT
from penstock_pravega.segment.conformance.released import RELEASED

__all__ = ["DRAFT", "RELEASED"]
