"""The comparison of all streams of two sources whose records are in a table (`record_table`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final, Literal

import msgspec

from penstock.tools.comparing.alignment import Gap, Same, align_contents, align_positions
from penstock.tools.comparing.differences import DiffKind, RecordDifference, differences
from penstock.tools.comparing.pairing import join_names, pair_streams, wanted
from penstock.tools.comparing.record_table import ComparedStream, Input, RecordTable

__all__ = ["Comparison", "NotComparable", "StreamComparison", "compare_streams"]

MOST_SHOWN: Final = 100


_COUNTED: Final = "id"
"""The kind of S3P's identifiers. They hold the server's time, so no other server assigns the same: records are counted
instead."""
_NO_STREAM: Final = ComparedStream((), Input.A, "", False, 0, frozenset())


class NotComparable(Exception):
    """Raised when the two sources have no kind of position in common; the text names those that they have."""


class StreamComparison(msgspec.Struct):
    """The comparison of one stream. `a` or `b` is None if only one source has it. `same`: number of records that agree.
    `counts`: of all differences, and of trimmed records, which are none; `shown`: the first ones, in the order of the
    stream."""

    a: ComparedStream | None
    b: ComparedStream | None
    same: int = 0
    counts: Counter[DiffKind] = msgspec.field(default_factory=Counter)
    shown: list[RecordDifference] = msgspec.field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if all records agree that B still keeps, and both sources have the stream unless B trimmed all of it."""
        whole = (self.a is not None and self.b is not None) or self.counts[DiffKind.TRIMMED]
        return bool(whole) and not self.different

    @property
    def different(self) -> int:
        """The number of differences."""
        return self.counts.total() - self.counts[DiffKind.TRIMMED]


class Comparison(msgspec.Struct):
    """The comparison of all streams, sorted by name."""

    streams: list[StreamComparison] = msgspec.field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if all streams are equal."""
        return all(stream.equal for stream in self.streams)


def compare_streams(
    table: RecordTable,
    *,
    by: Literal["content", "position"] = "content",
    action: str | None = None,
    named: Mapping[str, str] | None = None,
    globs: Sequence[str] = (),
    most_shown: int = MOST_SHOWN,
) -> Comparison:
    """Compare the streams of both sources; call `RecordTable.settle` before.

    `action`: APPENDED or DELIVERED, for all streams (None: `RecordTable.streams` chooses). `named`: see `pair_streams`;
    `globs`: compare only streams of A with matching names and their counterparts, and streams that only B has with
    matching names. Raises NotComparable if positions are to be compared and differ in kind.
    """
    pairs = pair_streams(
        join_names(table.streams(Input.A, action)), join_names(table.streams(Input.B, action)), named or {}
    )
    comparison = Comparison([_compare(table, a, b, by, most_shown) for a, b in pairs.both if wanted(a, globs)])
    for stream in pairs.only_a:
        if wanted(stream, globs):
            trimmed = table.first(Input.B, (named or {}).get(stream.name, stream.name)) >= stream.records
            kind = DiffKind.TRIMMED if trimmed else DiffKind.LOST
            comparison.streams.append(StreamComparison(stream, None, counts=Counter({kind: stream.records})))
    for stream in pairs.only_b:
        if wanted(stream, globs):
            comparison.streams.append(StreamComparison(None, stream, counts=Counter({DiffKind.ADDED: stream.records})))
    comparison.streams.sort(key=lambda stream: (stream.a or stream.b or _NO_STREAM).name)
    return comparison


def _compare(table: RecordTable, a: ComparedStream, b: ComparedStream, by: str, most_shown: int) -> StreamComparison:
    counted = _COUNTED in a.kinds | b.kinds
    placed = all(len(stream.kinds) == 1 and "" not in stream.kinds for stream in (a, b))
    if by == "position" and not (placed and (counted or a.kinds == b.kinds)):
        kinds = [" and ".join(sorted(kind or "no positions" for kind in stream.kinds)) for stream in (a, b)]
        raise NotComparable(f"{a.name}: A has {kinds[0]}, B has {kinds[1]}; compare by content")
    rows = table.rows(a), table.rows(b)
    aligned = align_positions(*rows, counted=counted) if by == "position" else align_contents(*rows)
    result = StreamComparison(a, b)

    def told() -> Iterator[RecordDifference]:
        for difference in differences(_counted(aligned, result), table, a, b):
            result.counts[difference.kind] += 1
            if difference.kind is not DiffKind.TRIMMED:
                yield difference

    # Differences come in no order. `nsmallest` of none would not consume them, and so not count them.
    result.shown = nsmallest(max(1, most_shown), told(), key=_place)[:most_shown]
    return result


def _counted(aligned: Iterator[Same | Gap], result: StreamComparison) -> Iterator[Gap]:
    for item in aligned:
        if isinstance(item, Same):
            result.same += 1
        else:
            yield item


def _place(difference: RecordDifference) -> tuple[int, int]:
    row = difference.a or difference.b
    assert row is not None, "one of the two is set"
    return row.ordinal, 0 if difference.a is not None else 1
