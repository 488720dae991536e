"""Search text for patterns, whole or as it arrives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from penstock.model.expressions import compile_expression

__all__ = ["Buffer", "Edit", "Patterns", "Search", "Span", "WithheldEdit", "changed", "joined", "stars"]

Buffer = bytes | bytearray | memoryview
Span = tuple[int, int]
"""Start and end."""
_STARS: Final = b"*" * 1024
_LOOKS_AROUND: Final = re.compile(rb"(?<!\[)\^|\$|\\[AbBZ]")
"""Syntax that makes a match depend on the bytes around it; in case of doubt it counts as such."""


class Edit(NamedTuple):
    """Replacement of the bytes from `start` on by `data`, which is as long."""

    start: int
    data: bytes

    def shifted(self, distance: int) -> Self:
        """Return the same edit that much further on."""
        return type(self)(self.start + distance, self.data)


class WithheldEdit(Edit):
    """Replacement of bytes in which no secret could be looked for: they are marked as withheld."""

    @classmethod
    def of(cls, size: int) -> WithheldEdit:
        """Return the edit that withholds the first `size` bytes."""
        return cls(0, stars(size))


def changed(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Return `data` with these edits applied."""
    if not edits:
        return data
    out = bytearray(data)
    for start, blank in edits:
        out[start : start + len(blank)] = blank
    return bytes(out)


def stars(size: int) -> bytes:
    """Return the replacement of a secret of `size` bytes."""
    return _STARS[:size] if size <= len(_STARS) else b"*" * size


class Patterns:
    """Regular expressions of secrets. Raises ValueError as `compile_expression`."""

    def __init__(self, patterns: Sequence[bytes], longest: int) -> None:
        if longest < 1:
            raise ValueError(f"longest_match is {longest}, and must be at least 1")
        self.longest = longest if patterns else 1
        self.compiled = [compile_expression(pattern) for pattern in patterns]
        self._search_suffices = not any(map(_LOOKS_AROUND.search, patterns))

    def __bool__(self) -> bool:
        return bool(self.compiled)

    def may_match_in(self, data: bytes) -> bool:
        """Return whether any part of `data` may match."""
        return not self._search_suffices or any(pattern.search(data) for pattern in self.compiled)

    def spans(self, text: bytes) -> list[Span]:
        """Return all matches in a complete text; they may overlap."""
        return [
            match.span() for pattern in self.compiled for match in pattern.finditer(text) if match.end() > match.start()
        ]


class Search:
    """Search of text that comes in pieces. Each `take` and `end` returns the spans that have become certain, counted
    from the first byte of all; no later span begins before `certain`.

    A match that starts so near the end of the received text that it could grow is left until more arrives.
    """

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._text = b""
        self._base = 0  # of `_text`
        self._next = [0] * len(patterns.compiled)  # where each pattern's next match may start
        self.certain = 0

    def take(self, data: Buffer) -> list[Span]:
        """Search more of the text."""
        self._text += data
        end = self._base + len(self._text)
        return self._search(max(self.certain, end - self._patterns.longest + 1))

    def end(self) -> list[Span]:
        """Search the rest: there is no more text."""
        end = self._base + len(self._text)
        edits = self._search(end)
        self._text, self._base = b"", end
        return edits

    def _search(self, certain: int) -> list[Span]:
        """Return the matches that start before `certain`. No pattern is searched for behind the end of the last one."""
        edits = []
        for number, pattern in enumerate(self._patterns.compiled):
            start = self._next[number]
            for match in pattern.finditer(self._text, max(0, start - self._base)):
                if match.start() + self._base >= certain:
                    break
                start = match.end() + self._base
                if match.end() > match.start():
                    edits.append((match.start() + self._base, start))
            self._next[number] = max(start, certain)
        self.certain = certain
        # Keep the byte that \b inspects.
        forget = certain - self._patterns.longest - self._base
        if forget > 0:
            self._text = self._text[forget:]
            self._base += forget
        return edits


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the same places without overlaps, in order."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out
