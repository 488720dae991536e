"""A Spark session that runs this interpreter's workers, with both formats registered."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CannotRun", "open_session"]


_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}


class CannotRun(Exception):
    """Java or PySpark is missing or too old; the message says which, and how to get it."""


def open_session(
    master: str = "local[*]", *, name: str = "penstock", configuration: Mapping[str, str] | None = None
) -> SparkSession:
    """A session, or the one that this process already has. `configuration`: further `spark.*` keys, which win.

    Sets `PYSPARK_PYTHON` to this interpreter, times to UTC, and keeps Spark's own log to warnings. Raises CannotRun.
    """
    from pyspark.sql import SparkSession

    import penstock_spark

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_DEFAULTS, **(configuration or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    penstock_spark.register(session)
    return session
