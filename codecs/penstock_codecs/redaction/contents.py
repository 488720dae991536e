"""What bodies and messages hold, apart from the framing that carries them: text that is searched as it comes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from penstock_codecs.redaction.flow import Flow, Parser
from penstock_codecs.redaction.text import Buffer, Edit, Patterns, Search, Span, stars

__all__ = ["MOST_PARTS", "Content", "Gathered", "Searched", "feed"]


MOST_PARTS: Final = 64 * 1024
"""In so many pieces, with framing between them, a content may come that is held back; each takes 0.2 KiB to remember.
One that comes in more is blanked."""


def _end(run: tuple[int, int, int]) -> int:
    return run[1]


class _Places:
    """Where the bytes of a content stand in the flow that carries it, with framing between them."""

    __slots__ = ("_runs", "end")

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []  # from where to where in the content, and where in the flow
        self.end = 0

    def add(self, offset: int, size: int) -> None:
        if self._runs:
            start, end, at = self._runs[-1]
            if at + end - start == offset:
                self._runs[-1] = (start, end + size, at)
                self.end += size
                return
        self._runs.append((self.end, self.end + size, offset))
        self.end += size

    @property
    def count(self) -> int:
        """In how many parts of the flow the bytes are that are not forgotten."""
        return len(self._runs)

    def forget(self, before: int) -> int | None:
        """Lets go of what stands before; where in the flow the first byte of the rest is, if there is any."""
        del self._runs[: bisect_right(self._runs, before, key=_end)]
        if not self._runs:
            return None
        start, _, offset = self._runs[0]
        return offset + max(0, before - start)

    def spread(self, start: int, end: int) -> Iterable[tuple[int, int, int]]:
        """The parts of this stretch that lie together: from where to where in the content, and where in the flow."""
        for index in range(bisect_right(self._runs, start, key=_end), len(self._runs)):
            low, high, offset = self._runs[index]
            if low >= end:
                break
            first = max(start, low)
            yield first, min(end, high), offset + first - low


class Content:
    """What one body or message holds. It holds its flow back from the first byte on that it has not decided about.

    Subclasses read in `feed`, which gets the bytes, and `finish`, and move `certain` on.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._places = _Places()
        self.blind = False
        """Whether it was abandoned."""
        self.certain = 0
        """Bytes of the content that are decided about."""

    def take(self, data: Buffer, offset: int) -> None:
        """More bytes of it, which stand at `offset` of the flow."""
        if self.blind:
            self._flow.blank(offset, offset + len(data))
            return
        self._places.add(offset, len(data))
        self.feed(data)
        self._hold()

    def boundary(self) -> None:
        """What its sender said at once begins here, for those who have not heard the beginning of it all."""

    def end(self) -> None:
        """It is complete."""
        if not self.blind:
            self.finish()
        self._flow.holding.pop(self, None)

    def cut(self) -> None:
        """Nothing more will come of it, and it is not complete."""
        self.abandon()

    def abandon(self) -> None:
        """Blanks what is not decided about, and all that may follow."""
        self.blank(self.certain, self._places.end)
        self.certain = self._places.end
        self.blind = True
        self._flow.holding.pop(self, None)

    def _hold(self) -> None:
        first = self._places.forget(self.certain)
        if self._places.count > MOST_PARTS:
            self.abandon()
        if first is None or self.blind:
            self._flow.holding.pop(self, None)
        else:
            self._flow.holding[self] = first

    def blank(self, start: int, end: int) -> None:
        """Blanks a stretch of it."""
        self.write(Edit(start, stars(end - start)))

    def write(self, edit: Edit) -> None:
        """Puts other bytes into it."""
        start, data = edit
        for low, high, offset in self._places.spread(start, start + len(data)):
            self._flow.write(offset, data[low - start : high - start])

    def feed(self, data: Buffer) -> None:
        """More bytes, in order."""
        raise NotImplementedError

    def finish(self) -> None:
        """There are no more."""
        raise NotImplementedError


class Searched(Content):
    """Text that is searched for patterns as it comes; it holds back what could become a match."""

    def __init__(self, flow: Flow, patterns: Patterns) -> None:
        super().__init__(flow)
        self._search = Search(patterns)

    def feed(self, data: Buffer) -> None:
        self._blank(self._search.take(data))

    def finish(self) -> None:
        self._blank(self._search.end())

    def cut(self) -> None:
        self.end()

    def _blank(self, spans: list[Span]) -> None:
        # A match may end behind what is certain: its bytes have come, and are blanked before they go on.
        for start, end in spans:
            self.blank(start, end)
        self.certain = self._search.certain


class Gathered(Content):
    """Content that is read in units, each of which must be there as a whole."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self.unit = bytearray()
        """What has come and is not decided about."""

    def feed(self, data: Buffer) -> None:
        self.unit += data
        self.read()

    def read(self) -> None:
        """Looks for units that are complete now."""

    def finish(self) -> None:
        """What is left is a unit that was cut short."""
        if self.unit:
            self.abandon()

    def done(self, size: int, edits: Iterable[Edit]) -> None:
        """The unit's first bytes are decided about: these are to be changed in them."""
        for edit in edits:
            self.write(Edit(self.certain + edit.start, edit.data))
        self.certain += size
        del self.unit[:size]

    def abandon(self) -> None:
        super().abandon()
        self.unit.clear()


def feed(flow: Flow, size: int, content: Content | None) -> Parser:
    """Hands the next bytes of a flow to a content, or lets them go on where there is none. Raises Cut."""
    if content is None:
        yield from flow.skip(size)
        return
    while size:
        yield from flow.need(1)
        offset = flow.at
        data = flow.next_view(size)
        content.take(data, offset)
        size -= len(data)
