"""Bodies and messages without the framing that carries them: text that is searched as it arrives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from penstock.capture.redaction.flow import Flow, Parser
from penstock.capture.redaction.text import Buffer, Edit, Patterns, Search, Span, WithheldEdit, stars

__all__ = ["MOST_PARTS", "Content", "Gathered", "Searched", "feed"]


MOST_PARTS: Final = 64 * 1024
"""Most pieces, with framing between them, of a content that is held back; each takes 0.2 KiB to remember. A content in
more pieces is blanked."""


def _end(run: tuple[int, int, int]) -> int:
    return run[1]


class _Places:
    """Map from offsets in a content to offsets in the flow that carries it, with framing in between."""

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
        """Number of contiguous parts of the flow that are still remembered."""
        return len(self._runs)

    def forget(self, before: int) -> int | None:
        """Forget the bytes before `before`; return the flow offset of the first remaining byte, or None if none
        remains."""
        del self._runs[: bisect_right(self._runs, before, key=_end)]
        if not self._runs:
            return None
        start, _, offset = self._runs[0]
        return offset + max(0, before - start)

    def spread(self, start: int, end: int) -> Iterable[tuple[int, int, int]]:
        """Yield the contiguous parts of a stretch, each as start and end in the content and start in the flow."""
        for index in range(bisect_right(self._runs, start, key=_end), len(self._runs)):
            low, high, offset = self._runs[index]
            if low >= end:
                break
            first = max(start, low)
            yield first, min(end, high), offset + first - low


class Content:
    """One body or message. It holds its flow back from the first byte that it has not decided about.

    Subclasses read in `feed`, which gets the bytes, and `finish`, and move `certain` on.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._places = _Places()
        self.blind = False
        """True once the content is abandoned."""
        self.certain = 0
        """Bytes of the content that are decided about."""

    def take(self, data: Buffer, offset: int) -> None:
        """Take more bytes, which are at `offset` of the flow."""
        if self.blind:
            self._flow.withhold(offset, offset + len(data))
            return
        self._places.add(offset, len(data))
        self.feed(data)
        self._hold()

    def boundary(self) -> None:
        """Note that bytes that the sender wrote at once begin here; for contents whose beginning was not recorded."""

    def end(self) -> None:
        """Finish: the content is complete."""
        if not self.blind:
            self.finish()
        self._flow.holding.pop(self, None)

    def cut(self) -> None:
        """Finish: no more bytes will arrive, and the content is incomplete."""
        self.abandon()

    def abandon(self) -> None:
        """Withhold all bytes that are not decided about, and all that may follow."""
        self.withhold(self.certain, self._places.end)
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
        """Blank a stretch of the content."""
        self.write(Edit(start, stars(end - start)))

    def withhold(self, start: int, end: int) -> None:
        """Withhold a stretch of the content."""
        self.write(WithheldEdit(start, stars(end - start)))

    def write(self, edit: Edit) -> None:
        """Overwrite a stretch of the content."""
        start, data = edit
        for low, high, offset in self._places.spread(start, start + len(data)):
            self._flow.apply(type(edit)(offset, data[low - start : high - start]))

    def feed(self, data: Buffer) -> None:
        """Read more bytes, in order."""
        raise NotImplementedError

    def finish(self) -> None:
        """Decide about the rest: there are no more bytes."""
        raise NotImplementedError


class Searched(Content):
    """Text that is searched for patterns as it arrives; holds back bytes that could become a match."""

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
    """Content that is read in units, each of which must be complete before it is read."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self.unit = bytearray()
        """Bytes received and not decided about."""

    def feed(self, data: Buffer) -> None:
        self.unit += data
        self.read()

    def read(self) -> None:
        """Read the units that are complete."""

    def finish(self) -> None:
        """Blank the rest, a unit that was cut short."""
        if self.unit:
            self.abandon()

    def done(self, size: int, edits: Iterable[Edit]) -> None:
        """Decide about the unit's first bytes, and apply these edits to them."""
        for edit in edits:
            self.write(edit.shifted(self.certain))
        self.certain += size
        del self.unit[:size]

    def abandon(self) -> None:
        super().abandon()
        self.unit.clear()


def feed(flow: Flow, size: int, content: Content | None) -> Parser:
    """Pass the next bytes of a flow to a content, or let them go on if it is None. Raises Truncated."""
    if content is None:
        yield from flow.skip(size)
        return
    while size:
        yield from flow.need(1)
        offset = flow.at
        data = flow.next_view(size)
        content.take(data, offset)
        size -= len(data)
