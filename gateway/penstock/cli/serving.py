"""`penstock serve` and `penstock check`: a configuration, run or looked at."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import click
import structlog
import trio

from penstock.cli.banner import banner
from penstock.cli.overrides import overridden
from penstock.cli.report import report
from penstock.config import Config, ConfigError, default_config, load_config
from penstock.config.advice import advice
from penstock.errors import CannotStart
from penstock.observe import configure_logging
from penstock.server import Running, serve
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
def serve_command(path: Path | None, **flags: str | None) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second signal stops it at once.

    Flags win over the configuration file.
    """
    config = _usable(_load(path), **flags)
    configure_logging(config.log.level, config.log.format)
    gc.freeze()  # what is imported stays: collections need not look at it
    for remark in advice(config):
        if remark.insecure:
            log.warning("insecure", reason=remark.text)
    try:
        trio.run(_serve_until_signalled, config)
    except CannotStart as error:
        raise click.ClickException(str(error)) from error


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


def _usable(config: Config, **flags: str | None) -> Config:
    """The configuration with flags applied, and its files looked at."""
    try:
        config = overridden(config, **flags)
        check_files(config)
    except (ValueError, CannotStart) as error:
        raise _BadConfig(str(error)) from error
    return config


async def _serve_until_signalled(config: Config) -> None:
    refusal: CannotStart | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            signalled = trio.Event()
            nursery.start_soon(_hear, signals, signalled)

            async def serve_then_stop(*, task_status: trio.TaskStatus[Running]) -> None:
                await serve(config, task_status=task_status)
                nursery.cancel_scope.cancel()

            try:
                running: Running = await nursery.start(serve_then_stop)
            except CannotStart as error:
                refusal = error
                nursery.cancel_scope.cancel()
            else:
                nursery.start_soon(_drain_when, signalled, running)
                with contextlib.suppress(OSError):  # nobody may be there to read it; the gateway runs all the same
                    click.echo(banner(config, running.addresses))
    if refusal is not None:  # raised here, outside the nursery, which would wrap it in a group
        raise refusal


async def _hear(signals: AsyncIterator[int], signalled: trio.Event) -> None:
    """The first signal drains, as soon as there is something to drain; the second ends the process: the store survives
    that, as it survives a crash."""
    async for number in signals:
        name = signal.Signals(number).name
        if signalled.is_set():
            log.warning("stopped_at_once", signal=name)
            sys.stderr.flush()
            os._exit(128 + number)
        log.info("signalled", signal=name)
        signalled.set()


async def _drain_when(signalled: trio.Event, running: Running) -> None:
    await signalled.wait()
    running.drain()
