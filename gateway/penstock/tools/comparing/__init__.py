"""Comparison of two recordings, or a recording and a live server, record by record, across protocols."""

from penstock.tools.comparing.comparison import Comparison, StreamComparison, compare_streams
from penstock.tools.comparing.differences import DiffKind, RecordDifference
from penstock.tools.comparing.fields import BadField, Fields
from penstock.tools.comparing.record_table import Input, RecordTable

__all__ = [
    "BadField",
    "Comparison",
    "DiffKind",
    "Fields",
    "Input",
    "RecordDifference",
    "RecordTable",
    "StreamComparison",
    "compare_streams",
]
