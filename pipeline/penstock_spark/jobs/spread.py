"""Percentiles of any number of values, the same on one core as on a cluster.

Values are counted in buckets whose bounds lie at most 1/128 apart. Unlike sketches, counts do not depend on the order
in which parts are put together, and of any table only some thousand rows for each group are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PERCENTILES", "percentiles"]

PERCENTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
"""The usual ones, as columns."""
_EXACT_BITS: Final = 8
"""Values of so many bits are exact; of greater ones so many bits."""


def percentiles(
    table: DataFrame, groups: Sequence[str], value: str, points: Mapping[str, float] = PERCENTILES
) -> DataFrame:
    """For each group `count`, the percentiles, and `max_us`. `value`: a column of whole numbers from 0; nulls do not
    count. A percentile is the upper bound of its bucket, and never more than the greatest value."""
    number = fn.col(value)
    shift = fn.greatest(fn.length(fn.bin(number)) - _EXACT_BITS, fn.lit(0))
    upper = fn.call_function("shiftleft", fn.call_function("shiftright", number, shift) + 1, shift) - 1
    counts = (
        table.where(number.isNotNull())
        .groupBy(*groups, upper.alias("upper"))
        .agg(fn.count("*").alias("count"), fn.max(number).alias("most"))
    )
    whole = Window.partitionBy(*groups)
    counts = counts.withColumns(
        {"reached": fn.sum("count").over(whole.orderBy("upper")), "total": fn.sum("count").over(whole)}
    )
    found = {
        name: fn.min(fn.when(fn.col("reached") >= fn.col("total") * point, fn.col("upper")))
        for name, point in points.items()
    }
    most = fn.max("most")
    return counts.groupBy(*groups).agg(
        fn.sum("count").alias("count"),
        *(fn.least(value, most).alias(name) for name, value in found.items()),
        most.alias("max_us"),
    )
