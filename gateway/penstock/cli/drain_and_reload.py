"""`penstock reload`, `drain` and `log-level`: what signals do, for processes that cannot be signalled, and the log."""

from __future__ import annotations

import click

from penstock.cli.admin_client import answered, management_options
from penstock.cli.output import json_option, print_result

__all__ = ["drain_command", "log_level_command", "reload_command"]


@click.command("reload")
@management_options
@json_option
def reload_command(management: str, token: str | None, as_json: bool) -> None:
    """Reload a gateway's configuration file, as SIGHUP does.

    Prints what changed. Exits with 1, and says why, if nothing was changed.
    """
    answer = answered(management, token, "/reload", {})
    print_result(answer, [answer["changed"]], as_json)


@click.command("drain")
@management_options
@json_option
def drain_command(management: str, token: str | None, as_json: bool) -> None:
    """Drain and stop a gateway, as SIGTERM does: clients may finish until its deadline.

    Returns at once; the gateway ends when its clients have finished.
    """
    answer = answered(management, token, "/drain", {}, status=202)
    print_result(answer, [answer["state"]], as_json)


@click.command("log-level")
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]), required=False)
@management_options
@json_option
def log_level_command(level: str | None, management: str, token: str | None, as_json: bool) -> None:
    """Print the lowest level that a gateway logs, or set it to LEVEL.

    It holds until it is set again or the configuration is reloaded.
    """
    words = None if level is None else {"level": level}
    answer = answered(management, token, "/log", words, method="PUT")
    print_result(answer, [answer["level"]], as_json)
