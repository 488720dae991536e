"""Comparison of two recordings, or a recording and a live server, record by record, across protocols."""

from penstock.tools.comparing.comparison import Comparison, StreamComparison, compare
from penstock.tools.comparing.differences import Difference, Kind
from penstock.tools.comparing.fields import BadField, Fields
from penstock.tools.comparing.record_table import Shelf, Source

__all__ = [
    "BadField",
    "Comparison",
    "Difference",
    "Fields",
    "Kind",
    "Shelf",
    "Source",
    "StreamComparison",
    "compare",
]
