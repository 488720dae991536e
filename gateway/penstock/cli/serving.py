"""`penstock serve` and `penstock check`: run or validate a configuration."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.cli.output import json_option, print_json
from penstock.protocols.plugin import listener_kinds

__all__ = ["check_command", "serve_command"]


def _defaults() -> str:
    """Return where the listeners are bound without a configuration file, in words."""
    kinds = listener_kinds().values()
    return ", ".join(f"{kind.title} on {kind.table().bind}" for kind in kinds if kind.by_default)


_config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Configuration file (TOML). Without one: {_defaults()}, and data in ./data.",
)


def _address_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each kind of listener."""
    for name, kind in reversed(listener_kinds().items()):
        told = f"Address for clients: {kind.title}."
        command = click.option(f"--{name}", metavar="HOST:PORT|off", help=told)(command)
    return command


@click.command("serve")
@_config_option
@_address_options
@click.option("--management", metavar="HOST:PORT|off", help="Address for operators and their browsers.")
@click.option(
    "--management-token",
    metavar="TOKEN",
    help="Bearer token that operators must send, beside those of the file. auto: that of PENSTOCK_MANAGEMENT_TOKEN, or "
    "else a random one, which is printed.",
)
@click.option("--no-others", is_flag=True, help="Turn off all listeners without an address among these options.")
@click.option("--data", metavar="DIR", help="The store's directory.")
@click.option("--record", metavar="DIR", help="Record the traffic from the start, into pcapng files in this directory.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level that is logged."
)
@click.option("--anonymous", is_flag=True, help="Serve clients from other machines without authentication.")
@click.option(
    "--allow-host", metavar="NAME", multiple=True, help="A host name that clients may use over HTTP; * for any."
)
def serve_command(path: Path | None, management_token: str | None, **flags: Any) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second signal stops it at once.

    SIGHUP reads the configuration file again. Flags override the file.
    """
    gc.disable()  # what is made until the gateway runs stays: see `penstock.app.memory`
    try:
        from penstock.cli.lifecycle import run

        if management_token == "auto":
            management_token = os.environ.get("PENSTOCK_MANAGEMENT_TOKEN")
            if not management_token:
                management_token = secrets.token_urlsafe()
                click.echo(f"The token of the management listener and its page is {management_token}")
        run(path, {**flags, "management_token": management_token})
    finally:
        gc.enable()


@click.command("check")
@_config_option
@json_option
def check_command(path: Path | None, as_json: bool) -> None:
    """Validate a configuration and describe what it would run.

    A listener's basin that its clients cannot create must be in [[store.basins]] or in the store.
    """
    import sqlite3

    from penstock.app.config.advice import absent_basins
    from penstock.app.report import report, report_parts
    from penstock.cli.overrides import BadConfig, configured
    from penstock.store.listings import has_basin

    config = configured(path)
    for key, basin, kind in absent_basins(config):
        try:
            is_missing = kind.needs_basin and not has_basin(Path(config.store.directory), basin)
        except sqlite3.Error as error:
            raise BadConfig(f"store.directory: the store cannot be read: {error}") from error
        if is_missing:
            raise BadConfig(
                f"{key}: basin {basin} does not exist, and clients of {kind.title} cannot create it: add it to "
                "[[store.basins]]"
            )
    if as_json:
        parts = [{"title": title, "lines": lines} for title, lines in report_parts(config)]
        print_json({"config": None if path is None else str(path), "parts": parts})
        return
    click.echo(report(config, str(path) if path else "the built-in configuration"))
