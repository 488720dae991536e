"""`penstock serve` and `penstock check`: run or validate a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["check_command", "serve_command"]

_config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML). Without one: S2 on 127.0.0.1:8080, S3P on port 7500, Pravega's controller on "
    "9090 and its segments on 12345, data in ./data.",
)


@click.command("serve")
@_config_option
@click.option("--s2", metavar="HOST:PORT|off", help="Address for S2 (HTTP) clients.")
@click.option("--s3p", metavar="HOST:PORT|off", help="Address for S3P clients.")
@click.option("--segment", metavar="HOST:PORT|off", help="Address for clients of the segment protocol.")
@click.option("--controller", metavar="HOST:PORT|off", help="Address of Pravega's controller, for its clients.")
@click.option("--management", metavar="HOST:PORT|off", help="Address for operators and their browsers.")
@click.option("--data", metavar="DIR", help="The store's directory.")
@click.option("--record", metavar="DIR", help="Record the traffic from the start, into pcapng files in this directory.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level that is logged."
)
@click.option("--anonymous", is_flag=True, help="Serve clients from other machines too, whoever they are.")
@click.option("--allow-host", metavar="NAME", multiple=True, help="A host name that S2 clients may use; * for any.")
def serve_command(path: Path | None, **flags: Any) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second signal stops it at once.

    SIGHUP reads the configuration file again. Flags override the file.
    """
    from penstock.cli.drain_and_reload import run

    run(path, flags)


@click.command("check")
@_config_option
def check_command(path: Path | None) -> None:
    """Validate a configuration and describe what it would run."""
    from penstock.cli.overrides import configured
    from penstock.cli.report import report

    click.echo(report(configured(path), str(path) if path else "the built-in configuration"))
