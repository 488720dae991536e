"""Globs with many wildcards, matched in time proportional to wildcards times the name's length.

A regular expression tries all ways to divide the name among them: with three and a name of 512 characters, which a
client chooses, that takes 0.25 s, and each further wildcard makes it 100 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["AnyWildcard", "captured"]


class AnyWildcard(Protocol):
    """The interface of `penstock.core.matching.Wildcard`."""

    @property
    def one(self) -> bool:
        """Return whether it matches exactly one character, not any number."""

    def takes(self, character: str) -> bool:
        """Return whether it can match this character."""


def captured(pieces: Sequence[str | AnyWildcard], name: str, *, longest: bool = True) -> list[str] | None:
    """Return the text that each wildcard matches, or None if the name does not match.

    `longest`: the first wildcard matches as much as it can, then the second, and so on; otherwise as little.
    """
    fitting = _fitting(pieces, name)
    if not fitting[0][0]:
        return None
    texts: list[str] = []
    at = 0
    for piece, rest in zip(pieces, fitting[1:], strict=True):
        if isinstance(piece, str):
            at += len(piece)
            continue
        end = at + 1 if piece.one else _end(piece, name, at, rest, longest)
        texts.append(name[at:end])
        at = end
    return texts


def _fitting(pieces: Sequence[str | AnyWildcard], name: str) -> list[bytearray]:
    """Return a table for each piece, and one for the end: the positions in the name from which it and all pieces after
    it match the rest."""
    rest = bytearray(len(name) + 1)
    rest[len(name)] = 1
    tables = [rest]
    for piece in reversed(pieces):
        here = bytearray(len(name) + 1)
        for at in range(len(name), -1, -1):
            if isinstance(piece, str):
                here[at] = name.startswith(piece, at) and rest[at + len(piece)]
            elif piece.one:
                here[at] = at < len(name) and piece.takes(name[at]) and rest[at + 1]
            else:
                here[at] = rest[at] or (at < len(name) and piece.takes(name[at]) and here[at + 1])
        rest = here
        tables.append(rest)
    return tables[::-1]


def _end(piece: AnyWildcard, name: str, at: int, rest: bytearray, longest: bool) -> int:
    """Return the end of a wildcard's match that begins at `at`, such that the pieces after it match the rest."""
    if not longest:
        return rest.find(1, at)  # it takes all characters up to there, since the name matches
    bound = at
    while bound < len(name) and piece.takes(name[bound]):
        bound += 1
    return rest.rfind(1, at, bound + 1)
