"""`penstock pipeline run`: from what was recorded, or flows, to tables, to what they say, to a page."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_spark.cli.common import FAILED, Job, common_options, running, wrong
from penstock_spark.cli.looking import latency_of, quality_of, report_of, usage_of
from penstock_spark.cli.moving import ingest_options, ingested, told_what_to_read

__all__ = ["run_command"]


@click.command("run")
@ingest_options
@click.option("--report", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page.")
@common_options
def run_command(
    job: Job, captures: tuple[str, ...], endpoint: str, streams: tuple[str, ...], target: str, report: Path
) -> None:
    """Ingest recordings (CAPTURES: files, directories, globs) and live streams, print what they say, write a report.

    The same as `ingest`, then `quality`, `latency`, `usage` and `report` on its tables. Without CAPTURES and --stream:
    those of the configuration.
    """
    job = told_what_to_read(job, captures, endpoint, streams, target)
    with running(job) as session:
        from penstock_spark.cli.showing import show
        from penstock_spark.cli.views import has_tables

        ingested(session, job)
        place = job.settings.target.path
        if not has_tables(session, job, place):
            raise wrong(f"{_read(job)}: no records are there, and no tables in {place} from before", FAILED)
        for title, table in quality_of(session, job, place):
            show(f"quality of {title}", table)
        if job.settings.captures.path:
            show("latency", latency_of(session, job, place))
            show("usage", usage_of(session, job, place))
        report_of(session, job, place, report)
        click.echo(f"\nTables are in {place}, plots in {report}.")


def _read(job: Job) -> str:
    """What was read, for people."""
    source, captures = job.settings.source, job.settings.captures
    streams = [f"{source.endpoint}, {', '.join(source.streams)}"] if source.streams else []
    return " and ".join([*captures.path, *streams])
