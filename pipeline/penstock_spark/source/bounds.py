"""From where to where a stream is read: what the options `start` and `end` say, and the place that it means.

| text | as start | as end |
|---|---|---|
| `earliest` | the first record that is kept | |
| `latest` | behind the last record | the same: what is there when the query is planned |
| `seq_num:N` | the record with number N | up to it, without it |
| `timestamp:T` | the first record stamped at or after T | up to it, without it |
| `offset:N` | the record at byte N (segments) | up to it, without it |

T is a time in ISO 8601 with its time zone, or ms since 1970. A JSON object says it per stream, `*` for all others:
`{"penstock/a": "seq_num:5", "*": "earliest"}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from penstock_codecs.model import U64_MAX
from penstock_spark.clients.base import Mark, StreamClient

__all__ = [
    "ALL",
    "EARLIEST",
    "LATEST",
    "Bound",
    "Bounds",
    "microseconds",
    "numbered",
    "order",
    "read_end",
    "read_start",
    "resolve",
    "up_to",
]

ALL: Final = "*"
"""The streams that a JSON object does not name."""


class Bound(NamedTuple):
    """A place in a stream, before it is looked up. `kind`: as in the module's table; `value` is 0 for the first two."""

    kind: str
    value: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind in _WORDS else f"{self.kind}:{self.value}"


EARLIEST: Final = Bound("earliest")
LATEST: Final = Bound("latest")
_WORDS: Final = ("earliest", "latest")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Bounds(NamedTuple):
    """A bound for each stream."""

    named: Mapping[str, Bound]
    other: Bound

    def of(self, stream: str) -> Bound:
        """The bound of a stream."""
        return self.named.get(stream, self.other)

    @property
    def all(self) -> tuple[Bound, ...]:
        """Every bound that was said."""
        return (*self.named.values(), self.other)

    def within(self, basin: str | None) -> Bounds:
        """The same, with names in a basin."""
        return (
            self if basin is None else Bounds({f"{basin}/{name}": one for name, one in self.named.items()}, self.other)
        )


def read_start(text: str) -> Bounds:
    """Option `start`. Raises ValueError."""
    return _read(text, EARLIEST)


def read_end(text: str) -> Bounds:
    """Option `end`. Raises ValueError."""
    bounds = _read(text, LATEST)
    if EARLIEST in bounds.all:
        raise ValueError("nothing lies before earliest")
    return bounds


def _read(text: str, default: Bound) -> Bounds:
    if not text.startswith("{"):
        return Bounds({}, _bound(text))
    try:
        said = json.loads(text)
    except ValueError as wrong:
        raise ValueError(f"is no JSON: {wrong}") from None
    if not all(isinstance(one, str) for one in said.values()):
        raise ValueError('each stream needs a text such as "seq_num:5"')
    named = {stream: _bound(one) for stream, one in said.items()}
    return Bounds(named, named.pop(ALL, default))


def _bound(text: str) -> Bound:
    kind, colon, value = text.strip().partition(":")
    kind = kind.lower()
    if kind in _WORDS and not colon:
        return Bound(kind)
    if kind not in _VALUES or not value:
        raise ValueError(f"{text!r} is none of earliest, latest, seq_num:N, timestamp:T, offset:N")
    number = _VALUES[kind](value.strip())
    if not 0 <= number <= U64_MAX:
        raise ValueError(f"{text!r}: {'before 1970' if kind == 'timestamp' else 'out of range'}")
    return Bound(kind, number)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an integer") from None


def _milliseconds(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither ms since 1970 nor a time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone, such as Z or +01:00")
    return -(-microseconds(time) // 1000)


def microseconds(time: datetime) -> int:
    """Since 1970, of a time that has a time zone."""
    return (time - _EPOCH) // timedelta(microseconds=1)


_VALUES: Final[dict[str, Callable[[str], int]]] = {"seq_num": _whole, "timestamp": _milliseconds, "offset": _whole}


def order(mark: Mark) -> tuple[int, ...]:
    """What sorts places of one stream, also where their numbers were counted from different beginnings."""
    return tuple(map(int, mark.place.split("-"))) if mark.place else (mark.seq_num,)


def resolve(client: StreamClient, stream: str, bound: Bound) -> Mark:
    """Where a bound is, as a start; a number or a time beyond the tail may be at the tail, or beyond it."""
    return _FINDERS[bound.kind](client, stream, bound.value)


def numbered(client: StreamClient, stream: str, start: Mark, number: int) -> Mark:
    """The place with a number, counted as that of `start` was; not before `start` where it takes counting."""
    if client.indexed:
        return Mark(number)
    return client.advance(stream, start, number - start.seq_num) if number > start.seq_num else start


def up_to(client: StreamClient, stream: str, start: Mark, tail: Mark, place: Mark) -> Mark:
    """The last place that is not behind `place`, between two that are known, and its number, which takes counting."""
    if client.indexed or order(place) >= order(tail):
        return min(tail, place, key=order)  # the tail where they are one: its number follows from that of `start`
    at = start
    for rows in client.read(stream, start, tail):
        if order(rows.next) > order(place):
            return _within(client, stream, at, rows.next.seq_num - at.seq_num, place)
        at = rows.next
    return at


def _within(client: StreamClient, stream: str, start: Mark, count: int, place: Mark) -> Mark:
    """As `up_to`, less than `count` records behind `start`."""
    found, low, high = start, 0, count
    while high - low > 1:
        middle = (low + high) // 2
        there = client.advance(stream, start, middle)
        if order(there) <= order(place):
            found, low = there, middle
        else:
            high = middle
    return found


_FINDERS: Final[dict[str, Callable[[StreamClient, str, int], Mark]]] = {
    "earliest": lambda client, stream, _: client.first(stream),
    "latest": lambda client, stream, _: client.tail(stream),
    "seq_num": lambda client, stream, value: numbered(client, stream, client.first(stream), value),
    "timestamp": lambda client, stream, value: client.at_timestamp(stream, value),
    "offset": lambda _, __, value: Mark(0, str(value)),
}
