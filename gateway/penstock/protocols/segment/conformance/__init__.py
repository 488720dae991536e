"""Conformance cases of the segment protocol: `RELEASED` and `DRAFT`, a suite for each dialect."""

from penstock.protocols.segment.conformance.draft import DRAFT
from penstock.protocols.segment.conformance.released import RELEASED

__all__ = ["DRAFT", "RELEASED"]
