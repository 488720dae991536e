"""Open a Spark session whose workers run this interpreter, with both formats registered.

`driver_memory` sizes the driver's JVM; `find_java` finds the Java that Spark needs, or explains what is missing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock_spark.running.failures import CannotRun, cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "CLASS_ARCHIVE",
    "LEAST_VERSION",
    "CannotRun",
    "Java",
    "computed_once",
    "configuration_of",
    "driver_memory",
    "find_java",
    "in_one_task",
    "is_small",
    "machine_memory",
    "open_session",
    "under_spark_submit",
]

_MIB: Final = 1 << 20
_LEAST, _MOST = 1024, 8192
_SHARE: Final = 4
"""The JVM gets 1/4 of the machine's memory: Python workers, which decode, need as much, besides other programs."""
_GROUP: Final = Path("/sys/fs/cgroup/memory.max")
LEAST_VERSION: Final = 17
"""Minimal Java version of Spark 4."""
_HOW: Final = (
    f"Install Java {LEAST_VERSION} or newer: `apt-get install openjdk-{LEAST_VERSION}-jre-headless` on Debian and "
    "Ubuntu, Eclipse Temurin (Adoptium) elsewhere. Then have `java` in PATH, or JAVA_HOME name its directory."
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SECONDS: Final = 30
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
}
"""For a local session: its web pages, which take a second to start, are not needed."""
_SMALL_KEY: Final = "spark.penstock.small"
_SMALL: Final = {
    _SMALL_KEY: "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.dynamicPartitionPruning.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.shuffle.compress": "false",
    "spark.buffer.pageSize": "2m",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""For small jobs. Each of these costs more than it saves on some hundred rows: Java code that is made and compiled for
each stage and expression (1,900 classes in the README's tour, the compiler included), planning a query again after each
of its stages (57 jobs; 22 without), several tasks for each stage, broadcasts, rules that make large plans better,
compression, 64 MiB of cleared memory for each sort, and the place in our code of each expression, for error messages.
Without them, the JVM takes a third less processor time."""
_SMALL_JAVA: Final = (
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m "
    "-XX:CompileThresholdScaling=4 -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
)
"""For small jobs. The optimizing compiler would take longer than the work, a third of all processor time; the other one
compiles what is called four times as often as usual (a seventh less). The threads of the concurrent collector would
take a tenth. Verifying the bytecode of the 25,000 classes of a session takes 4.5 s: they are from Spark's own jars, not
from the data. Room for their metadata from the start avoids three full collections."""
CLASS_ARCHIVE: Final = Path(sys.prefix) / "share" / "penstock" / "spark-classes.jsa"
"""Classes of a small job that the JVM maps instead of loading them from jars (`class_archive`): a quarter of its
processor time."""
_QUIET_LOG: Final = Path(__file__).with_name("log4j2.properties")
_WORKER_PYTHON: Final = Path(__file__).with_name("worker_python")
_NEEDED: Final = ("pyspark", "pyarrow")


def driver_memory() -> str:
    """Return a quarter of the machine's memory, from 1 to 8 GiB, in Spark's notation."""
    return f"{min(_MOST, max(_LEAST, machine_memory() // _SHARE // _MIB))}m"


def machine_memory(group: Path = _GROUP) -> int:
    """Return the bytes of memory of this machine, or of the container on it; 0 if unknown."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # no such name here, as on Windows
        return 0
    try:
        limit = group.read_text().strip()
    except OSError:
        return there
    return min(there, int(limit)) if limit.isdigit() else there


class Java(NamedTuple):
    """A program and its major version."""

    program: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find the Java that Spark's own scripts would start: that of JAVA_HOME, otherwise the first in PATH.

    Raises CannotRun, which says what was searched and found, and how to install what is needed.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        program, where = Path(home) / "bin" / "java", f"JAVA_HOME ({home})"
        if not os.access(program, os.X_OK):
            raise CannotRun(f"Spark needs Java, and {where} has no bin/java. {_HOW}")
    else:
        program_path = shutil.which("java", path=environment.get("PATH", ""))
        if program_path is None:
            raise CannotRun(f"Spark needs Java, but `java` is not in PATH and JAVA_HOME is not set. {_HOW}")
        program, where = Path(program_path), "PATH"
    version = _version(program)
    if version < LEAST_VERSION:
        raise CannotRun(f"Spark needs Java {LEAST_VERSION} or newer; {program}, from {where}, is {version}. {_HOW}")
    return Java(program, version)


def _version(program: Path) -> int:
    """Return the major version from `java -version`, whose output on standard error has not changed since Java 1.0."""
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"Spark needs Java, and {program} cannot be run: {error}. {_HOW}") from error
    match = _VERSION.search(told.stderr + told.stdout)
    if told.returncode or match is None:
        words = (told.stderr or told.stdout).strip().partition("\n")[0]
        raise CannotRun(f"Spark needs Java, and {program} does not work: {words or 'it prints nothing'}. {_HOW}")
    return int(match[1])


def open_session(
    master: str = "",
    *,
    name: str = "penstock",
    configuration: Mapping[str, str] | None = None,
    memory: str = "",
    debug: bool = False,
    small: bool = False,
) -> SparkSession:
    """Open a session, or return the one that this process already has.

    `master`: if empty, that of spark-submit, and `local[*]` without it. `configuration`: further `spark.*` keys, which
    take precedence. `memory`: of this process's JVM; empty: see `driver_memory`. `debug`: Spark logs as by default,
    with stacks; otherwise a line for each warning, on standard error. `small`: the work takes some seconds at most.

    Workers run this interpreter; on a cluster that of `PYSPARK_PYTHON`, if it is set. Times are UTC. Raises CannotRun
    if Java or PySpark is missing or too old, or the master cannot be reached.
    """
    _check_parts()
    if not under_spark_submit():
        find_java()
        _name_interpreters(local=not master or master.startswith("local"))
    import penstock_spark

    settings = configuration_of(master, configuration or {}, memory=memory, debug=debug, small=small)
    session = _started(name, settings)
    if not debug:  # it logs errors that are raised anyway, with their stacks, on standard error
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    session.sparkContext.setLogLevel("WARN")
    penstock_spark.register(session)
    return session


def is_small(session: SparkSession) -> bool:
    """Return whether the session was opened for small jobs."""
    return session.sparkContext.getConf().get(_SMALL_KEY) == "true"


def in_one_task(frame: DataFrame) -> DataFrame:
    """Return the frame as one partition if its session is for small jobs, else as it is. All rows of a group are then
    together, so that grouping, joins and sorting need no stages of their own."""
    return frame.coalesce(1) if is_small(frame.sparkSession) else frame


def computed_once(frame: DataFrame) -> DataFrame:
    """Return the frame with rows that are kept when they are first computed, in memory or on disk, until `unpersist` or
    its end. Small jobs keep them as they are: Spark's cache makes and compiles Java code for their columns, 2.5 s of
    processor time in the README's tour."""
    return frame.localCheckpoint(eager=False) if is_small(frame.sparkSession) else frame.persist()


def under_spark_submit() -> bool:
    """Return whether spark-submit started this process, and with it a JVM whose settings are fixed."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def configuration_of(
    master: str, given: Mapping[str, str], *, memory: str = "", debug: bool = False, small: bool = False
) -> dict[str, str]:
    """Return all `spark.*` keys of a session; `given` ones are kept as they are."""
    chosen = dict(_ALWAYS)
    if under_spark_submit():
        return chosen | ({"spark.master": master} if master else {}) | dict(given)
    chosen["spark.master"] = master or "local[*]"
    chosen["spark.driver.memory"] = memory or driver_memory()
    options = [given.get("spark.driver.extraJavaOptions", "")]  # the last wins
    if chosen["spark.master"].startswith("local"):
        chosen |= _LOCAL | {"spark.sql.shuffle.partitions": str(_cores(chosen["spark.master"]))}
        if small:
            options[:0] = [_SMALL_JAVA, f'"-XX:SharedArchiveFile={CLASS_ARCHIVE}"' if CLASS_ARCHIVE.is_file() else ""]
            chosen |= _SMALL
    if not debug:
        options.insert(0, f"-Dlog4j2.configurationFile={_QUIET_LOG.as_uri()}")
    java = {"spark.driver.extraJavaOptions": " ".join(filter(None, options))}
    return chosen | dict(given) | {key: value for key, value in java.items() if value}


def _cores(master: str) -> int:
    """Return the number of tasks that run at a time in this process: `local` is one, `local[2]` two, `local[*]` all
    cores."""
    match = re.match(r"local\[(\d+|\*)", master)
    if match is None:
        return 1
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])


def _name_interpreters(*, local: bool) -> None:
    """Set the interpreter of workers, which otherwise start `python3` from PATH, and of data sources on the driver."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # half the time of importing NumPy: 0.15 s in each process
    if local and os.access(_WORKER_PYTHON, os.X_OK):  # else another system, or an installation that drops the mode
        os.environ["PENSTOCK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"] = str(_WORKER_PYTHON)
    elif local or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable


def _check_parts() -> None:
    missing = []
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        how = "install Penstock with its extra spark (in a checkout: pip install '.[spark]')"
        raise CannotRun(f"{' and '.join(missing)} cannot be imported: {how}")


def _started(name: str, configuration: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in configuration.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        master = configuration.get("spark.master", "")
        raise CannotRun(
            f"cannot start a Spark session on {master or 'the master of spark-submit'}: {cause(error)}"
        ) from error
