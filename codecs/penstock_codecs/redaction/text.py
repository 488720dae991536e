"""Text that is searched for patterns, whole or as it comes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["Buffer", "Edit", "Patterns", "Search", "Span", "joined", "stars"]

Buffer = bytes | bytearray | memoryview
Span = tuple[int, int]
"""Where something starts and ends."""


class Edit(NamedTuple):
    """`data` is to stand from `start` on."""

    start: int
    data: bytes


_STARS: Final = b"*" * 1024


def stars(size: int) -> bytes:
    """What a secret of so many bytes becomes."""
    return _STARS[:size] if size <= len(_STARS) else b"*" * size


_LOOKS_AROUND: Final = re.compile(rb"(?<!\[)\^|\$|\\[AbBZ]|\(\?<?[=!]")
"""What makes a match depend on what stands around it; where it is not sure that it does, it counts as such."""


class Patterns:
    """Regular expressions of secrets. Raises ValueError for what is none."""

    def __init__(self, patterns: Sequence[bytes], longest: int) -> None:
        if longest < 1:
            raise ValueError(f"longest_match is {longest}, and must be at least 1")
        self.longest = longest if patterns else 1
        self.compiled = []
        for pattern in patterns:
            try:
                self.compiled.append(re.compile(pattern))
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None

        self._search_tells = not any(map(_LOOKS_AROUND.search, patterns))

    def __bool__(self) -> bool:
        return bool(self.compiled)

    def may_match_in(self, data: bytes) -> bool:
        """Whether there may be a match in any part of `data`."""
        return not self._search_tells or any(pattern.search(data) for pattern in self.compiled)

    def spans(self, text: bytes) -> list[Span]:
        """All matches in a text that is all there; they may overlap."""
        return [
            match.span() for pattern in self.compiled for match in pattern.finditer(text) if match.end() > match.start()
        ]


class Search:
    """Text that comes in pieces. Each `take` and `end` gives the spans that have become certain, counted from the
    first byte of all; what stands before `certain` will not be found any more.

    A match that starts so near the end of what has come that it could go on is left until more comes.
    """

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._text = b""
        self._base = 0  # of `_text`
        self._next = [0] * len(patterns.compiled)  # where each pattern's next match may start
        self.certain = 0

    def take(self, data: Buffer) -> list[Span]:
        """More of the text."""
        self._text += data
        end = self._base + len(self._text)
        return self._search(max(self.certain, end - self._patterns.longest + 1))

    def end(self) -> list[Span]:
        """There is no more."""
        end = self._base + len(self._text)
        found = self._search(end)
        self._text, self._base = b"", end
        return found

    def _search(self, certain: int) -> list[Span]:
        """Matches that start before `certain`. Behind the last one they end no pattern is looked for."""
        found = []
        for number, pattern in enumerate(self._patterns.compiled):
            start = self._next[number]
            for match in pattern.finditer(self._text, max(0, start - self._base)):
                if match.start() + self._base >= certain:
                    break
                start = match.end() + self._base
                if match.end() > match.start():
                    found.append((match.start() + self._base, start))
            self._next[number] = max(start, certain)
        self.certain = certain
        # What a lookbehind or \b looks at stays.
        forget = certain - self._patterns.longest - self._base
        if forget > 0:
            self._text = self._text[forget:]
            self._base += forget
        return found


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same places without overlaps, in order."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out
