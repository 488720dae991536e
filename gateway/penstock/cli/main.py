"""The command line: which commands there are. Each is imported when it is asked for, with all that it needs.

`penstock show` needs no server, and `penstock serve` no captures: everything together takes three times as long.
Other packages bring commands of their own: entry points of the group "penstock.commands", as `pipeline` does.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

import click

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "check": "penstock.cli.serving:check_command",
    "completion": "penstock.cli.completion:completion_command",
    "connections": "penstock.cli.traffic.connections:connections_command",
    "cut-over": "penstock.cli.cut_over:cut_over_command",
    "decode": "penstock.cli.decode:decode_command",
    "diff": "penstock.cli.diff:diff_command",
    "drain": "penstock.cli.asked_for:drain_command",
    "doctor": "penstock.cli.doctor:doctor_command",
    "explain": "penstock.cli.captures.explain:explain_command",
    "export": "penstock.cli.captures.export:export_command",
    "mock": "penstock.cli.mock:mock_command",
    "positions": "penstock.cli.positions:positions_command",
    "record": "penstock.cli.traffic.record:record_commands",
    "records": "penstock.cli.captures.records:records_command",
    "reload": "penstock.cli.asked_for:reload_command",
    "replay": "penstock.cli.replay:replay_command",
    "serve": "penstock.cli.serving:serve_command",
    "show": "penstock.cli.captures.show:show_command",
    "stats": "penstock.cli.captures.stats:stats_command",
    "tail": "penstock.cli.traffic.tail:tail_command",
    "token": "penstock.cli.tokens:token_commands",
}
"""Where each command is."""
ENTRY_POINT_GROUP: Final = "penstock.commands"


class _Commands(click.Group):
    """Imports a command when somebody wants it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, as `--help` lists them."""
        del ctx
        return sorted(_places())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None where there is none."""
        del ctx
        place = _places().get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


def _places() -> dict[str, str]:
    """Where each command is, also those of other packages; ours go first where two have one name."""
    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)} | COMMANDS


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock", message="penstock %(version)s")
def main() -> None:
    """Penstock: a multi-protocol gateway for append-only streams of records."""
