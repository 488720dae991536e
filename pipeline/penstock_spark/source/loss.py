"""What a query must have and the server has not any more: an error that says so, or a warning and going on.

A stream that was deleted and made again is known by its end, which lies before what was read already. Where the new one
has grown beyond that in the meantime, no protocol tells the two apart. S3P's identifiers are times, so there the new
stream's records follow those of the old one.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import Mark

__all__ = ["DataLost", "Losses", "says_gone"]

_LOG: Final = logging.getLogger("penstock_spark.source")
_GONE: Final = (FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_DELETION_PENDING)


class DataLost(Exception):
    """Records are gone before they were read."""


def says_gone(failed: OperationFailed) -> bool:
    """Whether the server says that there is no such stream."""
    return failed.failure.code in _GONE


class Losses:
    """What to do about lost records. `fatal`: option `fail_on_data_loss`."""

    def __init__(self, fatal: bool) -> None:
        self._fatal = fatal

    def deleted(self, stream: str, wanted: Mark) -> None:
        """There is no such stream, and records from `wanted` on were expected."""
        self._say(f"{stream} was deleted, with its records from {_shown(wanted)} on")

    def made_again(self, stream: str, wanted: Mark, tail: Mark) -> None:
        """The stream ends before what was read already, or was there."""
        self._say(
            f"{stream} ends at {_shown(tail)}, before {_shown(wanted)}, which was there: it was deleted and made "
            "again, and what the old one still held is gone"
        )

    def trimmed(self, stream: str, wanted: Mark, first: Mark) -> None:
        """The stream begins behind what is needed."""
        self._say(f"{stream} was trimmed: records from {_shown(wanted)} up to {_shown(first)} are gone")

    def _say(self, what: str) -> None:
        if self._fatal:
            raise DataLost(f"{what} (with option fail_on_data_loss=false, the query goes on behind them)")
        _LOG.warning("%s; going on behind them", what)


def _shown(mark: Mark) -> str:
    return f"{mark.seq_num} (place {mark.place})" if mark.place else str(mark.seq_num)
