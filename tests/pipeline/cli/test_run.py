"""The `run` command: recordings and streams to tables, to results, to a page; and its failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from support.captures.small_recording import small_recording
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client

from penstock_spark.cli import common
from penstock_spark.cli.main import pipeline_commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands in this process, with the session of all tests, which they do not stop."""
    monkeypatch.setattr(common, "open_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    return lambda *words: CliRunner().invoke(pipeline_commands, [str(word) for word in words])


def jobs(spark: SparkSession) -> int:
    """Return how many jobs the session has run; with adaptive execution each stage is one."""
    return int(spark.sparkContext._jsc.sc().statusStore().jobsList(None).size())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_from_a_recording_to_a_page(run: Run, spark: SparkSession, gateway: GatewayProcess, tmp_path: Path) -> None:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.append_json("run-one", {"records": [{"body": "first"}, {"body": "second"}]}).json()
    recordings = small_recording(tmp_path / "recorded")
    tables, page = tmp_path / "tables", tmp_path / "report.html"
    live = ("--endpoint", gateway.s2_url, "--stream", f"{BASIN}/run-*")
    before = jobs(spark)
    done = run("run", recordings, *live, "--target", tables, "--report", page)
    assert done.exit_code == 0, done.output
    # A job costs a third of a second of processor time, however small it is. There were 126 for recordings alone.
    found = jobs(spark) - before
    print("jobs", found)
    assert found < 85
    titles = ["quality of streams", "quality of records", "latency", "usage"]
    assert [line for line in done.stdout.splitlines() if line in titles] == titles
    assert f"{BASIN}/run-one" in done.stdout and f"{BASIN}/orders-json" in done.stdout
    assert page.read_text().startswith("<!doctype html>") and "<svg" in page.read_text()
    rows = {name: pq.read_table(tables / name).num_rows for name in ("streams", "records", "messages", "connections")}
    assert rows["streams"] == 2 and min(rows.values()) > 0

    again = run("ingest", recordings, *live, "--target", tables)
    assert again.exit_code == 0, again.output
    assert {name: pq.read_table(tables / name).num_rows for name in rows} == rows

    # What was ingested equals the stream; a record more, and it does not.
    view = f"{gateway.s2_url}/{BASIN}/run-one"
    audited = run("audit", tables / "streams", view, "--json")
    assert audited.exit_code == 0, audited.output
    [verdict] = map(json.loads, audited.stdout.splitlines())
    assert (verdict["table"], verdict["verdict"], verdict["left_records"]) == ("verdicts", "equal", 2)
    client.append_json("run-one", {"records": [{"body": "third"}]}).json()
    audited = run("audit", tables / "streams", view, "--json")
    assert audited.exit_code == 1
    assert [json.loads(line)["verdict"] for line in audited.stdout.splitlines()[:1]] == ["different"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_streams_alone_have_a_page_too(run: Run, gateway: GatewayProcess, tmp_path: Path) -> None:
    tables, page = tmp_path / "tables", tmp_path / "report.html"
    live = ("--endpoint", gateway.s2_url, "--stream", f"{BASIN}/alone")
    done = run("run", *live, "--target", tables, "--report", page)
    assert done.exit_code == 4
    assert done.stderr == f"Error: stream_not_found: {gateway.s2_url}: there is no stream {BASIN}/alone\n"
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.append_json("alone", {"records": [{"body": "first"}, {"body": "second"}]}).json()
    done = run("run", *live, "--target", tables, "--report", page)
    assert done.exit_code == 0, done.output
    assert "quality of streams" in done.stdout and "latency" not in done.stdout
    assert page.read_text().count("<section") == 1 and page.read_text().count("<svg") == 1
    refused = run("report", tables, "--output", tmp_path / "absent" / "report.html")
    assert (refused.exit_code, refused.stderr) == (
        4, f"Error: {tmp_path}/absent/report.html: cannot write it: No such file or directory\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["quality", "http://127.0.0.1:1/penstock/a", "--config", "{}/pipeline.toml"], 4, "127.0.0.1:1"),
        (["quality", "{}/absent"], 4, "absent"),
        (["latency", "http://127.0.0.1:1/penstock/a"], 2, "is a stream; this job needs recordings"),
    ],
)
def test_what_fails_says_why_and_nothing_else(
    run: Run, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "pipeline.toml").write_text("[source.options]\nconnect_seconds = 0.5\n")
    done = run(*(word.format(tmp_path) for word in words))
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ") and message in done.stderr
    assert len(done.stderr.splitlines()) < 4 and "Traceback" not in done.stderr and "java" not in done.stderr
