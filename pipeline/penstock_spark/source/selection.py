"""Selection of streams: names, and patterns that are looked up again for each micro-batch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from penstock_spark.clients.client import StreamClient

__all__ = ["LEDGERS", "StreamSelection", "read_names"]

LEDGERS: Final = "penstock-sink."
"""Prefix of the names of the sink's own streams; only patterns that contain it match these."""

_SPECIAL: Final = re.compile(r"[*?[]")


class StreamSelection(NamedTuple):
    """Streams by their full names (`basin/stream`), and by glob patterns: `*` and `?` match `/`, too."""

    names: tuple[str, ...]
    patterns: tuple[str, ...] = ()

    def within(self, basin: str | None) -> StreamSelection:
        """Return the same selection, with names in a basin."""
        if basin is None:
            return self
        return StreamSelection(
            tuple(f"{basin}/{name}" for name in self.names),
            tuple(f"{escape(basin)}/{pattern}" for pattern in self.patterns),
        )

    def find(self, client: StreamClient) -> list[str]:
        """Return the names of all streams, each once, sorted; named ones even if they do not exist."""
        streams = set(self.names)
        for pattern in self.patterns:
            streams.update(name for name in client.streams(_literal(pattern)) if _matches(pattern, name))
        return sorted(streams)

    def includes(self, name: str) -> bool:
        """Return whether a stream of this name is read."""
        return name in self.names or any(_matches(pattern, name) for pattern in self.patterns)

    def __str__(self) -> str:
        return ", ".join((*self.names, *self.patterns))


def _matches(pattern: str, name: str) -> bool:
    shown = LEDGERS in pattern or not name.rpartition("/")[2].startswith(LEDGERS)
    return shown and fnmatchcase(name, pattern)


def _literal(pattern: str) -> str:
    """Return the literal prefix of a pattern."""
    special = _SPECIAL.search(pattern)
    return pattern[: special.start()] if special else pattern


def read_names(text: str) -> tuple[str, ...]:
    """Parse names in a JSON array, or separated by commas. Raises ValueError."""
    names: Iterable[object] = text.split(",")
    if text.startswith("["):
        try:
            names = json.loads(text)
        except ValueError as wrong:
            raise ValueError(f"is not JSON: {wrong}") from None
    else:
        names = [part.strip() for part in text.split(",")]
    given_names = [name for name in names if isinstance(name, str) and name]
    if len(given_names) != len(list(names)) or not given_names:
        raise ValueError("a name is missing or not a string")
    return tuple(dict.fromkeys(given_names))
