"""Key ranges, epochs, successors and cuts, for all ways of scaling."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, composite
from support.examples import examples

from penstock_pravega.controller.controller.topology import (
    CutOrder,
    KeyRange,
    Segment,
    Segments,
    before,
    between,
    compare,
    covering,
    equal_ranges,
    followers,
    history,
    initial,
    is_cut,
    least,
    of_epoch,
    replaced,
)

enough = examples(most=300)
"""Also where the profile says very many: histories are small, and building them takes its time."""


@composite
def histories(draw: DrawFn) -> tuple[Segments, int]:
    """A stream after some scales, each of neighbours that are merged and split anew."""
    segments, epoch = initial(draw(st.integers(1, 5))), 0
    for _ in range(draw(st.integers(0, 5))):
        current = of_epoch(segments, epoch)
        first = draw(st.integers(0, len(current) - 1))
        last = draw(st.integers(first, min(first + 2, len(current) - 1)))
        going = current[first : last + 1]
        whole = KeyRange(going[0].low, going[-1].high)
        points = draw(st.sets(st.sampled_from(range(1, 16)), max_size=3))
        inner = sorted({whole.low + (whole.high - whole.low) * point / 16 for point in points} - {*whole})
        edges = [whole.low, *inner, whole.high]
        new = [KeyRange(low, high) for low, high in itertools.pairwise(edges)]
        scaled = replaced(segments, epoch, [segment.id for segment in going], new)
        assert scaled is not None
        segments, epoch = scaled, epoch + 1
    return segments, epoch


@given(st.integers(1, 50))
def test_new_streams_share_all_keys_equally(count: int) -> None:
    ranges = equal_ranges(count)
    assert ranges[0].low == 0.0
    assert ranges[-1].high == 1.0
    assert all(one.high == other.low for one, other in itertools.pairwise(ranges))
    assert all(abs(Fraction(one.high) - Fraction(one.low) - Fraction(1, count)) < Fraction(1, 2**50) for one in ranges)


@enough
@given(histories())
def test_every_epoch_shares_all_keys(found: tuple[Segments, int]) -> None:
    segments, epoch = found
    for each in range(epoch + 1):
        assert is_cut(segments, {segment.id: 0 for segment in of_epoch(segments, each)})
    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert len({segment.id for segment in segments}) == len(segments)


@enough
@given(histories())
def test_followers_have_the_keys_of_what_they_follow(history: tuple[Segments, int]) -> None:
    segments, epoch = history
    for segment in segments:
        found = followers(segments, segment)
        if segment.until is None:
            assert found == []
            assert segment in of_epoch(segments, epoch)
            continue
        heirs = [heir for heir, _ in found]
        assert sum(min(heir.high, segment.high) - max(heir.low, segment.low) for heir in heirs) == pytest.approx(
            segment.high - segment.low
        )
        for heir, followed in found:
            assert segment in followed
            assert heir.epoch == segment.until
            assert all(one.until == heir.epoch and one.keys.overlaps(heir.keys) for one in followed)
            assert sum(min(heir.high, one.high) - max(heir.low, one.low) for one in followed) == pytest.approx(
                heir.high - heir.low
            )


@enough
@given(st.data())
def test_cuts_part_the_history(data: st.DataObject) -> None:
    history = data.draw(histories())
    segments, epoch = history
    first = data.draw(st.integers(0, epoch))
    last = data.draw(st.integers(first, epoch))
    start = [segment.id for segment in of_epoch(segments, first)]
    end = [segment.id for segment in of_epoch(segments, last)]
    assert between(segments, start, end) == [
        segment for segment in segments if any(segment.is_in(each) for each in range(first, last + 1))
    ]
    assert before(segments, start) == [
        segment for segment in segments if segment.until is not None and segment.until <= first
    ]


def test_a_cut_may_be_of_several_epochs() -> None:
    """0 becomes 2 and 3, 1 stays."""
    segments = replaced(initial(2), 0, [0], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    assert segments is not None
    zero, one, two, three = segments
    assert [segment.id for segment in segments] == [0, 1, (1 << 32) + 2, (1 << 32) + 3]
    assert is_cut(segments, {zero.id: 0, one.id: 7})
    assert is_cut(segments, {one.id: 0, two.id: 0, three.id: 0})
    assert not is_cut(segments, {one.id: 0, two.id: 0})
    assert not is_cut(segments, {zero.id: 0, one.id: 0, two.id: 0})
    assert not is_cut(segments, {})
    assert between(segments, [zero.id, one.id], [one.id, two.id, three.id]) == list(segments)
    assert between(segments, [one.id, two.id, three.id], [one.id, two.id, three.id]) == [one, two, three]
    assert before(segments, [one.id, two.id, three.id]) == [zero]
    assert followers(segments, zero) == [(two, [zero]), (three, [zero])]
    assert followers(segments, one) == []


def test_a_cut_may_lack_keys_of_segments_that_wait() -> None:
    """0 and 1 become 2 and 3, which overlap both: a reader that has finished 1, but not 0, may read neither."""
    segments = replaced(initial(2), 0, [0, 1], [KeyRange(0.0, 0.75), KeyRange(0.75, 1.0)])
    assert segments is not None
    zero, one, two, three = segments
    assert is_cut(segments, {zero.id: 5, three.id: 0, two.id: -1})
    assert is_cut(segments, {zero.id: 5, two.id: -1, three.id: -1}) is False, "3 has nothing to do with 0"
    assert not is_cut(segments, {zero.id: 5, three.id: 0}), "nothing says what has the keys from 0.5 to 0.75"
    assert not is_cut(segments, {two.id: -1, three.id: -1})
    assert not is_cut(segments, {zero.id: -1, two.id: 5, three.id: 0}), "0 is before 2"
    assert between(segments, [zero.id, three.id], [two.id, three.id]) == [zero, two, three]
    assert between(segments, [zero.id, two.id, three.id], [two.id, three.id]) == [zero, two, three]
    assert between(segments, [zero.id, one.id], [zero.id, three.id]) == [zero, one, three]
    assert before(segments, [zero.id, two.id, three.id]) == [one]


def test_segments_that_are_joined_have_one_follower() -> None:
    segments = replaced(initial(3), 0, [0, 1], [KeyRange(0.0, 2 / 3)])
    assert segments is not None
    zero, one, two, three = segments
    assert followers(segments, zero) == followers(segments, one) == [(three, [zero, one])]
    assert of_epoch(segments, 1) == [three, two]
    assert covering(of_epoch(segments, 1), one.keys) == three
    assert covering(of_epoch(segments, 0), three.keys) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([], [KeyRange(0.0, 1.0)]),
        ([0], []),
        ([0], [KeyRange(0.0, 0.4)]),
        ([0], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]),
        ([0, 1], [KeyRange(0.0, 0.6), KeyRange(0.5, 1.0)]),
        ([0, 1], [KeyRange(0.0, 0.5), KeyRange(0.6, 1.0)]),
        ([0], [KeyRange(0.0, 0.0), KeyRange(0.0, 0.5)]),
        ([0], [KeyRange(-0.5, 0.5)]),
        ([0], [KeyRange(0.5, 0.0)]),
        ([0], [KeyRange(float("nan"), 0.5)]),
        ([2], [KeyRange(0.0, 0.5)]),
    ],
    ids=str,
)
def test_ranges_that_are_not_those_of_the_replaced(old: list[int], new: list[KeyRange]) -> None:
    assert replaced(initial(2), 0, old, new) is None


def test_what_was_replaced_is_not_replaced_again() -> None:
    segments = replaced(initial(1), 0, [0], equal_ranges(2))
    assert segments is not None
    assert replaced(segments, 1, [0], equal_ranges(2)) is None


@pytest.mark.parametrize("number", range(5))
def test_each_segment_splits_at_edges_that_clients_compute(number: int) -> None:
    size = 1.0 / 5
    low, high = number * size, (number + 1) * size
    middle = (low + high) / 2
    assert replaced(initial(5), 0, [number], [KeyRange(low, middle), KeyRange(middle, high)]) is not None


def test_ranges_may_come_in_any_order_and_apart() -> None:
    new = [KeyRange(0.75, 1.0), KeyRange(0.0, 0.25)]
    segments = replaced(initial(4), 0, [3, 0], new)
    assert segments is not None
    assert segments[4:] == (Segment(4, 1, 0.0, 0.25), Segment(5, 1, 0.75, 1.0))


# ---- the order of cuts ----


@composite
def histories_with_cuts(draw: DrawFn) -> tuple[Segments, list[dict[int, int]]]:
    """A stream, and tails that it had; each was read up to different offsets."""
    segments, epoch = draw(histories())
    cuts = []
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, epoch))
        cuts.append({segment.id: draw(st.integers(0, 3)) for segment in of_epoch(segments, at)})
    return segments, cuts


@enough
@given(histories())
def test_the_history_of_a_stream(found: tuple[Segments, int]) -> None:
    segments, last = found
    epochs = list(history(segments, last + 1))
    assert [sorted(epoch.segments, key=lambda one: one.low) for epoch in epochs] == [
        of_epoch(segments, number) for number in range(last + 1)
    ]
    for number, epoch in enumerate(epochs):
        old = [segment for segment in segments if segment.until == number]
        new = [segment for segment in segments if segment.epoch == number]
        assert epoch.segments == sorted(epoch.segments, key=lambda one: one.number)
        assert epoch.splits == sum(sum(one.keys.overlaps(each.keys) for each in new) > 1 for one in old)
        assert epoch.merges == sum(sum(one.keys.overlaps(each.keys) for each in old) > 1 for one in new)


@enough
@given(histories_with_cuts())
def test_the_least_position_of_cuts_is_a_cut_at_or_before_all(found: tuple[Segments, list[dict[int, int]]]) -> None:
    segments, cuts = found
    lowest = least(segments, cuts)
    assert is_cut(segments, lowest)
    assert all(compare(segments, cut, lowest) is CutOrder.AFTER for cut in cuts)
    assert least(segments, [lowest, *cuts]) == lowest
    if any(all(compare(segments, other, cut) is CutOrder.AFTER for other in cuts) for cut in cuts):
        assert any(cut == lowest for cut in cuts)


@enough
@given(histories_with_cuts())
def test_the_order_of_cuts(found: tuple[Segments, list[dict[int, int]]]) -> None:
    segments, cuts = found
    mirrored = {CutOrder.BEFORE: {CutOrder.AFTER}, CutOrder.OVERLAPS: {CutOrder.OVERLAPS}}
    for cut, other in itertools.product(cuts, cuts):
        order = compare(segments, cut, other)
        if cut == other:
            assert order is CutOrder.AFTER
        elif order in mirrored:
            assert compare(segments, other, cut) in mirrored[order]
        else:
            assert compare(segments, other, cut) is CutOrder.BEFORE


def test_positions_that_wait_for_a_predecessor() -> None:
    """One half of a merged pair is finished; the merged segment waits for the other half."""
    segments = replaced(initial(2), 0, [0, 1], [KeyRange(0.0, 1.0)])
    assert segments is not None
    merged = (1 << 32) + 2
    waiting = {0: 5, merged: -1}
    assert least(segments, [waiting, {merged: 7}]) == waiting
    assert least(segments, [waiting, {0: 3, 1: 4}]) == {0: 3, 1: 4}
    assert compare(segments, waiting, {0: 3, 1: 4}) is CutOrder.AFTER
    assert compare(segments, waiting, {merged: 0}) is CutOrder.BEFORE
