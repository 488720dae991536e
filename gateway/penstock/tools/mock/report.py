"""The report of a run with mock servers, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["MockReport"]

MOST_SHOWN: Final = 50
"""Requests of each list that are shown as text; JSON has all."""
MOST_KEPT: Final = 10_000
"""Requests of each kind that are kept; all are counted."""


class MockReport(msgspec.Struct):
    """The requests of a run. `answered`: from the recording; `forked`: by a fork. `missed`: not recorded and answered
    with an error; `passed`: not recorded and answered by a server; `never_asked`: recorded. Each request comes with its
    test, "" for none."""

    answered: int = 0
    forked: int = 0
    missed: list[tuple[str, str]] = msgspec.field(default_factory=list)
    missed_count: int = 0
    passed: list[tuple[str, str]] = msgspec.field(default_factory=list)
    passed_count: int = 0
    never_asked: list[tuple[str, str]] = msgspec.field(default_factory=list)
    recorded_into: list[str] = msgspec.field(default_factory=list)
    """Directories with new recordings."""
    unplayable: int = 0
    """Recorded conversations that cannot be taken apart into requests."""

    def miss(self, test: str, request: str) -> None:
        """Count a request that was not recorded and is answered with an error."""
        self.missed_count += 1
        if len(self.missed) < MOST_KEPT:
            self.missed.append((test, request))

    def forks(self) -> None:
        """Count a request that a fork answers."""
        self.forked += 1

    def passes(self, test: str, request: str) -> None:
        """Count a request that was not recorded and is passed to a server."""
        self.passed_count += 1
        if len(self.passed) < MOST_KEPT:
            self.passed.append((test, request))

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON."""

        def listed(requests: list[tuple[str, str]]) -> list[dict[str, str]]:
            return [{"test": test, "request": request} for test, request in requests]

        return {
            "answered": self.answered,
            "forked": self.forked,
            "missed_count": self.missed_count,
            "missed": listed(self.missed),
            "passed_count": self.passed_count,
            "passed": listed(self.passed),
            "never_asked": listed(self.never_asked),
            "recorded_into": self.recorded_into,
            "unplayable": self.unplayable,
        }

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield from _listed("not recorded", self.missed, self.missed_count)
        yield from _listed("not recorded, answered by the server", self.passed, self.passed_count)
        yield from _listed("never asked", self.never_asked, len(self.never_asked))
        yield from (f"recorded into {directory}" for directory in self.recorded_into)
        if self.unplayable:
            connections = "connection has" if self.unplayable == 1 else "connections have"
            yield f"{self.unplayable} recorded {connections} no requests that can be told apart: see --fork"
        forked = f"{self.forked} by a fork, " if self.forked else ""
        yield (
            f"{self.answered} {'request' if self.answered == 1 else 'requests'} answered from the recording, {forked}"
            f"{self.missed_count + self.passed_count} not recorded, {len(self.never_asked)} never asked"
        )


def _listed(what: str, requests: list[tuple[str, str]], count: int) -> Iterator[str]:
    for (test, request), times in list(Counter(requests).items())[:MOST_SHOWN]:
        yield f"{what}: {request}{f' ({times} times)' if times > 1 else ''}{f', by {test}' if test else ''}"
    if count > MOST_SHOWN:
        yield f"{what}: {count} in all"
