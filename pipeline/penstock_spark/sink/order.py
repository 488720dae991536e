"""Sort the rows of each key into one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["by_key"]


def by_key(
    frame: DataFrame, key: str | Sequence[str], *, order: str | Sequence[str], partitions: int | None = None
) -> DataFrame:
    """Return the frame with all rows of a key in one partition, sorted by key and `order` (columns), as the sink needs
    them to write the rows of each key in order, and each once.

    If rows of a key are equal in `order`, all other columns decide, so that a repeated task has its rows in the same
    order. `partitions`: their number; None: the session's `spark.sql.shuffle.partitions`. Spark does not change it at
    run time, as it would without a number. Keys go to streams as the frame sets them: if several partitions write to
    one stream, the rows of different keys are interleaved there in any order. In a streaming query each micro-batch is
    sorted by itself. Raises ValueError for columns that the frame does not have, or that cannot be sorted.
    """
    from pyspark.sql.types import MapType, VariantType

    keys = [key] if isinstance(key, str) else list(key)
    orders = [order] if isinstance(order, str) else list(order)
    missing = [name for name in (*keys, *orders) if name not in frame.columns]
    if missing or not keys or not orders:
        said = f"no such column: {', '.join(missing)}" if missing else "key and order must name a column each"
        raise ValueError(f"{said}; the frame has {', '.join(frame.columns)}")
    unsorted = [field.name for field in frame.schema.fields if isinstance(field.dataType, MapType | VariantType)]
    if unsorted:
        raise ValueError(f"columns without an order cannot be sorted: {', '.join(unsorted)}")
    wanted = partitions or int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    named = [f"`{name}`" for name in keys]
    others = [name for name in frame.columns if name not in keys and name not in orders]
    sorting = [f"`{name}`" for name in dict.fromkeys((*keys, *orders, *others))]
    return frame.repartition(wanted, *named).sortWithinPartitions(*sorting)
