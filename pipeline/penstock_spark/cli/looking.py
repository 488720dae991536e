"""`penstock pipeline quality`, `latency`, `usage` and `report`: results of jobs on tables or recordings, and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock_spark.cli.common import FAILED, Job, common_options, running, wrong
from penstock_spark.schemas import CAPTURE_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "latency_command",
    "latency_of",
    "quality_command",
    "quality_of",
    "report_command",
    "report_of",
    "usage_command",
    "usage_of",
]


def _view(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("view", required=False)(command)


def _by(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--by", multiple=True, type=click.Choice(names), help="Repeatable (default: all).")


def _json(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print all rows and columns, as JSON lines.")(command)


@click.command("quality")
@_view
@click.option("--interval-ms", type=click.IntRange(1), help="Expected interval between records (default: estimated).")
@_json
@common_options
def quality_command(job: Job, view: str | None, interval_ms: int | None, as_json: bool) -> None:
    """Print gaps, duplicates, disorder, timestamps going back and silences of each stream.

    VIEW: a directory of tables written by `ingest` (default: the configuration's target), recordings, or streams as
    http://HOST:PORT/BASIN/STREAM.
    """
    with running(job, _of(job, view)) as session:
        for title, table in quality_of(session, job, _of(job, view), interval_ms):
            _show(f"quality of {title}", table, as_json)


@click.command("latency")
@_view
@_by("route", "protocol", "stream")
@click.option(
    "--every", "every_s", type=click.IntRange(1), metavar="SECONDS", help="Group by time windows of this length."
)
@_json
@common_options
def latency_command(job: Job, view: str | None, by: tuple[str, ...], every_s: int | None, as_json: bool) -> None:
    """Print percentiles of the times from request to response and from append to delivery.

    VIEW: a directory of tables written by `ingest` (default: the configuration's target), or recordings.
    """
    with running(job, _of(job, view)) as session:
        _show("latency", latency_of(session, job, _of(job, view), by, every_s), as_json)


@click.command("usage")
@_view
@_by("client", "stream", "protocol")
@_json
@common_options
def usage_command(job: Job, view: str | None, by: tuple[str, ...], as_json: bool) -> None:
    """Print bytes, records, errors and compression by client, stream and protocol.

    VIEW: a directory of tables written by `ingest` (default: the configuration's target), or recordings.
    """
    with running(job, _of(job, view)) as session:
        _show("usage", usage_of(session, job, _of(job, view), by), as_json)


@click.command("report")
@_view
@click.option("--output", type=click.Path(path_type=Path), default="report.html", show_default=True)
@common_options
def report_command(job: Job, view: str | None, output: Path) -> None:
    """Write one HTML page with plots of the results of `quality`, `latency` and `usage`.

    VIEW: a directory of tables written by `ingest` (default: the configuration's target), recordings, or streams as
    http://HOST:PORT/BASIN/STREAM.
    """
    with running(job, _of(job, view)) as session:
        report_of(session, job, _of(job, view), output)


def quality_of(
    session: SparkSession, job: Job, view: str, interval_ms: int | None = None
) -> list[tuple[str, DataFrame]]:
    """Return a table for the streams and one for the recordings, as far as the view has them, with their titles."""
    from penstock_spark.cli.views import all_tables
    from penstock_spark.jobs.quality import quality

    tables = all_tables(session, job, view)
    # Heartbeats define when records are expected, unless the user sets an interval.
    messages = {"records": tables.get("messages")} if interval_ms is None else {}
    return [
        (title, quality(tables[title], messages.get(title), interval_ms=interval_ms))
        for title in ("streams", "records")
        if title in tables
    ]


def latency_of(
    session: SparkSession, job: Job, view: str, by: Sequence[str] = (), every_s: int | None = None
) -> DataFrame:
    """Return latencies of the view's recordings."""
    from penstock_spark.cli.views import capture_tables
    from penstock_spark.jobs.latency import BY, latency

    messages, records = capture_tables(session, job, view, "messages", "records")
    return latency(messages, records, by=by or BY, every_s=every_s)


def usage_of(session: SparkSession, job: Job, view: str, by: Sequence[str] = ()) -> DataFrame:
    """Return the usage in the view's recordings."""
    from penstock_spark.cli.views import capture_tables
    from penstock_spark.jobs.usage import BY, usage

    connections, messages, records = capture_tables(session, job, view, "connections", "messages", "records")
    return usage(connections, messages, records, by=by or BY)


def report_of(session: SparkSession, job: Job, view: str, output: Path, *, shown: bool = False) -> None:
    """Write the page, for the recordings and streams of the view. `shown`: print the results of the jobs, too."""
    from penstock_spark.cli.views import all_tables
    from penstock_spark.jobs.quality import quality
    from penstock_spark.report import Findings, gather_results, gather_streams, page, results
    from penstock_spark.running.session import computed_once

    tables = all_tables(session, job, view)
    step = session.sparkContext.setJobDescription
    captured = tables.keys() >= CAPTURE_TABLES.keys()
    if not captured and "streams" not in tables:
        raise wrong(f"{view}: a page needs the table streams, or all of {', '.join(CAPTURE_TABLES)}")
    findings: Findings | None = None
    streams = computed_once(quality(tables["streams"])) if "streams" in tables else None
    if streams is not None and shown:
        _show("quality of streams", streams, False)
    if captured:
        step("time span of the recordings")
        made = results(*(tables[name] for name in CAPTURE_TABLES))
        if shown:
            _show("quality of records", made.quality, False)
            _show("latency", made.latency_by("route", "protocol", "stream"), False)
            _show("usage", made.usage_by("client", "stream", "protocol"), False)
        step("report")
        findings = gather_results(made)
    if streams is not None:
        step("report")
        findings = gather_streams(tables["streams"], findings, streams)
    assert findings is not None, "one of the two is set"
    try:
        output.write_text(page(findings), encoding="utf-8")
    except OSError as error:
        raise wrong(f"{output}: cannot write it: {error.strerror}", FAILED) from error


def _of(job: Job, view: str | None) -> str:
    return view or job.settings.target.path


def _show(title: str, table: DataFrame, as_json: bool) -> None:
    from penstock_spark.cli.showing import show_table

    table.sparkSession.sparkContext.setJobDescription(title)
    show_table(title, table, as_json=as_json)
