"""What the page shows, brought to the driver: so few rows that any recording gives a page that a browser opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock_spark.jobs.audit import Audit

__all__ = [
    "MOST_ROUTES",
    "MOST_ROWS",
    "MOST_WINDOWS",
    "Findings",
    "Top",
    "gather",
    "gather_audit",
    "gather_streams",
    "window_s",
]

MOST_ROWS: Final = 25
"""Rows of each table."""
MOST_WINDOWS: Final = 120
"""Points of each line over time."""
MOST_ROUTES: Final = 6
"""Routes whose latency is drawn."""
_SPANS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200)
_DAY: Final = 86_400
_LATEST_US: Final = 19_880_899_200_000_000
"""The year 2600. Damaged captures, and those that somebody made up, have times up to the year 294246, which no plot
takes; and one of them would leave a single window for all that is real."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of a table, and how many more it has. Times are in us since 1970."""

    rows: Sequence[Row] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the page shows. What is None was not asked for; what is empty, nothing was found for.

    `start_us`, `end_us`: of the first and last message with a possible time; None where there is none. `every_s`: how
    long a time window is.
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
    """What came to streams, by the records' timestamps, in windows of `growth_every_s`."""
    growth_every_s: int = 1
    streams: Top | None = None
    """Quality of streams; `quality` is that of recordings."""
    verdicts: Top | None = None
    differences: Top | None = None


def window_s(seconds: float) -> int:
    """How long a time window is, so that so many seconds are at most `MOST_WINDOWS` of them."""
    least = seconds / (MOST_WINDOWS - 1)
    return next((span for span in _SPANS if span >= least), _DAY * max(1, -(-int(least) // _DAY)))


def gather(connections: DataFrame, messages: DataFrame, records: DataFrame) -> Findings:
    """Run the jobs on the tables of captures. Each table is read several times: give what is stored (`ingest`), or
    persisted, where reading is dear."""
    from pyspark.sql import functions as fn

    from penstock_spark.jobs.latency import latency
    from penstock_spark.jobs.quality import quality
    from penstock_spark.jobs.usage import BY, throughput, usage

    latest = fn.timestamp_micros(fn.lit(_LATEST_US))
    possible = messages.where(fn.col("end") < latest)
    (reach,) = possible.agg(
        fn.unix_micros(fn.min("end")).alias("start"), fn.unix_micros(fn.max("end")).alias("end")
    ).collect()
    every = 1 if reach.start is None else window_s((reach.end - reach.start) / 1e6)
    front = possible.where("side <> 'back'")
    # Windows are of possible times alone: the last of all have no window that Spark can count.
    timed = latency(
        front,
        records.where((fn.col("side") != "back") & (fn.col("sent") < latest)),
        by=["route"],
        every_s=every,
    )
    return Findings(
        reach.start,
        reach.end,
        every,
        throughput=_top(throughput(front, every_s=every), MOST_WINDOWS * 10),
        latency=_timed(timed),
        latency_totals=_top(
            latency(messages, records, by=["route", "protocol"]).orderBy("kind", fn.desc("side"), "route", "protocol")
        ),
        usage={name: _top(usage(connections, messages, records, by=[name]).where("side <> 'back'")) for name in BY},
        quality=_top(quality(records, messages).orderBy(_worst_first(), "stream", "action", "side")),
    )


def gather_streams(streams: DataFrame, found: Findings | None = None) -> Findings:
    """With what streams hold (table `streams`, or the source): how much came when, and its quality."""
    from pyspark.sql import functions as fn

    from penstock_spark.jobs.quality import quality
    from penstock_spark.jobs.usage import growth

    dated = streams.where(fn.col("timestamp") < fn.timestamp_micros(fn.lit(_LATEST_US)))
    (reach,) = dated.agg(
        fn.unix_micros(fn.min("timestamp")).alias("start"), fn.unix_micros(fn.max("timestamp")).alias("end")
    ).collect()
    every = 1 if reach.start is None else window_s((reach.end - reach.start) / 1e6)
    before = found or Findings(reach.start, reach.end)
    return replace(
        before,
        growth=_top(growth(dated, every_s=every), MOST_WINDOWS * 10),
        growth_every_s=every,
        streams=_top(quality(streams).orderBy(_worst_first(), "stream")),
    )


def gather_audit(audit: Audit, found: Findings | None = None) -> Findings:
    """With what an audit found: streams that differ first, and the first of their differences."""
    from pyspark.sql import functions as fn

    equal = fn.col("verdict") == "equal"
    return replace(
        found or Findings(),
        verdicts=_top(audit.verdicts.orderBy(equal, "stream")),
        differences=_top(audit.differences.orderBy("stream", fn.coalesce("left_ordinal", "right_ordinal"), "kind")),
    )


def _timed(timed: DataFrame) -> Top:
    """The routes that answered most, over time; `more`: routes that are left out."""
    from pyspark.sql import functions as fn

    kept = timed.persist()
    try:
        busy = kept.groupBy("route").agg(fn.sum("count").alias("all")).orderBy(fn.desc("all"), "route")
        routes = [row.route for row in busy.collect()]
        shown = routes[:MOST_ROUTES]
        chosen = fn.col("route").isin([route for route in shown if route is not None])
        if None in shown:
            chosen = chosen | fn.col("route").isNull()
        return Top(_top(kept.where(chosen), MOST_WINDOWS * MOST_ROUTES * 4).rows, len(routes) - len(shown))
    finally:
        kept.unpersist()


def _worst_first() -> Column:
    from pyspark.sql import functions as fn

    return fn.array_position(fn.array(*(fn.lit(verdict) for verdict in ("bad", "doubtful", "good"))), fn.col("verdict"))


def _top(table: DataFrame, most: int = MOST_ROWS) -> Top:
    """The first rows. A timestamp would come in the driver's own zone, so it comes as a number."""
    from pyspark.sql import functions as fn

    kept = table.persist()
    try:
        total = kept.count()
        columns = [
            fn.unix_micros(name).alias(name) if kind == "timestamp" else fn.col(name) for name, kind in kept.dtypes
        ]
        rows = [row.asDict(recursive=True) for row in kept.select(*columns).limit(most).collect()]
    finally:
        kept.unpersist()
    return Top(rows, max(total - most, 0))
