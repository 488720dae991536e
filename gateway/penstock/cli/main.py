"""The command line: its table of commands, each imported only when it runs or shows its own help.

`penstock --help` and the shell's completion import only click, this module, `listing` and `output`. A command's module
imports its dependencies inside its functions, so that completing its options is fast, too. Other distributions add
commands as entry points of the group "penstock.commands", as `pipeline` is.
"""

from __future__ import annotations

import os
import signal
from importlib.metadata import entry_points
from typing import Final

import click

from penstock import DISTRIBUTION
from penstock.cli.listing import ListingGroup, listed
from penstock.cli.output import guarding_output

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "append": ("penstock.cli.streams.append:append_command", "Append records to a stream of any server."),
    "backs": ("penstock.cli.backs_and_routes:backs_command", "List the backs of a gateway, with their circuits."),
    "check": ("penstock.cli.serving:check_command", "Validate a configuration and describe it."),
    "completion": ("penstock.cli.completion:completion_command", "Print a shell's completion script."),
    "conform": ("penstock.cli.conform:conform_command", "Hold a server to its protocol's specification."),
    "connections": ("penstock.cli.traffic.connections:connections_command", "List the connections of a gateway."),
    "create": ("penstock.cli.streams.manage:create_command", "Create a stream on any server."),
    "cut-over": ("penstock.cli.cut_over:cut_over_command", "Swap the primary back of a route with its mirror."),
    "decode": ("penstock.cli.decode:decode_command", "List the messages in a file of bytes or hex."),
    "delete": ("penstock.cli.streams.manage:delete_command", "Delete a stream of any server."),
    "diff": ("penstock.cli.diff:diff_command", "Compare the records of two recordings, or of a server."),
    "doctor": ("penstock.cli.doctor:doctor_command", "Check whether a gateway would run well here."),
    "drain": ("penstock.cli.drain_and_reload:drain_command", "Drain and stop a gateway, as SIGTERM does."),
    "explain": ("penstock.cli.captures.explain:explain_command", "Show each error in a capture, with its bytes."),
    "export": ("penstock.cli.captures.export:export_command", "Write a capture as JSON lines, HAR or pcapng."),
    "extcap": ("penstock.cli.traffic.extcap:extcap_command", "Show a gateway as an interface of Wireshark."),
    "follow": ("penstock.cli.streams.read:follow_command", "Print records of any server as they are appended."),
    "log-level": ("penstock.cli.drain_and_reload:log_level_command", "Print or set the level of a gateway's log."),
    "mock": ("penstock.cli.mock:mock_command", "Answer clients as the recorded server did."),
    "positions": ("penstock.cli.positions:positions_command", "Give a record's position in every protocol."),
    "read": ("penstock.cli.streams.read:read_command", "Print the records of a stream of any server."),
    "record": ("penstock.cli.traffic.record:record_commands", "Start, stop and list recordings of a gateway."),
    "recordings": ("penstock.cli.traffic.record:recordings_command", "List the running recordings of a gateway."),
    "records": ("penstock.cli.captures.records:records_command", "Print the records in a capture as JSON lines."),
    "reload": ("penstock.cli.drain_and_reload:reload_command", "Reload a gateway's configuration, as SIGHUP does."),
    "replay": ("penstock.cli.replay:replay_command", "Replay recorded clients against any server."),
    "routes": ("penstock.cli.backs_and_routes:routes_command", "List the routes of a gateway, with their mirrors."),
    "serve": ("penstock.cli.serving:serve_command", "Run the gateway until SIGTERM or SIGINT."),
    "show": ("penstock.cli.captures.show:show_command", "List the messages in a capture."),
    "stats": ("penstock.cli.captures.stats:stats_command", "Print statistics of a capture."),
    "store": ("penstock.cli.store:store_commands", "Check the files of the embedded store."),
    "streams": ("penstock.cli.streams.manage:streams_command", "List the streams of a server."),
    "tail": ("penstock.cli.traffic.tail:tail_command", "List a gateway's messages as they pass."),
    "token": ("penstock.cli.tokens:token_commands", "Issue, list and revoke access tokens."),
    "trim": ("penstock.cli.streams.manage:trim_command", "Remove the first records of a stream."),
}
"""Module, name and summary of each command."""
ENTRY_POINT_GROUP: Final = "penstock.commands"
_ENTRY_POINT_HELP: Final = {"pipeline": "Make tables of streams and recordings, with Spark."}
"""Summaries of commands that are entry points, which carry none; other entry points are listed with their
distribution."""

_SIGNALS_OF_SERVE: Final = (signal.SIGTERM, signal.SIGHUP)


class _Commands(ListingGroup):
    """The group of all commands; it handles standard output."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Parse the arguments. Colours are off if NO_COLOR is set and not empty."""
        with guarding_output():
            return super().make_context(
                info_name, args, parent, **{"color": False if os.environ.get("NO_COLOR") else None, **extra}
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that these arguments call. Raises UsageError if there is none.

        SIGTERM and SIGHUP to `serve` wait until it handles them, since its imports take long: process 1, as in a
        container, would ignore the one, and the other would end the process.
        """
        if args[0] == "serve":
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS_OF_SERVE)
            ctx.call_on_close(lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS_OF_SERVE))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with guarding_output():
            return super().invoke(ctx)


def _all_commands() -> dict[str, tuple[str, str]]:
    """Return module, name and summary of all commands; Penstock's own win over entry points of the same name."""
    plugin_commands = {
        entry.name: (
            entry.value,
            _ENTRY_POINT_HELP.get(entry.name) or f"(from {entry.dist.name if entry.dist else entry.module})",
        )
        for entry in entry_points(group=ENTRY_POINT_GROUP)
    }
    return plugin_commands | COMMANDS


@click.group(cls=_Commands, commands=listed(_all_commands()), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, message="penstock %(version)s")
def main() -> None:
    """Penstock: a multi-protocol gateway for append-only streams of records."""
