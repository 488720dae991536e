"""The bounds between which a stream is read: parse options `start` and `end`, and look up the positions they mean.

| text | as start | as end |
|---|---|---|
| `earliest` | the first record that is kept | |
| `latest` | after the last record | the same: the tail when the query is planned |
| `seq_num:N` | the record with number N | up to but not including it |
| `timestamp:T` | the first record stamped at or after T | up to but not including it |

T is a time in ISO 8601 with its time zone, or ms since 1970. A JSON object sets bounds per stream, `*` for all others:
`{"penstock/a": "seq_num:5", "*": "earliest"}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.model.records import U64_MAX

if TYPE_CHECKING:
    from penstock_spark.clients.client import StreamClient

__all__ = [
    "ALL",
    "EARLIEST",
    "LATEST",
    "Bound",
    "StreamBounds",
    "microseconds",
    "read_end",
    "read_start",
    "resolve_bound",
]

ALL: Final = "*"
"""Key for the streams that a JSON object does not name."""
_WORDS: Final = ("earliest", "latest")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Bound(NamedTuple):
    """A position in a stream, before it is looked up. `kind`: as in the module's table; `value` is 0 for the first
    two."""

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
        raise ValueError(f"{text!r} is not earliest, latest, seq_num:N or timestamp:T")
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


_VALUES: Final[dict[str, Callable[[str], int]]] = {"seq_num": _whole, "timestamp": _milliseconds}


def resolve_bound(client: StreamClient, stream: str, bound: Bound) -> int:
    """Return the sequence number that a bound means as a start; one given by number may be beyond the tail."""
    match bound.kind:
        case "earliest":
            return client.first(stream)
        case "latest":
            return client.tail(stream)
        case "timestamp":
            return client.at_timestamp(stream, bound.value)
        case _:
            return bound.value
