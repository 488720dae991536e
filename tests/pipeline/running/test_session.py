"""The session itself."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock_spark.running import session
from penstock_spark.running.session import configuration_of, driver_memory, machine_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_what_a_session_needs_wins_over_nothing_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    made = configuration_of("spark://host:7077", {"spark.sql.session.timeZone": "Asia/Tokyo"}, memory="3g")
    assert made["spark.master"] == "spark://host:7077"
    assert made["spark.driver.memory"] == "3g"
    assert made["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert "log4j2.properties" in made["spark.driver.extraJavaOptions"]


def test_options_of_java_are_added_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    given = {"spark.driver.extraJavaOptions": "-Dx=1"}
    assert configuration_of("", given)["spark.driver.extraJavaOptions"].split()[-1] == "-Dx=1"
    assert configuration_of("", given, debug=True)["spark.driver.extraJavaOptions"] == "-Dx=1"
    assert configuration_of("", {})["spark.master"] == "local[*]"


def test_under_spark_submit_the_jvm_is_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    made = configuration_of("", {"spark.sql.shuffle.partitions": "7"})
    assert made["spark.sql.shuffle.partitions"] == "7"
    assert not made.keys() & {"spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions"}
    assert configuration_of("local[1]", {})["spark.master"] == "local[1]"


def test_a_session_in_this_process_is_fitted_to_the_machine_and_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "CLASS_ARCHIVE", Path("absent"))
    made = configuration_of("local[3]", {})
    assert (made["spark.sql.shuffle.partitions"], made["spark.ui.enabled"]) == ("3", "false")
    assert "TieredStopAtLevel" not in made["spark.driver.extraJavaOptions"]
    assert configuration_of("local", {})["spark.sql.shuffle.partitions"] == "1"
    assert configuration_of("", {})["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    given = {"spark.driver.extraJavaOptions": "-Dx=1", "spark.ui.enabled": "true"}
    small = configuration_of("local[2,4]", given, small=True)
    java = small["spark.driver.extraJavaOptions"].split()
    assert java[-3:] == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dx=1"]
    assert small["spark.sql.codegen.wholeStage"] == "false" and "spark.sql.codegen.wholeStage" not in made
    assert (small["spark.ui.enabled"], small["spark.sql.shuffle.partitions"]) == ("true", "1")
    assert configuration_of("local[2,4]", given | {"spark.sql.shuffle.partitions": "2"}, small=True) == small | {
        "spark.sql.shuffle.partitions": "2"
    }
    cluster = configuration_of("spark://h:1", {}, small=True)
    assert "TieredStopAtLevel" not in cluster["spark.driver.extraJavaOptions"]
    assert not cluster.keys() & {"spark.sql.shuffle.partitions", "spark.ui.enabled"}


def test_small_jobs_use_the_archive_of_classes_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "with a space.jsa"
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "CLASS_ARCHIVE", archive)
    java = "spark.driver.extraJavaOptions"
    assert "SharedArchiveFile" not in configuration_of("", {}, small=True)[java]
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in configuration_of("", {}, small=True)[java]
    assert "SharedArchiveFile" not in configuration_of("", {})[java]


def test_memory_is_a_share_of_what_the_container_has(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("5000000000\n")
    assert machine_memory(limit) <= 5_000_000_000
    limit.write_text("max\n")
    assert machine_memory(limit) == machine_memory(tmp_path / "absent")
    assert re.fullmatch(r"[1-8]\d\d\dm", driver_memory())
