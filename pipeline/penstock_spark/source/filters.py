"""Convert Spark's filters to bounds: streams, sequence numbers and times.

Filters that bounds express exactly are pushed, and Spark need not evaluate them; it evaluates the rest. A filter on
`timestamp` is a bound only if timestamps never decrease within a stream, which S2 and S3P promise; segments have none.
Spark compares times to the us, streams have them to the ms: bounds are rounded so that the same records pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock_spark.source.bounds import microseconds

__all__ = ["Interval", "Wanted", "push"]


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from `least` up to but not including `end`; None: unbounded. Empty if `end` is not more than `least`."""

    least: int = 0
    end: int | None = None

    def __and__(self, other: Interval) -> Interval:
        ends = [end for end in (self.end, other.end) if end is not None]
        return Interval(max(self.least, other.least), min(ends) if ends else None)

    def __contains__(self, number: int) -> bool:
        return self.least <= number and (self.end is None or number < self.end)

    @property
    def empty(self) -> bool:
        """True if the interval has no integers."""
        return self.end is not None and self.end <= self.least


@dataclass(frozen=True, slots=True)
class Wanted:
    """The result of filters: intervals of sequence numbers and of timestamps in ms, and filters on names."""

    numbers: Interval = field(default_factory=Interval)
    times: Interval = field(default_factory=Interval)
    names: tuple[Filter, ...] = ()

    @property
    def empty(self) -> bool:
        """True if no record can pass."""
        return self.numbers.empty or self.times.empty

    def stream(self, name: str) -> bool:
        """Return whether records of this stream can pass."""
        return all(_holds(one, name) for one in self.names)


def push(filters: Iterable[Filter], wanted: Wanted, *, times: bool) -> tuple[Wanted, list[Filter]]:
    """Return `wanted` narrowed by the filters, and those filters that Spark must evaluate itself. `times`: timestamps
    never decrease in these streams."""
    left = []
    for one in filters:
        narrower = _narrowed(one, wanted, times)
        if narrower is None:
            left.append(one)
        else:
            wanted = narrower
    return wanted, left


def _narrowed(one: Filter, wanted: Wanted, times: bool) -> Wanted | None:
    path: tuple[str, ...] = getattr(one.child if isinstance(one, Not) else one, "attribute", ())
    column = path[0].lower() if len(path) == 1 else ""
    if column == "stream":
        if not _is_about_names(one):
            return None
        return Wanted(wanted.numbers, wanted.times, (*wanted.names, one))
    if isinstance(one, IsNotNull):  # neither is ever null where there are times
        return wanted if column == "seq_num" or (column == "timestamp" and times) else None
    if column == "seq_num" and (interval := _interval(one, _integer)) is not None:
        return Wanted(wanted.numbers & interval, wanted.times, wanted.names)
    if column == "timestamp" and times and (interval := _interval(one, _microseconds)) is not None:
        return Wanted(wanted.numbers, wanted.times & _to_milliseconds(interval), wanted.names)
    return None


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """Return the us of a time with its time zone; None for one without, which is not an instant and is left to
    Spark."""
    return microseconds(value) if isinstance(value, datetime) and value.tzinfo is not None else None


def _interval(one: Filter, read: Callable[[Any], int | None]) -> Interval | None:
    """Return the integers that pass; None if they are not an interval, or the literal is of another type."""
    if isinstance(one, In):
        found = {read(value) for value in one.value}
        numbers = sorted(number for number in found if number is not None)
        if len(numbers) != len(found) or not numbers or numbers[-1] - numbers[0] != len(numbers) - 1:
            return None
        return Interval(numbers[0], numbers[-1] + 1)
    spread = _SPREADS.get(type(one))
    if spread is None or (value := read(getattr(one, "value", None))) is None:
        return None
    return spread(value)


_SPREADS: Final[dict[type[Filter], Callable[[int], Interval]]] = {
    EqualTo: lambda value: Interval(value, value + 1),
    EqualNullSafe: lambda value: Interval(value, value + 1),
    GreaterThan: lambda value: Interval(value + 1),
    GreaterThanOrEqual: lambda value: Interval(value),
    LessThan: lambda value: Interval(end=value),
    LessThanOrEqual: lambda value: Interval(end=value + 1),
}


def _to_milliseconds(interval: Interval) -> Interval:
    """Return the ms whose first us is in an interval of us."""
    return Interval(-(-interval.least // 1000), None if interval.end is None else -(-interval.end // 1000))


def _is_about_names(one: Filter) -> bool:
    return type(one.child if isinstance(one, Not) else one) in _NAME_TESTS and _whole_text(one)


def _whole_text(one: Filter) -> bool:
    """Return whether all literals are texts: with a null among them, the result is null for every name without a match,
    and the filter is left to Spark."""
    inner = one.child if isinstance(one, Not) else one
    values = inner.value if isinstance(inner, In) else (getattr(inner, "value", ""),)
    return all(isinstance(value, str) for value in values)


def _holds(one: Filter, name: str) -> bool:
    if isinstance(one, Not):
        return not _holds(one.child, name)
    return _NAME_TESTS[type(one)](name, getattr(one, "value", None))


_NAME_TESTS: Final[dict[type[Filter], Callable[[str, Any], bool]]] = {
    EqualTo: lambda name, value: name == value,
    EqualNullSafe: lambda name, value: name == value,
    In: lambda name, values: name in values,
    IsNotNull: lambda *_: True,
    StringStartsWith: lambda name, value: name.startswith(value),
    StringEndsWith: lambda name, value: name.endswith(value),
    StringContains: lambda name, value: value in name,
    GreaterThan: lambda name, value: name.encode() > value.encode(),
    GreaterThanOrEqual: lambda name, value: name.encode() >= value.encode(),
    LessThan: lambda name, value: name.encode() < value.encode(),
    LessThanOrEqual: lambda name, value: name.encode() <= value.encode(),
}
"""Spark compares texts by their bytes. A stream's name is never null."""
