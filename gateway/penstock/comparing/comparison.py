"""The comparison of all streams of two sources whose records are on a shelf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, Literal

from penstock.comparing.alignment import Gap, Same, align_contents, align_positions
from penstock.comparing.differences import Difference, Kind, differences
from penstock.comparing.pairing import joined, pair_streams, wanted
from penstock.comparing.shelf import Shelf, Source, Stream

__all__ = ["Comparison", "NotComparable", "StreamComparison", "compare"]

MOST_SHOWN: Final = 100


class NotComparable(Exception):
    """The two have no positions in common; the text says what they have."""


@dataclass(slots=True)
class StreamComparison:
    """One stream. `a` or `b` None: only one source has it. `shown`: the first differences, in the order of the stream;
    `counts` has all. `same`: how many records agree."""

    a: Stream | None
    b: Stream | None
    same: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    shown: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether both have it, and all records agree."""
        return self.a is not None and self.b is not None and not self.counts


@dataclass(slots=True)
class Comparison:
    """All streams, in the order of their names."""

    streams: list[StreamComparison] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether all streams are."""
        return all(one.equal for one in self.streams)


def compare(
    shelf: Shelf,
    *,
    by: Literal["content", "position"] = "content",
    action: str | None = None,
    named: Mapping[str, str] | None = None,
    globs: Sequence[str] = (),
    most_shown: int = MOST_SHOWN,
) -> Comparison:
    """Compare what is on the shelf; `Shelf.settle` has been called. `action`: APPENDED or DELIVERED, for all streams;
    None: as `Shelf.streams` says. `named`: see `pair_streams`. `globs`: only streams of A of such names, and what
    belongs to them; of those that B alone has, those of such names. Raises NotComparable where positions are asked for
    and differ in kind."""
    pairs = pair_streams(joined(shelf.streams(Source.A, action)), joined(shelf.streams(Source.B, action)), named or {})
    found = Comparison([_compare(shelf, a, b, by, most_shown) for a, b in pairs.both if wanted(a, globs)])
    for one in pairs.only_a:
        if wanted(one, globs):
            found.streams.append(StreamComparison(one, None, counts=Counter({Kind.LOST: one.records})))
    for one in pairs.only_b:
        if wanted(one, globs):
            found.streams.append(StreamComparison(None, one, counts=Counter({Kind.ADDED: one.records})))
    found.streams.sort(key=lambda one: (one.a or one.b or _NOBODY).name)
    return found


_NOBODY: Final = Stream((), Source.A, "", False, 0, frozenset())


def _compare(shelf: Shelf, a: Stream, b: Stream, by: str, most_shown: int) -> StreamComparison:
    if by == "position" and (a.kinds != b.kinds or len(a.kinds) != 1 or "" in a.kinds):
        kinds = [" and ".join(sorted(kind or "no positions" for kind in one.kinds)) for one in (a, b)]
        raise NotComparable(f"{a.name}: A has {kinds[0]}, B has {kinds[1]}; compare by content")
    align = align_positions if by == "position" else align_contents
    result = StreamComparison(a, b)

    def told() -> Iterator[Difference]:
        for difference in differences(_counted(align(shelf.rows(a), shelf.rows(b)), result), shelf, a, b):
            result.counts[difference.kind] += 1
            yield difference

    # They do not come in the order of the stream. At least one is asked for, so that all are counted.
    result.shown = nsmallest(max(1, most_shown), told(), key=_place)[:most_shown]
    return result


def _counted(aligned: Iterator[Same | Gap], result: StreamComparison) -> Iterator[Gap]:
    for one in aligned:
        if isinstance(one, Same):
            result.same += 1
        else:
            yield one


def _place(difference: Difference) -> tuple[int, int]:
    row = difference.a or difference.b
    assert row is not None, "one of the two is there"
    return row.ordinal, 0 if difference.a is not None else 1
