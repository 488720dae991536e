"""Filters as bounds: the same records pass as where Spark looks at each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock_spark.source.filters import Wanted, push

NUMBER, TIME, NAME, BODY = ("seq_num",), ("timestamp",), ("stream",), ("body",)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

COMPARISONS: dict[type[Any], Callable[[Any, Any], bool]] = {
    EqualTo: lambda one, other: one == other,
    EqualNullSafe: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    In: lambda one, others: one in others,
}
comparison = st.sampled_from(sorted(set(COMPARISONS) - {In}, key=str))


def pushed(*filters: Filter, times: bool = True) -> Wanted:
    wanted, left = push(filters, Wanted(), times=times)
    assert not left
    return wanted


@given(st.lists(st.tuples(comparison, st.integers(-5, 15)), max_size=4))
def test_numbers(said: list[tuple[type[Any], int]]) -> None:
    wanted = pushed(IsNotNull(NUMBER), *(kind(NUMBER, value) for kind, value in said))
    for number in range(12):
        expected = all(COMPARISONS[kind](number, value) for kind, value in said)
        assert (number in wanted.numbers) == expected


@given(st.lists(st.tuples(comparison, st.integers(-5_000, 15_000)), max_size=4), st.integers(-12, 12))
def test_times_of_whole_ms_against_bounds_in_us(said: list[tuple[type[Any], int]], hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    filters = [kind(TIME, (EPOCH + timedelta(microseconds=us)).astimezone(zone)) for kind, us in said]
    wanted = pushed(*filters)
    for ms in range(12):
        expected = all(COMPARISONS[kind](ms * 1000, us) for kind, us in said)
        assert (ms in wanted.times) == expected


def test_lists_that_are_intervals() -> None:
    assert [number for number in range(10) if number in pushed(In(NUMBER, (4, 3, 5, 4))).numbers] == [3, 4, 5]
    assert pushed(LessThan(NUMBER, 3), GreaterThan(NUMBER, 3)).empty
    assert not pushed(LessThan(NUMBER, 3)).empty


@pytest.mark.parametrize(
    ("one", "names"),
    [
        (EqualTo(NAME, "b/x"), ["b/x"]),
        (EqualNullSafe(NAME, "b/x"), ["b/x"]),
        (In(NAME, ("b/x", "b/é", "nothing")), ["b/x", "b/é"]),
        (StringStartsWith(NAME, "b/"), ["b/x", "b/xy", "b/é"]),
        (StringEndsWith(NAME, "y"), ["b/xy"]),
        (StringContains(NAME, "x"), ["b/x", "b/xy"]),
        (Not(EqualTo(NAME, "b/x")), ["b/xy", "b/é", "c/😀", "c/\uffee"]),
        (Not(In(NAME, ("b/x", "b/xy"))), ["b/é", "c/😀", "c/\uffee"]),
        (IsNotNull(NAME), ["b/x", "b/xy", "b/é", "c/😀", "c/\uffee"]),
        (Not(IsNotNull(NAME)), []),
        (GreaterThan(NAME, "c/\uffee"), ["c/😀"]),
        (LessThanOrEqual(NAME, "b/x"), ["b/x"]),
    ],
)
def test_names(one: Filter, names: list[str]) -> None:
    wanted = pushed(one)
    assert [name for name in ("b/x", "b/xy", "b/é", "c/😀", "c/\uffee") if wanted.stream(name)] == names


@pytest.mark.parametrize(
    "one",
    [
        In(NUMBER, (3, 5)),
        In(NUMBER, (3, None)),
        EqualTo(NUMBER, None),
        EqualTo(NUMBER, True),
        GreaterThan(NUMBER, 1.5),
        Not(EqualTo(NUMBER, 5)),
        IsNull(NUMBER),
        EqualTo(TIME, datetime(2026, 1, 1)),
        EqualTo(TIME, "2026-01-01"),
        Not(LessThan(TIME, EPOCH)),
        EqualTo(NAME, None),
        Not(In(NAME, ("b/x", None))),
        In(NAME, ("b/x", None)),
        EqualTo(BODY, b"x"),
        IsNotNull(("headers", "name")),
    ],
)
def test_what_stays_with_spark(one: Filter) -> None:
    first = EqualTo(NUMBER, 3)
    wanted, left = push([first, one], Wanted(), times=True)
    assert left == [one] and left[0] is one
    assert wanted == pushed(first)


def test_times_stay_with_spark_where_there_are_none() -> None:
    filters = [GreaterThan(TIME, EPOCH), IsNotNull(TIME)]
    assert push(filters, Wanted(), times=False) == (Wanted(), filters)
