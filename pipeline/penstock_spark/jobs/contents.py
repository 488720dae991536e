"""The digest of a record's content: equal digests mean equal records, and collisions cannot be forged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["content_digest"]


def content_digest(also: Sequence[str] = ()) -> Column:
    """Return SHA-256 (32 bytes) over `body`, `headers` and the columns `also`.

    Each part is preceded by its length, so that no two different records give the same bytes. Spark's own function
    takes less than half the time of one over Arrow in Python, and a third more than it does without the lengths.
    """
    headers = fn.when(
        fn.size("headers") > 0,
        fn.aggregate(
            "headers",
            fn.lit(b""),
            lambda done, header: fn.concat(done, _counted(header["name"]), _counted(header["value"])),
        ),
    ).otherwise(fn.lit(b""))
    rest = [_counted(_text(name)) for name in also]
    return fn.unhex(fn.sha2(fn.concat(*rest, _counted(fn.col("body")), headers), 256))


def _counted(data: Column) -> Column:
    """Return bytes preceded by their number; null differs from empty."""
    number = fn.concat(fn.octet_length(data).cast("string"), fn.lit(":"))
    return fn.coalesce(fn.concat(fn.encode(number, "UTF-8"), data), fn.lit(b"-"))


def _text(name: str) -> Column:
    column = fn.unix_micros(fn.col(name)) if name == "timestamp" else fn.col(name)
    return fn.encode(column.cast("string"), "UTF-8")
