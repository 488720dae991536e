"""Two recordings, or a recording and a live server, compared record by record, whatever protocols they speak."""

from penstock.comparing.comparison import Comparison, StreamComparison, compare
from penstock.comparing.differences import Difference, Kind
from penstock.comparing.fields import BadField, Fields
from penstock.comparing.shelf import Shelf, Source

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
