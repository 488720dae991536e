"""A standalone cluster on loopback, with a driver that spark-submit starts: the same results as in one process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.captures.small_recording import small_recording
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client
from support.spark.cluster import SPARK_HOME, SparkCluster, spark_cluster
from support.spark.cluster_job import PARTITIONS, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 4000
TESTS = Path(__file__).parents[2]
LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "WARN",
    # No task begins before both workers are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


def submitted(cluster: SparkCluster, directory: Path, *program: object, **environment: str) -> str:
    """Run a program on the cluster with spark-submit and return its output."""
    settings = [word for key, value in LOOPBACK.items() for word in ("--conf", f"{key}={value}")]
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", cluster.master, *settings, *program]
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    ours |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env=ours,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_gives_the_same_on_both_workers(spark: SparkSession, gateway: GatewayProcess, tmp_path: Path) -> None:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    for part in range(4):
        records = [{"body": f"row {part} {at}"} for at in range(ROWS // 4)]
        client.append_json("cluster", {"records": records}).json()
    recordings = str(small_recording(tmp_path / "recorded"))
    given = (gateway.s2_url, f"{BASIN}/cluster", recordings)
    expected = json.loads(json.dumps(results(spark, *given)))
    assert expected["source"][0] == ROWS and expected["capture"][0] > 50

    place = tmp_path / "cluster"
    place.mkdir()
    with spark_cluster(place) as cluster:
        submitted(cluster, tmp_path, TESTS / "support" / "spark" / "cluster_job.py", *given, "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    ran = found.pop("ran")
    assert found == expected
    rows: Counter[str] = Counter()
    for directory, count in ran:
        rows[str(Path(directory).relative_to(place)).partition("/")[0]] += count
    assert len(ran) >= PARTITIONS and rows.total() == ROWS
    assert rows.keys() == {"worker-0", "worker-1"} and all(rows.values())


def packages(*wanted: str) -> set[str]:
    """The names of these distributions, and of all that they need."""
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += [
            match[0]
            for need in distribution(name).requires or ()
            if "extra ==" not in need and (match := re.match(r"[\w.-]+", need)) and installed(match[0])
        ]
    return found


def installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def archive(path: Path) -> None:
    """Make the archive of `pip install --target site . pyarrow pandas` from the packages installed here."""
    with tarfile.open(path, "w") as file:
        for name in packages("penstock-gateway", "pyarrow", "pandas"):
            for one in distribution(name).files or ():
                if ".." not in one.parts and "tests" not in one.parts:
                    file.add(one.locate(), str(one))
        build = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
        for package in build["targets"]["wheel"]["packages"]:  # editable here
            file.add(TESTS.parent / package, package.partition("/")[2])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_packages_travel_with_the_job(gateway: GatewayProcess, tmp_path: Path) -> None:
    """To machines that have Spark and Python, and nothing of ours."""
    bare = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")
    lacking = subprocess.run([bare, "-c", "import penstock"], capture_output=True, check=False)
    assert lacking.returncode, "this interpreter is to have nothing of ours"
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.append_json("travelled", {"records": [{"body": f"row {at}"} for at in range(500)]}).json()
    archive(tmp_path / "site.tar")
    site = tmp_path / "site"
    with tarfile.open(tmp_path / "site.tar") as file:
        file.extractall(site, filter="data")
    place = tmp_path / "cluster"
    place.mkdir()
    asked = [bare, "-m", "penstock_spark.submit"]
    where = subprocess.run(asked, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True).stdout
    with spark_cluster(place) as cluster:
        printed = submitted(
            cluster,
            tmp_path,
            *("--archives", f"{tmp_path}/site.tar#site", "--conf", "spark.executorEnv.PYTHONPATH=./site"),
            *(where.strip(), "quality", f"{gateway.s2_url}/{BASIN}/travelled", "--json"),
            PYTHONPATH=str(site),
            PYSPARK_PYTHON=bare,
        )
    [row] = map(json.loads, printed.splitlines())
    assert (row["stream"], row["verdict"], row["records"]) == (f"{BASIN}/travelled", "good", 500)
