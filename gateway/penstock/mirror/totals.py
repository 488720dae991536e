"""Sums over all streams of a mirror."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.mirror.state import CAUSES, StreamState

__all__ = ["Totals"]


class Totals:
    """Sums over the states of all streams; nothing is kept of any one."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()

    def change(self, before: StreamState | None, after: StreamState | None) -> None:
        """A stream's state is another now; None: the stream is not known."""
        if before is not None:
            self._sums.subtract(_counts(before))
        if after is not None:
            self._sums.update(_counts(after))

    def shown(self) -> dict[str, Any]:
        """For people, as JSON."""
        return {
            "streams": self._sums["streams"],
            "streams_stopped": self._sums["stopped"],
            "streams_differing": self._sums["differing"],
            "records_compared": self._sums["records"],
            "records_uncompared": self._sums["uncompared"],
            "differences": {cause: self._sums[cause] for cause in CAUSES},
        }


def _counts(state: StreamState) -> Counter[str]:
    counts = Counter(state.differences)
    counts["streams"] = 1
    counts["records"] = state.hashed
    counts["uncompared"] = state.uncompared
    counts["stopped"] = int(bool(state.stopped))
    counts["differing"] = int(bool(state.faults))
    return counts
