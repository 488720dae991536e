"""A real standalone cluster of Spark on loopback, out of the pip package: a master, and workers of one core each."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

__all__ = ["SPARK_HOME", "SparkCluster", "spark_cluster"]

SPARK_HOME: Final = Path(pyspark.__file__).parent
_SECONDS: Final = 90
_POLL_SECONDS: Final = 0.1
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class SparkCluster:
    """`master`: its URL. `works`: the directory of each worker, where its executors run."""

    def __init__(self, master: str, works: list[Path]) -> None:
        self.master = master
        self.works = works


@contextmanager
def spark_cluster(directory: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """It is there when all workers have said who they are, and is killed at the end."""
    with ExitStack() as stack:
        log = _started(stack, directory / "master.log", _MASTER, "--port", "0")
        master = _said(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        works = [directory / f"worker-{number}" for number in range(workers)]
        for work in works:
            size = ("--cores", "1", "--memory", "1g", "--port", "0", "--work-dir", str(work))
            _started(stack, directory / f"{work.name}.log", _WORKER, *size, master)
        for work in works:
            _said(directory / f"{work.name}.log", "(Successfully registered with master)")
        yield SparkCluster(master, works)


def _started(stack: ExitStack, log: Path, name: str, *arguments: str) -> Path:
    """A process of the cluster, which logs to a file; killed when the stack is unwound."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(log.parent / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=false",
    }
    command = [str(SPARK_HOME / "bin" / "spark-class"), name, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return log


def _said(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(_POLL_SECONDS)
    raise AssertionError(f"it did not say {pattern!r}\n{log.read_text(errors='replace')[-3000:]}")
