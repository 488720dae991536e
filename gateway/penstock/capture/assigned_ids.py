"""Ids in a recorded client's messages that another server knows under other values.

A server gives ids that its client says again: members of a group and their generation, producers, topics. A replay
learns those of the live server from the answer to the same request, and puts them into later messages of every
conversation.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

__all__ = ["AssignedIds"]

MAX_IDS: Final = 100_000
"""Most ids that are remembered; the oldest are forgotten."""

T = TypeVar("T", bound=Hashable)


class AssignedIds:
    """The ids of one run through a recording. `nonce`: 16 bytes that no other run has."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self._live: dict[Hashable, Hashable] = {}

    def learn(self, recorded: Mapping[str, Hashable], live: Mapping[str, Hashable]) -> None:
        """Note the ids of two answers to the same request, by names that both have."""
        for name, value in recorded.items():
            if name in live:
                self._live.pop(value, None)
                self._live[value] = live[name]
        while len(self._live) > MAX_IDS:
            del self._live[next(iter(self._live))]

    def live(self, recorded: T) -> T:
        """Return the live server's value, of the same type, for a recorded one; itself if it is not known."""
        return self._live.get(recorded, recorded)  # type: ignore[return-value]

    def fresh(self, recorded: bytes) -> bytes:
        """Return 16 bytes in place of an id that a client made up, the same ones for the same id in this run."""
        return bytes(one ^ other for one, other in zip(recorded, self._nonce, strict=True))
