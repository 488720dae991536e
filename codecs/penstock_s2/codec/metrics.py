"""S2's metrics for servers: the requests' parameters, and the JSON of the sets (S2 fact sheet, 1.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from penstock.model.failures import FailureCode, fail

__all__ = [
    "AccountMetricSet",
    "BasinMetricSet",
    "MetricsRequest",
    "StreamMetricSet",
    "decode_metrics_query",
    "encode_accumulations",
    "encode_gauge",
    "encode_label",
]

MOST_SECONDS: Final = 30 * 86_400
"""Longest time range of a request (the API's test matrix in the Go SDK, metrics)."""
MOST_AHEAD: Final = 60
"""Seconds for which the end may lie in the future."""
U32_MAX: Final = 2**32 - 1
INTERVALS: Final = {"minute": 60, "hour": 3600, "day": 86_400}
Series = Mapping[str, Sequence[tuple[int, float]]]


class AccountMetricSet(Enum):
    """Sets of the whole account."""

    ACTIVE_BASINS = "active-basins"
    ACCOUNT_OPS = "account-ops"
    ESTIMATED_BILLABLE_USAGE = "estimated-billable-usage"


class BasinMetricSet(Enum):
    """Sets of a basin."""

    STORAGE = "storage"
    APPEND_OPS = "append-ops"
    READ_OPS = "read-ops"
    READ_THROUGHPUT = "read-throughput"
    APPEND_THROUGHPUT = "append-throughput"
    BASIN_OPS = "basin-ops"


class StreamMetricSet(Enum):
    """Sets of a stream."""

    STORAGE = "storage"


_GAUGES: Final[Mapping[Enum, str]] = {BasinMetricSet.STORAGE: "hour", StreamMetricSet.STORAGE: "minute"}
"""Sets of points at one interval only."""

S = TypeVar("S", AccountMetricSet, BasinMetricSet, StreamMetricSet)


class MetricsRequest(NamedTuple):
    """The time range and the interval of a request, in seconds."""

    start: int
    end: int
    interval: str

    @property
    def seconds(self) -> int:
        """The interval in seconds."""
        return INTERVALS[self.interval]


def decode_metrics_query(query: Mapping[str, str], sets: type[S], now: int) -> tuple[S, MetricsRequest]:
    """Return the set and the range that a query asks for; `now` in seconds.

    Raises BAD_QUERY for parameters of another form, INVALID for a range or an interval that the set does not have.
    """
    try:
        wanted = sets(query["set"])
    except KeyError:
        raise _bad("missing field `set`") from None
    except ValueError:
        known = ", ".join(f"`{metric_set.value}`" for metric_set in sets)
        raise _bad(f"set: unknown variant `{query['set']:.80}`, expected one of {known}") from None
    interval = query.get("interval")
    if interval is not None and interval not in INTERVALS:
        raise _bad(f"interval: unknown variant `{interval:.80}`, expected one of `minute`, `hour`, `day`")
    start, end = _time(query, "start"), _time(query, "end")
    only = _GAUGES.get(wanted)
    if start is None or end is None:
        raise _invalid(f"start and end params required for {wanted.value}")
    if start > end:
        raise _invalid(f"start {start} is after end {end}")
    if end > now + MOST_AHEAD:
        raise _invalid(f"end {end} is more than {MOST_AHEAD} seconds in the future")
    if end - start > MOST_SECONDS:
        raise _invalid("the time range must not exceed 30 days")
    if only is not None and interval not in (None, only):
        raise _invalid(f"{wanted.value} supports only the interval {only}")
    return wanted, MetricsRequest(start, end, interval or only or "hour")


def _time(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > U32_MAX:
        raise _bad(f"{name}: invalid digit found in string")
    return int(text)


def _bad(reason: str) -> Exception:
    return fail(FailureCode.BAD_QUERY, f"Failed to deserialize query string: {reason}")


def _invalid(reason: str) -> Exception:
    return fail(FailureCode.INVALID, reason)


def encode_accumulations(series: Series, unit: str, interval: str) -> bytes:
    """Encode sums by interval, one metric for each name."""
    return _set(
        {"accumulation": {"name": name, "unit": unit, "interval": interval, "values": values}}
        for name, values in series.items()
    )


def encode_gauge(name: str, unit: str, values: Sequence[tuple[int, float]]) -> bytes:
    """Encode the values at some times; no metric if there are none."""
    return _set([{"gauge": {"name": name, "unit": unit, "values": values}}] if values else [])


def encode_label(name: str, values: Sequence[str]) -> bytes:
    """Encode texts."""
    return _set([{"label": {"name": name, "values": values}}])


def _set(values: Any) -> bytes:
    return orjson.dumps({"values": list(values)})
