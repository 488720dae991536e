"""`penstock pipeline run`: from recordings or live streams to tables, results and a page."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_spark.cli.common import FAILED, Job, common_options, running, wrong
from penstock_spark.cli.looking import report_of
from penstock_spark.cli.moving import ingest_options, ingested, require_source, what_is_read

__all__ = ["run_command"]


@click.command("run")
@ingest_options
@click.option("--report", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page.")
@common_options
def run_command(
    job: Job, captures: tuple[str, ...], endpoint: str, streams: tuple[str, ...], target: str, report: Path
) -> None:
    """Ingest recordings (CAPTURES: files, directories, globs) and live streams, print results, and write a report.

    The same as `ingest`, then `quality`, `latency`, `usage` and `report` on its tables. Without CAPTURES and --stream
    the configuration's sources are read.
    """
    job = require_source(job, captures, endpoint, streams, target)
    with running(job, *what_is_read(job)) as session:
        from penstock_spark.cli.views import has_tables

        ingested(session, job)
        place = job.settings.target.path
        if not has_tables(session, job, place):
            raise wrong(
                f"{_read(job)}: found no records, and no earlier tables in {place}. "
                "A file that a recorder still writes is left out",
                FAILED,
            )
        report_of(session, job, place, report, shown=True)
        click.echo(f"\nTables are in {place}, plots in {report}.")


def _read(job: Job) -> str:
    """Return the sources as text for people."""
    source, captures = job.settings.source, job.settings.captures
    streams = [f"{source.endpoint}, {', '.join(source.streams)}"] if source.streams else []
    return " and ".join([*captures.path, *streams])
