"""A small `run` stays cheap: few jobs and processes, since each costs more than the work that it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.captures.small_recording import small_recording

MOST_JOBS = 16
"""A job costs up to 0.3 s of processor time, however small it is. There were 57 when each stage was planned anew."""
MOST_STAGES = 28
"""A shuffle begins a stage. There were 86, and 48 before the tables of small jobs were read as one partition."""
_NOTE_START = """\
import sys
with open({file!r}, "a") as file:
    file.write(" ".join(sys.orig_argv[1:]) + chr(10))
"""


def interpreters(file: Path) -> Counter[str]:
    """Return the Python programs that were started, by what they ran."""
    return Counter(line.partition(" ")[2].replace("-m ", "") for line in file.read_text().splitlines())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_small_run_has_few_jobs_and_processes(tmp_path: Path) -> None:
    recordings = small_recording(tmp_path / "recorded")
    log, hooks, started = tmp_path / "events", tmp_path / "hooks", tmp_path / "started"
    log.mkdir()
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(_NOTE_START.format(file=str(started)))
    words = [sys.executable, "-m", "penstock", "pipeline", "run", recordings, "--target", tmp_path / "tables"]
    words += ["--report", tmp_path / "report.html"]
    for key, value in {"enabled": "true", "dir": log.as_uri(), "compress": "false"}.items():
        words += ["--conf", f"spark.eventLog.{key}={value}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(hooks), *filter(None, sys.path)])}
    done = subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Ingested ") and "\nusage\n" in done.stdout

    events = [json.loads(line) for file in log.glob("*/events_*") for line in file.read_text().splitlines()]
    jobs = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    print("jobs", len(jobs))
    assert 0 < len(jobs) <= MOST_JOBS
    stages = [event for event in events if event["Event"] == "SparkListenerStageCompleted"]
    print("stages", len(stages))
    assert 0 < len(stages) <= MOST_STAGES
    # One process looks for data sources, one makes ours, one plans the stream's batches and one their reading; workers
    # are forks of the last. A second plan of the source would not add one, and a second kind of work would.
    workers = {name: count for name, count in interpreters(started).items() if "pyspark" in name}
    print("workers", workers)
    assert workers == {
        "pyspark.daemon pyspark.sql.worker.lookup_data_sources": 1,
        "pyspark.daemon pyspark.sql.worker.create_data_source": 1,
        "pyspark.sql.streaming.python_streaming_source_runner": 1,
        "pyspark.daemon pyspark.sql.worker.plan_data_source_read": 1,
        "pyspark.daemon pyspark.worker": 1,
    }


@pytest.mark.spark
def test_decoders_are_imported_by_tasks_only() -> None:
    """Spark plans a query in two processes, each of which would pay for them."""
    planning = (
        "import sys, penstock_spark.capture.streaming; print('penstock.capture.dialogue.dialogues' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", planning], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
