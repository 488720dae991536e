"""The position index of a stream that lives on another server.

Kept in a table of the embedded store, one item for each mark, and in memory while the stream is in use. What an index
once said of a record it says for ever, also after a restart: sequence numbers and timestamps that clients were given
stay what they are.
"""

from __future__ import annotations

from penstock.positions.marks import START, Mark

__all__ = ["PositionIndex"]


class PositionIndex:
    """The marks of one stream, oldest first, and where it ends as far as is known."""

    @property
    def end(self) -> Mark:
        """Behind the last record that is known: where reading on begins."""
        return START

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last record that is known; 0 where there is none."""
        return 0
