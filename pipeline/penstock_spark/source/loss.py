"""Loss of records that a query needs: an error, or a warning and continuing after them.

A stream that was deleted and created again is recognized by its end, if that is before the position reached, or else by
the record before that position (`StreamClient.identity`).
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed

__all__ = ["DataLost", "Losses", "is_gone"]

_LOG: Final = logging.getLogger("penstock_spark.source")
_GONE: Final = (FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_DELETION_PENDING)


class DataLost(Exception):
    """Records were lost before they were read."""


def is_gone(failed: OperationFailed) -> bool:
    """Return whether a failure means that the stream does not exist."""
    return failed.failure.code in _GONE


class Losses:
    """Reports lost records. `fatal`: option `fail_on_data_loss`."""

    def __init__(self, fatal: bool) -> None:
        self._fatal = fatal

    def deleted(self, stream: str, position: int) -> None:
        """Report that a stream does not exist, while records from `position` on were expected."""
        self._report(f"{stream} was deleted, with its records from {position} on")

    def made_again(self, stream: str, position: int, tail: int) -> None:
        """Report that a stream ends before a position that it had reached."""
        self._report(
            f"{stream} ends at {tail}, before {position}, which existed: it was deleted and created "
            "again, and the unread records of the old stream are lost"
        )

    def replaced(self, stream: str, position: int) -> None:
        """Report that a stream has another record where the last one was read."""
        self._report(
            f"{stream} has another record before {position} than was read there: it was deleted and created "
            "again, and the unread records of the old stream are lost"
        )

    def trimmed(self, stream: str, position: int, first: int) -> None:
        """Report that a stream begins after the position needed."""
        self._report(f"{stream} was trimmed: records from {position} up to {first} are gone")

    def _report(self, what: str) -> None:
        if self._fatal:
            raise DataLost(f"{what} (with option fail_on_data_loss=false, the query skips them)")
        _LOG.warning("%s; skipping them", what)
