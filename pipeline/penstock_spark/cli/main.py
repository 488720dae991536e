"""The group of commands; each is imported, with all that it needs, when it is called.

Exit codes: 0 done; 1 `audit` found differences; 2 wrong usage or settings; 3 Spark cannot run here (no Java, no
PySpark, no master); 4 the job failed; 130 ended by a signal.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

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


class _Listed(click.Command):
    """A command that is not imported yet: its name and its line in the list."""

    def __init__(self, name: str, place: str, line: str) -> None:
        super().__init__(name, short_help=line)
        self._place = place

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self._place.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


class _Commands(click.Group):
    """Lists commands without importing them, and imports the one that is called or completed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that these arguments call, and import it. Raises UsageError if there is none."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Listed) else command, rest


@click.group(
    name="pipeline",
    cls=_Commands,
    commands={name: _Listed(name, *listed) for name, listed in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
def pipeline_commands() -> None:
    """Make tables of streams and recordings, with Spark.

    Needs Java 17 or newer, and Penstock installed with its extra `spark`.
    """
