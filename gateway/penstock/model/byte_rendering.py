"""Render records as bytes, and cut them to the size of a read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.byte_layout import BYTES, Layout, features_of, is_left_out, starts_of, to_bytes
from penstock.model.features import Feature
from penstock.model.records import Columns, RecordBatch

__all__ = ["MarkedRecord", "RefusedRecord", "Rendered", "RenderedSlice", "render", "render_slice", "rendered"]


class MarkedRecord(NamedTuple):
    """A record whose bytes differ from its plain event: their place in the stream, and its features.

    `left_out`: features that cannot be read from the bytes. A record that is left out entirely has no bytes.
    """

    offset: int
    end_offset: int
    seq_num: int
    features: tuple[Feature, ...]
    left_out: tuple[Feature, ...]


class Rendered(NamedTuple):
    """Consecutive bytes of a stream, and the (few) marks in them."""

    first_offset: int
    data: bytes
    marks: Sequence[MarkedRecord]

    @property
    def end_offset(self) -> int:
        """Offset of the bytes that follow."""
        return self.first_offset + len(self.data)

    def rest(self, offset: int) -> Rendered:
        """Return the part from `offset` on, which lies inside."""
        marks = [mark for mark in self.marks if mark.offset >= offset or mark.end_offset > offset]
        return Rendered(offset, self.data[offset - self.first_offset :], marks)


def render(columns: Columns, layout: Layout, first_offset: int) -> Rendered:
    """Return consecutive records of one layout as bytes."""
    features = features_of(columns, layout)
    if not features:
        return Rendered(first_offset, to_bytes(columns, layout), ())
    starts = starts_of(columns, layout)
    marks = [
        MarkedRecord(
            first_offset + starts[index],
            first_offset + starts[index + 1],
            columns.seq_nums[index],
            some,
            tuple(feature for feature in some if is_left_out(feature, layout)),
        )
        for index, some in sorted(features.items())
    ]
    return Rendered(first_offset, to_bytes(columns, layout), marks)


class RefusedRecord(NamedTuple):
    """A record that must not be read, its refused feature, and the offset of the bytes after it."""

    seq_num: int
    feature: Feature
    end_offset: int


def rendered(batch: RecordBatch, layout: Layout, first_offset: int) -> Rendered:
    """Return a batch as bytes: its wire bytes if it came in them."""
    if batch.wire is not None and batch.wire.encoding == BYTES:
        return Rendered(first_offset, batch.wire.data, ())
    return render(batch.columns, layout, first_offset)


class RenderedSlice(NamedTuple):
    """The result of one read: bytes up to `end_offset`, or up to a refused record.

    Of records without bytes, those at the first offset belong to this read, and those at `end_offset` to the next.
    """

    data: bytes = b""
    end_offset: int = 0
    dropped: Mapping[Feature, int] = MappingProxyType({})
    refused: RefusedRecord | None = None


def render_slice(
    pieces: Sequence[Rendered], offset: int, max_bytes: int, refuse: frozenset[Feature], first_seq_num: int = 0
) -> RenderedSlice:
    """Return at most `max_bytes` from `offset` on, which lies in the first of these adjacent pieces or at an end of it.

    Pieces may overlap. The result ends at a gap between two: the bytes there are gone. Records before `first_seq_num`
    are gone as well, though some without bytes may be at `offset`.
    """
    pieces = _without_gap(pieces)
    end = min(offset + max_bytes, pieces[-1].end_offset)
    dropped: Counter[Feature] = Counter()
    refused = None
    last = first_seq_num - 1
    for mark in (mark for piece in pieces for mark in piece.marks):
        if mark.seq_num <= last or (mark.offset < offset and mark.end_offset <= offset):
            continue
        if mark.offset >= end > offset:
            break
        feature_refused = next((feature for feature in mark.features if feature in refuse), None)
        if feature_refused is not None:
            refused, end = RefusedRecord(mark.seq_num, feature_refused, mark.end_offset), max(mark.offset, offset)
            break
        if mark.offset >= offset:
            dropped.update(mark.left_out)
        last = mark.seq_num
    return RenderedSlice(_between(pieces, offset, end), end, dropped, refused)


def _without_gap(pieces: Sequence[Rendered]) -> Sequence[Rendered]:
    """Return the pieces up to the first gap."""
    for index, (before, after) in enumerate(pairwise(pieces), 1):
        if after.first_offset > before.end_offset:
            return pieces[:index]
    return pieces


def _between(pieces: Sequence[Rendered], at: int, end: int) -> bytes:
    """Return the bytes from `at` to `end`. A read of one whole batch copies nothing, so a thousand followers share
    it."""
    some = []
    for first_offset, data, _ in pieces:
        stop = min(end - first_offset, len(data))
        if at - first_offset < stop:
            some.append(data[at - first_offset : stop])
            at = first_offset + stop
    return some[0] if len(some) == 1 else b"".join(some)
