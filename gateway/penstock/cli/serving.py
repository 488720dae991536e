"""`penstock serve` and `penstock check`: a configuration, run or looked at."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import structlog
import trio

from penstock.cli.life import serve_until_signalled
from penstock.cli.overrides import overridden
from penstock.cli.report import report
from penstock.config import Config, ConfigError, default_config, load_config
from penstock.config.advice import advice
from penstock.errors import CannotReload, CannotStart
from penstock.observe import configure_logging
from penstock.surroundings import Surroundings
from penstock.systemd import Notifier, activated
from penstock.wiring import check_files

__all__ = ["check_command", "serve_command"]

log = structlog.get_logger()

_config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML). Without one: S2 on 127.0.0.1:8080, S3P on port 7500, Pravega's controller on "
    "9090 and its segments on 12345, data in ./data.",
)


class _BadConfig(click.ClickException):
    exit_code = 2


@click.command("serve")
@_config_option
@click.option("--s2", metavar="HOST:PORT|off", help="Where S2 (HTTP) clients connect.")
@click.option("--s3p", metavar="HOST:PORT|off", help="Where S3P clients connect.")
@click.option("--segment", metavar="HOST:PORT|off", help="Where clients of the segment protocol connect.")
@click.option("--controller", metavar="HOST:PORT|off", help="Where clients of Pravega ask for their segments.")
@click.option("--management", metavar="HOST:PORT|off", help="Where operators ask, and their browsers.")
@click.option("--data", metavar="DIR", help="The store's directory.")
@click.option("--record", metavar="DIR", help="Record the traffic from the start, into pcapng files in this directory.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="The least that is logged.")
@click.option("--anonymous", is_flag=True, help="Serve clients from other machines too, whoever they are.")
def serve_command(path: Path | None, **flags: Any) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second signal stops it at once.

    SIGHUP reads the configuration file again. Flags win over the file.
    """
    config = _usable(_load(path), **flags)
    configure_logging(config.log.level, config.log.format)
    gc.freeze()  # what is imported stays: collections need not look at it
    for remark in advice(config):
        if remark.insecure:
            log.warning("insecure", reason=remark.text)
    try:
        surroundings = Surroundings(
            sockets=activated(config), reread=_reread(path, flags), notifier=Notifier.of_environment()
        )
        trio.run(serve_until_signalled, config, surroundings, path)
    except CannotStart as error:
        raise click.ClickException(str(error)) from error


def _reread(path: Path | None, flags: dict[str, Any]) -> Callable[[], Config] | None:
    """The file as it is then, with the same flags."""
    if path is None:
        return None
    file = path.absolute()

    def reread() -> Config:
        try:
            return _usable(_load(file), **flags)
        except _BadConfig as error:
            raise CannotReload(" ".join(error.message.split())) from error

    return reread


@click.command("check")
@_config_option
def check_command(path: Path | None) -> None:
    """Validate a configuration and say in plain words what would run."""
    config = _usable(_load(path))
    click.echo(report(config, str(path) if path else "the built-in configuration"))


def _load(path: Path | None) -> Config:
    if path is None:
        return default_config()
    try:
        return load_config(path)
    except ConfigError as error:
        raise _BadConfig(str(error)) from error


def _usable(config: Config, **flags: Any) -> Config:
    """The configuration with flags applied, and its files looked at."""
    try:
        config = overridden(config, **flags)
        check_files(config)
    except (ValueError, CannotStart) as error:
        raise _BadConfig(str(error)) from error
    return config
