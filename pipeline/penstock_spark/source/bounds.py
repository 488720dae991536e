"""The bounds between which a stream is read: parse options `start` and `end`, and look up the places they mean.

| text | as start | as end |
|---|---|---|
| `earliest` | the first record that is kept | |
| `latest` | after the last record | the same: the tail when the query is planned |
| `seq_num:N` | the record with number N | up to but not including it |
| `timestamp:T` | the first record stamped at or after T | up to but not including it |
| `offset:N` | the record at byte N (segments) | up to but not including it |

T is a time in ISO 8601 with its time zone, or ms since 1970. A JSON object sets bounds per stream, `*` for all others:
`{"penstock/a": "seq_num:5", "*": "earliest"}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from penstock_codecs.model import U64_MAX
from penstock_spark.clients.base import ReadPosition, StreamClient

__all__ = [
    "ALL",
    "EARLIEST",
    "LATEST",
    "Bound",
    "StreamBounds",
    "microseconds",
    "order",
    "place_of_number",
    "read_end",
    "read_start",
    "resolve_bound",
    "up_to",
]

ALL: Final = "*"
"""Key for the streams that a JSON object does not name."""
_WORDS: Final = ("earliest", "latest")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Bound(NamedTuple):
    """A place in a stream, before it is looked up. `kind`: as in the module's table; `value` is 0 for the first two."""

    kind: str
    value: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind in _WORDS else f"{self.kind}:{self.value}"


EARLIEST: Final = Bound("earliest")
LATEST: Final = Bound("latest")


class StreamBounds(NamedTuple):
    """A bound for each stream."""

    named: Mapping[str, Bound]
    other: Bound

    def of(self, stream: str) -> Bound:
        """Return the bound of a stream."""
        return self.named.get(stream, self.other)

    @property
    def all(self) -> tuple[Bound, ...]:
        """All bounds that are set."""
        return (*self.named.values(), self.other)

    def within(self, basin: str | None) -> StreamBounds:
        """Return the same bounds, with names in a basin."""
        return (
            self
            if basin is None
            else StreamBounds({f"{basin}/{name}": bound for name, bound in self.named.items()}, self.other)
        )


def read_start(text: str) -> StreamBounds:
    """Parse option `start`. Raises ValueError."""
    return _read(text, EARLIEST)


def read_end(text: str) -> StreamBounds:
    """Parse option `end`. Raises ValueError."""
    bounds = _read(text, LATEST)
    if EARLIEST in bounds.all:
        raise ValueError("must lie after earliest")
    return bounds


def _read(text: str, default: Bound) -> StreamBounds:
    if not text.startswith("{"):
        return StreamBounds({}, _bound(text))
    try:
        said = json.loads(text)
    except ValueError as wrong:
        raise ValueError(f"is not JSON: {wrong}") from None
    if not all(isinstance(bound, str) for bound in said.values()):
        raise ValueError('each stream needs a string such as "seq_num:5"')
    named = {stream: _bound(bound) for stream, bound in said.items()}
    return StreamBounds(named, named.pop(ALL, default))


def _bound(text: str) -> Bound:
    kind, colon, value = text.strip().partition(":")
    kind = kind.lower()
    if kind in _WORDS and not colon:
        return Bound(kind)
    if kind not in _VALUES or not value:
        raise ValueError(f"{text!r} is not earliest, latest, seq_num:N, timestamp:T or offset:N")
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
    """Return us since 1970 of a time that has a time zone."""
    return (time - _EPOCH) // timedelta(microseconds=1)


_VALUES: Final[dict[str, Callable[[str], int]]] = {"seq_num": _whole, "timestamp": _milliseconds, "offset": _whole}


def order(mark: ReadPosition) -> int:
    """Return a sort key for places of one stream, even if their numbers were counted from different beginnings, as far
    as the places have an order (`ReadPosition`)."""
    return int(mark.place) if mark.place.isascii() and mark.place.isdecimal() else mark.seq_num


def resolve_bound(client: StreamClient, stream: str, bound: Bound) -> ReadPosition:
    """Look up a bound as a start; a number or a time beyond the tail may give the tail, or a place beyond it."""
    return _FINDERS[bound.kind](client, stream, bound.value)


def place_of_number(client: StreamClient, stream: str, start: ReadPosition, number: int) -> ReadPosition:
    """Return the place with a number, counted as that of `start` was. Where that takes counting, it is not before
    `start`."""
    if client.indexed:
        return ReadPosition(number)
    return client.advance(stream, start, number - start.seq_num) if number > start.seq_num else start


def up_to(
    client: StreamClient, stream: str, start: ReadPosition, tail: ReadPosition, place: ReadPosition
) -> ReadPosition:
    """Return the last place not after `place`, between two known ones, and its number, which takes counting."""
    if client.indexed or order(place) >= order(tail):
        return min(tail, place, key=order)  # the tail if both are equal: its number follows from that of `start`
    at = start
    for rows in client.read(stream, start, tail):
        if order(rows.next) > order(place):
            return _within(client, stream, at, rows.next.seq_num - at.seq_num, place)
        at = rows.next
    return at


def _within(client: StreamClient, stream: str, start: ReadPosition, count: int, place: ReadPosition) -> ReadPosition:
    """Return the place as `up_to`, less than `count` records after `start`."""
    position, low, high = start, 0, count
    while high - low > 1:
        middle = (low + high) // 2
        there = client.advance(stream, start, middle)
        if order(there) <= order(place):
            position, low = there, middle
        else:
            high = middle
    return position


_FINDERS: Final[dict[str, Callable[[StreamClient, str, int], ReadPosition]]] = {
    "earliest": lambda client, stream, _: client.first(stream),
    "latest": lambda client, stream, _: client.tail(stream),
    "seq_num": lambda client, stream, value: place_of_number(client, stream, client.first(stream), value),
    "timestamp": lambda client, stream, value: client.at_timestamp(stream, value),
    "offset": lambda _, __, value: ReadPosition(0, str(value)),
}
