"""Globs of many wildcards, held against a name in a time that is their number times its length.

A regular expression tries all ways to part the name among them: with three and a name of 512 characters, which a
client chooses, that takes 0.25 s, and with each further one 100 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["AnyWildcard", "captured"]


class AnyWildcard(Protocol):
    """See `penstock.routing.matching.Wildcard`."""

    @property
    def one(self) -> bool:
        """Whether it stands for exactly one character, else for any number."""

    @property
    def slashes(self) -> bool:
        """Whether it may stand for a slash."""


def captured(pieces: Sequence[str | AnyWildcard], name: str) -> list[str] | None:
    """What each wildcard stands for, the first one for as much as it can, then the second one, and so on; None where
    the name is not taken."""
    fitting = _fitting(pieces, name)
    if not fitting[0][0]:
        return None
    found: list[str] = []
    at = 0
    for piece, rest in zip(pieces, fitting[1:], strict=True):
        if isinstance(piece, str):
            at += len(piece)
            continue
        end = at + 1 if piece.one else _longest(piece, name, at, rest)
        found.append(name[at:end])
        at = end
    return found


def _fitting(pieces: Sequence[str | AnyWildcard], name: str) -> list[bytearray]:
    """For each piece, and for the end, where in the name it may begin so that all from there on fits."""
    rest = bytearray(len(name) + 1)
    rest[len(name)] = 1
    tables = [rest]
    for piece in reversed(pieces):
        here = bytearray(len(name) + 1)
        for at in range(len(name), -1, -1):
            if isinstance(piece, str):
                here[at] = name.startswith(piece, at) and rest[at + len(piece)]
            elif piece.one:
                here[at] = at < len(name) and _may(piece, name[at]) and rest[at + 1]
            else:
                here[at] = rest[at] or (at < len(name) and _may(piece, name[at]) and here[at + 1])
        rest = here
        tables.append(rest)
    return tables[::-1]


def _longest(piece: AnyWildcard, name: str, at: int, rest: bytearray) -> int:
    """Where a wildcard that begins at `at` ends at the latest."""
    slash = -1 if piece.slashes else name.find("/", at)
    return rest.rfind(1, at, len(name) + 1 if slash < 0 else slash + 1)


def _may(piece: AnyWildcard, character: str) -> bool:
    return piece.slashes or character != "/"
