"""`penstock reload` and `penstock drain`: what signals do, for processes that cannot be signalled."""

from __future__ import annotations

import click

from penstock.cli.admin_client import answer_error, ask, management_options

__all__ = ["drain_command", "reload_command"]


@click.command("reload")
@management_options
def reload_command(management: str, token: str | None) -> None:
    """Reload a gateway's configuration file, as SIGHUP does.

    Prints what changed. Exits with 1, and says why, if nothing was changed.
    """
    status, answer = ask(management, token, "/reload", {})
    if status != 200:
        raise answer_error(answer)
    click.echo(answer["changed"])


@click.command("drain")
@management_options
def drain_command(management: str, token: str | None) -> None:
    """Drain and stop a gateway, as SIGTERM does: clients may finish until its deadline.

    Returns at once; the gateway ends when its clients have finished.
    """
    status, answer = ask(management, token, "/drain", {})
    if status != 202:
        raise answer_error(answer)
    click.echo("draining")
