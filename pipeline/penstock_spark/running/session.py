"""A Spark session that runs this interpreter's workers, with both formats registered."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock_spark.running.failures import CannotRun, cause
from penstock_spark.running.java import find_java
from penstock_spark.running.memory import driver_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CannotRun", "configuration_of", "open_session", "under_spark_submit"]

_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
_QUIET_LOG: Final = Path(__file__).with_name("log4j2.properties")
_NEEDED: Final = ("pyspark", "pyarrow")


def open_session(
    master: str = "",
    *,
    name: str = "penstock",
    configuration: Mapping[str, str] | None = None,
    memory: str = "",
    debug: bool = False,
) -> SparkSession:
    """A session, or the one that this process already has.

    `master`: empty is what spark-submit said, and `local[*]` without it. `configuration`: further `spark.*` keys, which
    win. `memory`: of this process's JVM; empty: see `driver_memory`. `debug`: Spark logs as it does by default, with
    stacks; else a line for each warning, on standard error.

    Workers run this interpreter; on a cluster that of `PYSPARK_PYTHON`, where it is set. Times are UTC. Raises
    CannotRun where Java or PySpark is missing or too old, or the master cannot be reached.
    """
    _check_parts()
    if not under_spark_submit():
        find_java()
        _name_interpreters(local=not master or master.startswith("local"))
    import penstock_spark

    settings = configuration_of(master, configuration or {}, memory=memory, debug=debug)
    session = _started(name, settings)
    if not debug:  # it writes what is raised anyway, with all of the stack, to standard error
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    session.sparkContext.setLogLevel("WARN")
    penstock_spark.register(session)
    return session


def under_spark_submit() -> bool:
    """Whether spark-submit has started this process, and with it a JVM whose settings are made already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def configuration_of(master: str, given: Mapping[str, str], *, memory: str = "", debug: bool = False) -> dict[str, str]:
    """All `spark.*` keys of a session, those that are given as they are."""
    chosen = dict(_ALWAYS)
    if under_spark_submit():
        return chosen | ({"spark.master": master} if master else {}) | dict(given)
    chosen["spark.master"] = master or "local[*]"
    chosen["spark.driver.memory"] = memory or driver_memory()
    options = given.get("spark.driver.extraJavaOptions", "")
    if not debug:
        options = f"-Dlog4j2.configurationFile={_QUIET_LOG.as_uri()} {options}".strip()
    return chosen | dict(given) | ({"spark.driver.extraJavaOptions": options} if options else {})


def _name_interpreters(*, local: bool) -> None:
    """For workers, which start `python3` from PATH otherwise, and for what the driver's JVM asks of a data source."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable


def _check_parts() -> None:
    missing = []
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        raise CannotRun(f"{' and '.join(missing)} cannot be imported: pip install 'penstock[spark]'")


def _started(name: str, configuration: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in configuration.items():
        builder = builder.config(key, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PySpark's, about versions of pandas
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        master = configuration.get("spark.master", "")
        raise CannotRun(f"no session of Spark on {master or 'the master of spark-submit'}: {cause(error)}") from error
