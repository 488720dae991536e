"""`penstock pipeline audit`: prove that two views of the same streams are equal, or show where they differ."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from penstock_spark.cli.common import DIFFERENT, Job, common_options, running, wrong

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["audit_command"]


@click.command("audit")
@click.argument("left")
@click.argument("right")
@click.option(
    "--name", "names", multiple=True, metavar="LEFT=RIGHT", help="A stream that has another name on the right."
)
@click.option("--by", type=click.Choice(["content", "position"]), default="content", show_default=True)
@click.option("--also", multiple=True, help="Also compare: timestamp, or seq_num.")
@click.option(
    "--action",
    type=click.Choice(["appended", "delivered"]),
    help="Only appended, or only delivered records of recordings.",
)
@click.option("--side", type=click.Choice(["front", "back", "foreign"]), help="Only this side of recordings.")
@click.option("--all-headers", is_flag=True, help="Also compare the header that the sink adds as its marker.")
@click.option("--json", "as_json", is_flag=True, help="Print all rows and columns, as JSON lines.")
@common_options
def audit_command(
    job: Job,
    left: str,
    right: str,
    names: tuple[str, ...],
    by: str,
    also: tuple[str, ...],
    action: str | None,
    side: str | None,
    all_headers: bool,
    as_json: bool,
) -> None:
    """Compare LEFT with RIGHT, each a directory of tables written by `ingest`, recordings, or streams as
    http://HOST:PORT/BASIN/STREAM.

    Exits with 0 if all streams are equal, and with 1 if any differs.
    """
    renamed = dict(name.split("=", 1) for name in names if "=" in name)
    if len(renamed) != len(names):
        raise wrong("--name: expected LEFT=RIGHT, each stream once")
    with running(job) as session:
        from penstock_spark.cli.showing import show_table
        from penstock_spark.jobs.audit import audit
        from penstock_spark.sink.marker import MARKER

        views = [_records(session, job, view) for view in (left, right)]
        session.sparkContext.setJobDescription("audit")
        ignored = () if all_headers else (MARKER,)
        outcome = audit(*views, names=renamed, also=also, by=by, action=action, side=side, ignored_headers=ignored)
        with contextlib.suppress(BrokenPipeError):  # the exit code is enough
            show_table("verdicts", outcome.verdicts, as_json=as_json)
        different = outcome.verdicts.where("verdict != 'equal'").count() > 0
        if different:
            with contextlib.suppress(BrokenPipeError):
                show_table("differences", outcome.differences, as_json=as_json)
        outcome.close()
    if different:
        sys.exit(DIFFERENT)


def _records(session: SparkSession, job: Job, view: str) -> DataFrame:
    """Return one table of records; a stream's own records and recorded ones are different views."""
    from penstock_spark.cli.views import records_tables

    tables = records_tables(session, job, view)
    if len(tables) > 1:
        raise wrong(f"{view} has the tables {' and '.join(tables)}; name the directory of one")
    [records] = tables.values()
    return records
