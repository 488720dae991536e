"""Which streams a route takes: patterns for names, and what they capture.

A basin is matched by a glob (its characters need no escape, so a plain name is a glob of itself), a stream by the rule
that the route says: exact, prefix, glob or regex. Wildcards capture what they stand for; captures are numbered from 1,
the basin's first, and those of a regular expression may have names. A prefix captures the rest as `rest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.routing.globs import captured
from penstock_codecs.model import StreamRef

__all__ = ["Captures", "Match", "NamePattern", "Pieces", "StreamPattern", "Wildcard"]

Captures = Mapping[str, str]
"""By their names in templates: `1`, `2`, `rest`, and those of a regular expression."""


class Match(Enum):
    """How a stream's name is held against a pattern; the value is the TOML word."""

    EXACT = "exact"
    PREFIX = "prefix"
    GLOB = "glob"
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A part of a pattern that stands for many: by its capture's name. `one`: exactly one character. `slashes`:
    whether it may stand for a slash."""

    name: str
    one: bool
    slashes: bool

    @property
    def character(self) -> str:
        """The characters that it may stand for, as a regular expression."""
        return "." if self.slashes else "[^/]"

    @property
    def expression(self) -> str:
        """What it may stand for, as a regular expression."""
        return f"({self.character})" if self.one else f"({self.character}*)"


Pieces = tuple[str | Wildcard, ...]
"""A pattern taken apart: text and wildcards."""

_WILDCARD: Final = re.compile(r"(\*\*|\*|\?)")
_STEEP: Final = 3
"""So many wildcards for any number of characters are one too many for an expression (`penstock.routing.globs`)."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern for one name. `pieces`: what it is made of, None for a regular expression; `captures`: the names of its
    captures. `everything`: it takes all names. `steep`: trying the expression on a bad name takes too long."""

    expression: re.Pattern[str]
    captures: tuple[str, ...]
    pieces: Pieces | None
    everything: bool = False
    steep: bool = False

    @classmethod
    def compile(cls, match: Match, text: str | None, first: int = 1) -> NamePattern:
        """From what a configuration says; None takes everything and captures nothing. `first`: the number of the first
        capture. Raises ValueError for a bad regular expression."""
        if text is None:
            return cls(re.compile(".*", re.DOTALL), (), None, everything=True)
        if match is Match.REGEX:
            return _regex(text, first)
        pieces = _PIECES[match](text, first)
        expression = "".join(re.escape(one) if isinstance(one, str) else one.expression for one in pieces)
        names = tuple(one.name for one in pieces if isinstance(one, Wildcard))
        everything = len(pieces) == 1 and isinstance(pieces[0], Wildcard) and pieces[0].slashes and not pieces[0].one
        steep = sum(isinstance(piece, Wildcard) and not piece.one for piece in pieces) >= _STEEP
        return cls(re.compile(expression, re.DOTALL), names, pieces, everything, steep)

    @property
    def wildcards(self) -> tuple[Wildcard, ...]:
        """Those of its pieces."""
        return tuple(piece for piece in self.pieces or () if isinstance(piece, Wildcard))

    def match(self, name: str) -> dict[str, str] | None:
        """What it captures of `name`; None where it does not take it."""
        if self.steep and self.pieces is not None:
            stands_for = captured(self.pieces, name)
            return None if stands_for is None else dict(zip(self.captures, stands_for, strict=True))
        found = self.expression.fullmatch(name)
        if found is None:
            return None
        known = dict(zip(self.captures, (group or "" for group in found.groups()), strict=True))
        known.update({key: value or "" for key, value in found.groupdict().items()})
        return known


def _exact(text: str, _first: int) -> Pieces:
    return (text,)


def _prefix(text: str, _first: int) -> Pieces:
    rest = Wildcard("rest", one=False, slashes=True)
    return (text, rest) if text else (rest,)


def _glob(text: str, first: int) -> Pieces:
    pieces: list[str | Wildcard] = []
    for part in filter(None, _WILDCARD.split(text)):
        if _WILDCARD.fullmatch(part):
            pieces.append(Wildcard(str(first), one=part == "?", slashes=part == "**"))
            first += 1
        else:
            pieces.append(part)
    return tuple(pieces)


_PIECES: Final = {Match.EXACT: _exact, Match.PREFIX: _prefix, Match.GLOB: _glob}


def _regex(text: str, first: int) -> NamePattern:
    try:
        expression = re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    for name in expression.groupindex:
        if name in _OWN_NAMES:
            raise ValueError(
                f"a group of {text!r} is called {name}, which means the client's own name: call it otherwise"
            )
    return NamePattern(expression, tuple(map(str, range(first, first + expression.groups))), None, text in _ALL)


_ALL: Final = frozenset({".*", "(.*)"})
_OWN_NAMES: Final = frozenset({"basin", "stream"})
"""What templates call what was asked for."""


@dataclass(frozen=True, slots=True)
class StreamPattern:
    """The streams that a route takes."""

    basin: NamePattern
    stream: NamePattern

    @classmethod
    def compile(cls, match: Match, basin: str | None, stream: str | None) -> StreamPattern:
        """From what a configuration says; None: any. Raises ValueError."""
        basins = NamePattern.compile(Match.GLOB, basin)
        return cls(basins, NamePattern.compile(match, stream, 1 + len(basins.captures)))

    def match(self, stream: StreamRef) -> Captures | None:
        """What it captures of a stream's names, which are `basin` and `stream`; None where it does not take it."""
        of_basin = self.basin.match(stream.basin)
        of_stream = None if of_basin is None else self.stream.match(stream.stream)
        if of_basin is None or of_stream is None:
            return None
        return {**of_basin, **of_stream, "basin": stream.basin, "stream": stream.stream}

    def may_begin(self, basin: str, prefix: str) -> bool:
        """Whether it may take a stream of this basin whose name begins so."""
        if self.basin.match(basin) is None:
            return False
        first = self.stream.pieces[0] if self.stream.pieces else ""
        return not isinstance(first, str) or first.startswith(prefix) or prefix.startswith(first)

    @property
    def captures(self) -> frozenset[str]:
        """What templates can name."""
        named = self.stream.expression.groupindex
        return frozenset({*self.basin.captures, *self.stream.captures, *named, "basin", "stream"})

    @property
    def everything(self) -> bool:
        """Whether it takes all streams."""
        return self.basin.everything and self.stream.everything
