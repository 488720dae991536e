"""Deletions that clients may repeat because an answer was lost.

S2 answers 202 to a second deletion while the first is pending. Here a deletion takes effect at once, and nothing of the
name is left: so the front remembers each deletion for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import trio

__all__ = ["Deletion", "RecentDeletions"]

Deletion = tuple[str, str, str | None]
"""The client's identity, the basin, and the stream; None: the basin itself."""

_SECONDS: Final = 60.0
"""Time for which a deletion may be repeated; clients give an attempt 5 s, and repeat it within seconds."""
_MAX_DELETIONS: Final = 1000


class RecentDeletions:
    """The deletions that were requested within the last minute, at most 1000."""

    def __init__(self) -> None:
        self._expiries: OrderedDict[Deletion, float] = OrderedDict()

    def add(self, deletion: Deletion) -> bool:
        """Add a deletion that is about to begin, since its client may leave meanwhile; return True for a repetition."""
        now = trio.current_time()
        is_repeated = self._expiries.pop(deletion, now) > now
        self._expiries[deletion] = now + _SECONDS
        if len(self._expiries) > _MAX_DELETIONS:
            self._expiries.popitem(last=False)
        return is_repeated

    def remove(self, deletion: Deletion) -> None:
        """Remove a deletion of what does not exist."""
        self._expiries.pop(deletion, None)
