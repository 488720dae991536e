"""The report of a mock, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["MockReport"]

MOST_SHOWN: Final = 20
"""Differences that are kept; all are counted."""


class MockReport(msgspec.Struct):
    """The counts of a mock. `connections`: that clients made; `played`: recorded conversations played to their end;
    `sent`: bytes; `different`: messages of clients that differ from the recorded ones."""

    connections: int = 0
    played: int = 0
    sent: int = 0
    different: int = 0
    differences: list[str] = msgspec.field(default_factory=list)
    left: int = 0
    """Recorded conversations that were not played."""

    def differs(self, reason: str) -> None:
        """Count a message that differs from the recorded one."""
        self.different += 1
        if len(self.differences) < MOST_SHOWN:
            self.differences.append(reason)

    @property
    def same(self) -> bool:
        """True if all clients sent what was recorded, and every conversation was played."""
        return not self.different and not self.left

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        names = ("connections", "played", "sent", "different", "differences", "left", "same")
        return {name: getattr(self, name) for name in names}

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield from self.differences
        if self.different > len(self.differences):
            yield f"and {self.different - len(self.differences)} more differences"
        yield (
            f"{_counted(self.connections, 'connection')}, {_counted(self.played, 'conversation')} played, "
            f"{_counted(self.sent, 'byte')} sent, {_counted(self.different, 'difference')}, "
            f"{_counted(self.left, 'conversation')} not played"
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
