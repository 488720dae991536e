"""Two sequences side by side: planted faults are found exactly, and what is left is the same on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from penstock_spark.jobs.alignment import SURE, Aligner, Alone


def aligned(left: Sequence[int], right: Sequence[int], window: int = 2_000) -> list[Alone[int]]:
    """Return the unmatched items, with their places as rows. Takes results repeatedly, as a task does."""
    aligner: Aligner[int] = Aligner(window)
    found: list[Alone[int]] = []
    for at, (one, other) in enumerate(zip_longest(left, right)):
        if one is not None:
            aligner.put(False, b"%d" % one, at)
        if other is not None:
            aligner.put(True, b"%d" % other, at)
        if at % 7 == 0:
            found += aligner.take()
    return found + list(aligner.take(final=True))


def places(found: list[Alone[int]], right: bool) -> list[int]:
    return [one.row for one in found if one.right is right]


def without(sequence: Sequence[int], places: list[int]) -> list[int]:
    gone = set(places)
    return [each for at, each in enumerate(sequence) if at not in gone]


FEW = st.lists(st.integers(0, 3), max_size=400)


@examples(least=40)
@given(FEW, FEW)
def test_what_is_not_alone_is_the_same_in_the_same_order(left: list[int], right: list[int]) -> None:
    found = aligned(left, right, window=50)
    for right_side, sequence in ((False, left), (True, right)):
        side = places(found, right_side)
        assert side == sorted(set(side))
        assert set(side) <= set(range(len(sequence)))
    assert without(left, places(found, False)) == without(right, places(found, True))


@examples(least=40)
@given(FEW)
def test_equal_sequences_have_nothing_alone(sequence: list[int]) -> None:
    assert aligned(sequence, sequence) == []


@examples(least=40)
@given(st.integers(1, 2_000), st.sets(st.integers(0, 1_999), max_size=60), st.sets(st.integers(0, 1_999), max_size=60))
def test_lost_and_added_records_are_told_exactly(size: int, lost: set[int], added: set[int]) -> None:
    left = list(range(size))
    right = []
    expected_added = []
    for each in left:
        if each in added:
            expected_added.append(len(right))
            right.append(10_000 + each)
        if each not in lost:
            right.append(each)
    found = aligned(left, right)
    assert places(found, False) == [each for each in left if each in lost]
    assert places(found, True) == expected_added


@examples(least=40)
@given(st.lists(st.integers(0, 1), min_size=60, max_size=600), st.data())
def test_of_records_that_are_much_alike_no_more_stand_alone_than_were_lost(
    left: list[int], data: st.DataObject
) -> None:
    lost = data.draw(st.integers(0, len(left) - 1))
    right = left[:lost] + left[lost + 1 :]
    found = aligned(left, right)
    assert len(found) == 1
    assert left[found[0].row] == left[lost]


def test_a_record_in_anothers_place_shares_its_gap() -> None:
    left = list(range(1_000))
    right = left.copy()
    right[100], right[500] = -1, -2
    found = aligned(left, right)
    assert [(one.right, one.row) for one in found] == [(False, 100), (True, 100), (False, 500), (True, 500)]
    assert found[0].gap == found[1].gap != found[2].gap == found[3].gap


def test_two_that_changed_places_are_one_alone_on_each_side() -> None:
    left = list(range(100))
    right = left.copy()
    right[40], right[41] = right[41], right[40]
    found = aligned(left, right)
    assert sorted((one.right, (right if one.right else left)[one.row]) for one in found) in (
        [(False, 40), (True, 40)],
        [(False, 41), (True, 41)],
    )


def test_many_lost_together_are_found_beyond_what_is_near() -> None:
    left = list(range(10_000))
    right = left[:3_000] + left[4_500:]
    assert [(one.right, one.row) for one in aligned(left, right)] == [(False, at) for at in range(3_000, 4_500)]


def test_many_differences_close_together_leave_the_rest_level() -> None:
    left = list(range(3_000))
    right = [-each if 1_000 <= each < 1_200 and each % 3 else each for each in left]
    altered = [each for each in left if right[each] != each]
    found = aligned(left, right)
    assert (places(found, False), places(found, True)) == (altered, altered)


def test_what_one_side_lacks_is_not_all_held() -> None:
    aligner: Aligner[int] = Aligner(100)
    found = 0
    for at in range(10_000):
        aligner.put(False, b"%d" % at, at)
        found += len(list(aligner.take()))
        assert at - found < 200 + SURE
    assert found + len(list(aligner.take(final=True))) == 10_000


def test_nothing_in_common_is_all_alone_in_order() -> None:
    found = aligned(range(1_000), range(1_000, 2_000), window=100)
    assert places(found, False) == places(found, True) == list(range(1_000))
