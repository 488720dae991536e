"""What a mock did, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MockReport"]

MOST_SHOWN: Final = 20
"""So many differences are kept; all are counted."""


@dataclass(slots=True)
class MockReport:
    """`connections`: that clients made; `played`: recorded conversations that were played to their end; `sent`: bytes;
    `different`: how often a client said something else than the recorded one."""

    connections: int = 0
    played: int = 0
    sent: int = 0
    different: int = 0
    differences: list[str] = field(default_factory=list)
    left: int = 0
    """Recorded conversations that no client came for."""

    def differs(self, why: str) -> None:
        """A client said something else."""
        self.different += 1
        if len(self.differences) < MOST_SHOWN:
            self.differences.append(why)

    @property
    def same(self) -> bool:
        """Whether all clients said what was recorded, and each recorded one came."""
        return not self.different and not self.left

    def as_json(self) -> dict[str, Any]:
        """For JSON."""
        names = ("connections", "played", "sent", "different", "differences", "left", "same")
        return {name: getattr(self, name) for name in names}

    def lines(self) -> Iterator[str]:
        """For people."""
        yield from self.differences
        if self.different > len(self.differences):
            yield f"and {self.different - len(self.differences)} more differences"
        yield (
            f"{_counted(self.connections, 'connection')}, {_counted(self.played, 'conversation')} played, "
            f"{_counted(self.sent, 'byte')} sent, {_counted(self.different, 'difference')}, "
            f"{_counted(self.left, 'conversation')} not asked for"
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
