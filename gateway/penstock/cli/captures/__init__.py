"""The commands that look at captures."""

from penstock.cli.captures.explain import explain_command
from penstock.cli.captures.export import export_command
from penstock.cli.captures.records import records_command
from penstock.cli.captures.show import show_command
from penstock.cli.captures.stats import stats_command

__all__ = ["CAPTURE_COMMANDS"]

CAPTURE_COMMANDS = (show_command, explain_command, records_command, stats_command, export_command)
