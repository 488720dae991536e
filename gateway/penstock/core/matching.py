"""The streams that a route matches: patterns for names, and their captures.

A basin is matched by a glob (its characters need no escape, so a plain name is a glob of itself), a stream by the rule
that the route gives: exact, prefix, glob or regex. Wildcards capture the text that they match; captures are numbered
from 1, the basin's first, and those of a regular expression may have names. A prefix captures the rest as `rest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from penstock.core.globs import captured
from penstock.model.records import StreamRef

__all__ = ["Captures", "Match", "NamePattern", "Pieces", "StreamPattern", "Wildcard"]

Captures = Mapping[str, str]
"""Captured text by its name in templates: `1`, `2`, `rest`, and the names of a regular expression's groups."""
_WILDCARD: Final = re.compile(r"(\*\*|\*|\?)")
_STEEP: Final = 3
"""Fewest wildcards for any number of characters that are too many for a regular expression (see
`penstock.core.globs`)."""
_ALL: Final = frozenset({".*", "(.*)"})
_OWN_NAMES: Final = frozenset({"basin", "stream"})
"""Names in templates for the basin and the stream that the client asked for."""


class Match(Enum):
    """The way to match a stream's name with a pattern; the value is the TOML word."""

    EXACT = "exact"
    PREFIX = "prefix"
    GLOB = "glob"
    REGEX = "regex"


class Wildcard(msgspec.Struct, frozen=True):
    """A wildcard of a pattern. `name`: of its capture. `one`: it matches exactly one character. `slashes`: it may match
    a slash."""

    name: str
    one: bool
    slashes: bool

    def takes(self, character: str) -> bool:
        """See `penstock.core.globs.AnyWildcard`."""
        return self.slashes or character != "/"

    @property
    def expression(self) -> str:
        """The wildcard as a group of a regular expression."""
        character = "." if self.slashes else "[^/]"
        return f"({character})" if self.one else f"({character}*)"


Pieces = tuple[str | Wildcard, ...]
"""The parts of a pattern: text and wildcards."""


class NamePattern(msgspec.Struct, frozen=True):
    """A pattern for one name. `pieces`: its parts, None for a regular expression; `captures`: the names of its
    captures. `everything`: it matches all names. `steep`: the expression takes too long on a name that does not
    match."""

    expression: re.Pattern[str]
    captures: tuple[str, ...]
    pieces: Pieces | None
    everything: bool = False
    steep: bool = False

    @classmethod
    def compile(cls, match: Match, text: str | None, first: int = 1) -> NamePattern:
        """Compile a pattern of the configuration; None matches everything and captures nothing. `first`: the number of
        the first capture. Raises ValueError for a bad regular expression."""
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
        """The wildcards among its pieces."""
        return tuple(piece for piece in self.pieces or () if isinstance(piece, Wildcard))

    def match(self, name: str) -> dict[str, str] | None:
        """Return the captures of `name`, or None if it does not match."""
        if self.steep and self.pieces is not None:
            stands_for = captured(self.pieces, name)
            return None if stands_for is None else dict(zip(self.captures, stands_for, strict=True))
        match = self.expression.fullmatch(name)
        if match is None:
            return None
        known = dict(zip(self.captures, (group or "" for group in match.groups()), strict=True))
        known.update({key: value or "" for key, value in match.groupdict().items()})
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
    from penstock.model.expressions import compile_expression

    expression = compile_expression(text)
    for name in expression.groupindex:
        if name in _OWN_NAMES:
            raise ValueError(
                f"a group of {text!r} is called {name}, which is reserved for the client's own name: rename it"
            )
    return NamePattern(expression, tuple(map(str, range(first, first + expression.groups))), None, text in _ALL)


class StreamPattern(msgspec.Struct, frozen=True):
    """A pattern for basin and stream: the streams that a route matches."""

    basin: NamePattern
    stream: NamePattern

    @classmethod
    def compile(cls, match: Match, basin: str | None, stream: str | None) -> StreamPattern:
        """Compile the patterns of a configuration; None matches any name. Raises ValueError."""
        basins = NamePattern.compile(Match.GLOB, basin)
        return cls(basins, NamePattern.compile(match, stream, 1 + len(basins.captures)))

    def match(self, stream: StreamRef) -> Captures | None:
        """Return the captures of a stream's names, with the names themselves as `basin` and `stream`; None if it does
        not match."""
        of_basin = self.basin.match(stream.basin)
        of_stream = None if of_basin is None else self.stream.match(stream.stream)
        if of_basin is None or of_stream is None:
            return None
        return {**of_basin, **of_stream, "basin": stream.basin, "stream": stream.stream}

    def may_begin(self, basin: str, prefix: str) -> bool:
        """Return whether it may match a stream of this basin whose name begins with `prefix`."""
        if self.basin.match(basin) is None:
            return False
        first = self.stream.pieces[0] if self.stream.pieces else ""
        return not isinstance(first, str) or first.startswith(prefix) or prefix.startswith(first)

    @property
    def captures(self) -> frozenset[str]:
        """The names of captures that templates can use."""
        named = self.stream.expression.groupindex
        return frozenset({*self.basin.captures, *self.stream.captures, *named, "basin", "stream"})

    @property
    def everything(self) -> bool:
        """Return whether it matches all streams."""
        return self.basin.everything and self.stream.everything
