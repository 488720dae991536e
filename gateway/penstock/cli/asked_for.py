"""`penstock reload` and `penstock drain`: what signals do, where a process cannot be signalled."""

from __future__ import annotations

import click

from penstock.cli.asking import ask, management_options, refused

__all__ = ["drain_command", "reload_command"]


@click.command("reload")
@management_options
def reload_command(management: str, token: str | None) -> None:
    """Have a gateway read its configuration file again, as SIGHUP does.

    Says what changed. Ends with 1, and says why, where nothing was changed.
    """
    status, answer = ask(management, token, "/reload", {})
    if status != 200:
        raise refused(answer)
    click.echo(answer["changed"])


@click.command("drain")
@management_options
def drain_command(management: str, token: str | None) -> None:
    """Have a gateway stop as SIGTERM does: clients finish, at most until its deadline.

    Returns at once; the gateway ends when they have.
    """
    status, answer = ask(management, token, "/drain", {})
    if status != 202:
        raise refused(answer)
    click.echo("draining")
