"""The group of commands; each is imported, with all that it needs, when it is called.

Exit codes: 0 done; 1 `audit` found differences; 2 wrong usage or settings; 3 Spark cannot run here (no Java, no
PySpark, no master); 4 the job failed; 130 ended by a signal.
"""

from __future__ import annotations

from typing import Final

import click

from penstock.cli.listing import ListingGroup, listed

__all__ = ["COMMANDS", "pipeline_commands"]

COMMANDS: Final = {
    "audit": ("penstock_spark.cli.comparing:audit_command", "Compare two views of the same streams."),
    "backfill": ("penstock_spark.cli.moving:backfill_command", "Write records of tables to streams, each once."),
    "ingest": ("penstock_spark.cli.moving:ingest_command", "Write recordings and live streams to tables."),
    "latency": ("penstock_spark.cli.looking:latency_command", "Print percentiles of answer and delivery times."),
    "quality": ("penstock_spark.cli.looking:quality_command", "Print gaps, duplicate records and disorder by stream."),
    "report": ("penstock_spark.cli.looking:report_command", "Plot quality, latency and usage on one HTML page."),
    "run": ("penstock_spark.cli.running:run_command", "Ingest, print quality, latency and usage, and report."),
    "usage": ("penstock_spark.cli.looking:usage_command", "Print bytes, records and errors of each client."),
}
"""Location of each command, and its line in the list of commands."""


@click.group(
    name="pipeline",
    cls=ListingGroup,
    commands=listed(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def pipeline_commands() -> None:
    """Make tables of streams and recordings, with Spark.

    Needs Java 17 or newer, and Penstock installed with its extra `spark`.
    """
