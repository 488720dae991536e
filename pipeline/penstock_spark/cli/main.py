"""The group of commands; each is imported when it is asked for, with all that it needs.

Exit codes: 0 done; 1 `audit` found differences; 2 wrong use, or wrong settings; 3 nothing can be run here (no Java, no
PySpark, no master); 4 the job failed; 130 a signal ended it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

__all__ = ["COMMANDS", "pipeline_commands"]

COMMANDS: Final = {
    "audit": "penstock_spark.cli.comparing:audit_command",
    "backfill": "penstock_spark.cli.moving:backfill_command",
    "ingest": "penstock_spark.cli.moving:ingest_command",
    "latency": "penstock_spark.cli.looking:latency_command",
    "quality": "penstock_spark.cli.looking:quality_command",
    "report": "penstock_spark.cli.looking:report_command",
    "run": "penstock_spark.cli.running:run_command",
    "usage": "penstock_spark.cli.looking:usage_command",
}
"""Where each command is."""


class _Commands(click.Group):
    """Imports a command when somebody wants it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, as `--help` lists them."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None where there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(name="pipeline", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline_commands() -> None:
    """Make tables of streams and recordings, with Spark.

    Needs Java 17 or newer, and `pip install 'penstock[spark]'`.
    """
