"""The archive of Java classes: small jobs use it, and setting up goes on where it cannot be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_spark.running import class_archive

SAMPLE = Path(class_archive.__file__).with_name("sample.pcapng")
MOST_FROM_JARS = 0.1
"""Share of classes that are loaded from jars all the same: some are made at run time, or too old to be archived."""


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_small_job_maps_most_of_its_classes_from_the_archive(tmp_path: Path) -> None:
    done = run("penstock_spark.running.class_archive")
    assert (done.returncode, done.stderr) == (0, "")
    loaded = tmp_path / "loaded"
    done = run(
        *("penstock", "pipeline", "usage", SAMPLE),
        *("--conf", f"spark.driver.extraJavaOptions=-Xlog:class+load:file={loaded}"),
    )
    assert done.returncode == 0, done.stderr
    sources = [line.rpartition("source: ")[2] for line in loaded.read_text().splitlines()]
    spark = [source for source in sources if source.startswith(("shared objects file (top)", "file:"))]
    assert len(spark) > 10_000
    assert sum(source.startswith("file:") for source in spark) < MOST_FROM_JARS * len(spark)


def test_without_java_setting_up_goes_on() -> None:
    done = run("penstock_spark.running.class_archive", PATH="", JAVA_HOME="")
    assert done.returncode == 0
    assert "cannot be made: Spark needs Java" in done.stderr
