"""Gather the contents of the page on the driver: few rows, so that a browser opens the page of any recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock_spark.jobs.audit import Audit

__all__ = [
    "MOST_ROUTES",
    "MOST_ROWS",
    "MOST_WINDOWS",
    "Findings",
    "Results",
    "Top",
    "gather",
    "gather_audit",
    "gather_results",
    "gather_streams",
    "results",
    "window_s",
]

MOST_ROWS: Final = 25
"""Maximum number of rows per table."""
MOST_WINDOWS: Final = 120
"""Maximum number of points per line over time."""
MOST_ROUTES: Final = 6
"""Maximum number of routes whose latency is drawn."""
_SPANS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200)
_DAY: Final = 86_400
Row = Mapping[str, Any]
LATENCY_CUTS: Final = (("route",), ("route", "protocol"), ("route", "protocol", "stream"))
USAGE_CUTS: Final = (("client",), ("stream",), ("protocol",), ("client", "stream", "protocol"))


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of a table, and the number of further ones. Times are in us since 1970."""

    rows: Sequence[Row] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """The contents of the page. None: not requested; empty: nothing found.

    `start_us`, `end_us`: times of the first and last message with a plausible time; None if there is none. `every_s`:
    length of a time window.
    """

    start_us: int | None = None
    end_us: int | None = None
    every_s: int = 1
    throughput: Top | None = None
    latency: Top | None = None
    """By route and time window."""
    latency_totals: Top | None = None
    """By route and protocol."""
    usage: Mapping[str, Top] = field(default_factory=dict)
    """By `client`, `stream` and `protocol`."""
    quality: Top | None = None
    growth: Top | None = None
    """Growth of streams, by the records' timestamps, in windows of `growth_every_s`."""
    growth_every_s: int = 1
    streams: Top | None = None
    """Quality of streams; `quality` is that of recordings."""
    verdicts: Top | None = None
    differences: Top | None = None


def window_s(seconds: float) -> int:
    """Return the length of a time window that divides `seconds` into at most `MOST_WINDOWS`."""
    least = seconds / (MOST_WINDOWS - 1)
    return next((span for span in _SPANS if span >= least), _DAY * max(1, -(-int(least) // _DAY)))


class Results(NamedTuple):
    """Tables of the jobs on recordings, each computed once however often it is read.

    `latency`, `usage`: by each of `LATENCY_CUTS` (the first with windows) and `USAGE_CUTS`. `span`: only the times.
    """

    span: Findings
    throughput: DataFrame
    latency: DataFrame
    usage: DataFrame
    quality: DataFrame

    def latency_by(self, *by: str) -> DataFrame:
        """Return the latency by one of the groupings, without windows."""
        return self.latency.where(f"cut = {LATENCY_CUTS.index(by)}").drop("cut")

    def usage_by(self, *by: str) -> DataFrame:
        """Return the usage by one of the groupings."""
        return self.usage.where(f"cut = {USAGE_CUTS.index(by)}").drop("cut")

    def close(self) -> None:
        """Release the cached tables."""
        for table in (self.latency, self.usage, self.quality):
            table.unpersist()


def results(connections: DataFrame, messages: DataFrame, records: DataFrame) -> Results:
    """Plan the jobs on the tables of captures. They run when first read; each reads a table once."""
    from penstock_spark.jobs.latency import LatencyGrouping, latencies
    from penstock_spark.jobs.quality import quality
    from penstock_spark.jobs.usage import throughput, usages
    from penstock_spark.running.session import computed_once

    span, possible = _span(messages, "end")
    cuts = [LatencyGrouping(LATENCY_CUTS[0], span.every_s), *map(LatencyGrouping, LATENCY_CUTS[1:])]
    return Results(
        span,
        throughput(possible.where("side <> 'back'"), every_s=span.every_s),
        computed_once(latencies(messages, records, cuts)),
        computed_once(usages(connections, messages, records, USAGE_CUTS)),
        computed_once(quality(records, messages)),
    )


def gather(connections: DataFrame, messages: DataFrame, records: DataFrame) -> Findings:
    """Run the jobs on the tables of captures. Each table is read several times: pass stored (`ingest`) or persisted
    tables if reading is expensive."""
    results_of_views = results(connections, messages, records)
    try:
        return gather_results(results_of_views)
    finally:
        results_of_views.close()


def gather_results(results_of_views: Results) -> Findings:
    """Return the part of the results that the page shows."""
    from pyspark.sql import functions as fn

    return replace(
        results_of_views.span,
        throughput=_top(results_of_views.throughput, MOST_WINDOWS * 10),
        latency=_timed(results_of_views.latency_by(*LATENCY_CUTS[0]).where("side <> 'back'")),
        latency_totals=_top(
            results_of_views.latency_by("route", "protocol").orderBy("kind", fn.desc("side"), "route", "protocol")
        ),
        usage={by: _top(results_of_views.usage_by(by).where("side <> 'back'")) for (by,) in USAGE_CUTS[:-1]},
        quality=_top(results_of_views.quality.orderBy(_worst_first(), "stream", "action", "side")),
    )


def gather_streams(streams: DataFrame, findings: Findings | None = None, judged: DataFrame | None = None) -> Findings:
    """Return the findings with those on streams (table `streams`, or the source): growth and quality. `judged`: the
    quality, if it is known already."""
    from penstock_spark.jobs.quality import quality
    from penstock_spark.jobs.usage import growth

    span, dated = _span(streams, "timestamp")
    judged = quality(streams) if judged is None else judged
    return replace(
        findings or span,
        growth=_top(growth(dated, every_s=span.every_s), MOST_WINDOWS * 10),
        growth_every_s=span.every_s,
        streams=_top(judged.orderBy(_worst_first(), "stream")),
    )


def _span(table: DataFrame, column: str) -> tuple[Findings, DataFrame]:
    """Return the time span of the rows, and the rows with a plausible time."""
    from pyspark.sql import functions as fn

    from penstock_spark.jobs.latency import LATEST_US

    possible = table.where(fn.col(column) < fn.timestamp_micros(fn.lit(LATEST_US)))
    ends = (made(fn.unix_micros(column)).alias(name) for made, name in ((fn.min, "start"), (fn.max, "end")))
    (reach,) = possible.agg(*ends).collect()
    every = 1 if reach.start is None else window_s((reach.end - reach.start) / 1e6)
    return Findings(reach.start, reach.end, every), possible


def gather_audit(audit: Audit, findings: Findings | None = None) -> Findings:
    """Return the findings with those of an audit: streams that differ first, and the first of their differences."""
    from pyspark.sql import functions as fn

    equal = fn.col("verdict") == "equal"
    return replace(
        findings or Findings(),
        verdicts=_top(audit.verdicts.orderBy(equal, "stream")),
        differences=_top(audit.differences.orderBy("stream", fn.coalesce("left_ordinal", "right_ordinal"), "kind")),
    )


def _timed(timed: DataFrame) -> Top:
    """Return the latency over time of the routes with most requests; `more`: the number of other routes. `timed` is
    persisted."""
    from pyspark.sql import functions as fn

    busy = timed.groupBy("route").agg(fn.sum("count").alias("all")).orderBy(fn.desc("all"), "route")
    routes = [row.route for row in busy.collect()]
    shown = routes[:MOST_ROUTES]
    chosen = fn.col("route").isin([route for route in shown if route is not None])
    if None in shown:
        chosen = chosen | fn.col("route").isNull()
    return Top(_top(timed.where(chosen), MOST_WINDOWS * MOST_ROUTES * 4).rows, len(routes) - len(shown))


def _worst_first() -> Column:
    from pyspark.sql import functions as fn

    return fn.array_position(fn.array(*(fn.lit(verdict) for verdict in ("bad", "doubtful", "good"))), fn.col("verdict"))


def _top(table: DataFrame, most: int = MOST_ROWS) -> Top:
    """Return the first rows; the rest is counted only if there is any. Timestamps are returned as numbers, since Spark
    would convert them to the driver's time zone."""
    from pyspark.sql import functions as fn

    columns = [fn.unix_micros(name).alias(name) if kind == "timestamp" else fn.col(name) for name, kind in table.dtypes]
    rows = [row.asDict(recursive=True) for row in table.select(*columns).limit(most + 1).collect()]
    return Top(rows[:most], table.count() - most if len(rows) > most else 0)
