"""`penstock serve`: the gateway's process from start to end, with its signals, and reloads of its file."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import click
import structlog
import trio

from penstock.app.config import Config
from penstock.app.config.advice import advice
from penstock.app.host import HostServices
from penstock.app.memory import collect_new_cycles, keep_freed_memory
from penstock.app.reload import watch_file
from penstock.app.server import RunningGateway, serve
from penstock.app.systemd import Notifier, activated
from penstock.cli.banner import banner
from penstock.cli.overrides import BadConfig, configured
from penstock.core.errors import CannotReload, CannotStart, StoreFailed, out_of_groups
from penstock.observe import configure_logging

__all__ = ["run", "serve_until_signalled"]

log = structlog.get_logger()
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(path: Path | None, flags: dict[str, Any]) -> None:
    """Run the gateway until signalled, with the file at `path` (None: the built-in configuration) and flags over it.

    Raises ClickException if it cannot start, or must stop.
    """
    config = configured(path, **flags)
    configure_logging(config.log.level, config.log.format)
    keep_freed_memory()
    for remark in advice(config):
        if remark.insecure:
            log.warning("insecure", reason=remark.text)
    try:
        surroundings = HostServices(
            sockets=activated(config), reread=_reread(path, flags), notifier=Notifier.of_environment()
        )
        trio.run(serve_until_signalled, config, surroundings, path)
    except (CannotStart, StoreFailed) as error:
        raise click.ClickException(str(error)) from error


def _reread(path: Path | None, flags: dict[str, Any]) -> Callable[[], Config] | None:
    """Return a function that loads the file again under the same flags; None for the built-in configuration."""
    if path is None:
        return None
    file = path.absolute()

    def reread() -> Config:
        try:
            return configured(file, **flags)
        except BadConfig as error:
            raise CannotReload(" ".join(error.message.split())) from error

    return reread


async def serve_until_signalled(config: Config, surroundings: HostServices, path: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second one ends the process. SIGHUP reloads the configuration, as
    does a change of the file at `path` if `reload.watch` is set. Raises CannotStart, and StoreFailed as soon as the
    store has failed."""
    with out_of_groups(), trio.open_signal_receiver(*_SIGNALS) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # `penstock.cli.main` blocked them during the imports
        async with trio.open_nursery() as nursery:
            signalled, reloads = trio.Event(), Reloads()
            nursery.start_soon(_hear, signals, signalled, reloads)

            async def serve_then_stop(*, task_status: trio.TaskStatus[RunningGateway]) -> None:
                await serve(config, surroundings, task_status=task_status)
                nursery.cancel_scope.cancel()

            running: RunningGateway = await nursery.start(serve_then_stop)
            collect_new_cycles()
            nursery.start_soon(_drain_when, signalled, running)
            nursery.start_soon(reloads.run, running)
            nursery.start_soon(surroundings.notifier.watchdog)
            if path is not None:
                nursery.start_soon(watch_file, path, lambda: _watched(running), reloads.ask_soon)
            with contextlib.suppress(OSError):  # standard output may be closed; the gateway still runs
                click.echo(banner(config, running.addresses))


class Reloads:
    """A queue of reload requests: one reload runs at a time, and requests made before it starts share it."""

    def __init__(self) -> None:
        self._asked = trio.Event()

    def ask(self) -> None:
        """Request a reload, as soon as the gateway runs."""
        self._asked.set()

    async def ask_soon(self) -> None:
        """Request a reload, as an async function."""
        self.ask()
        await trio.lowlevel.checkpoint()

    async def run(self, running: RunningGateway) -> None:
        """Carry out requested reloads, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            with contextlib.suppress(CannotReload):  # the log has the reason
                await running.reread()


def _watched(running: RunningGateway) -> float | None:
    table = running.config.reload
    return table.watch_seconds if table.watch else None


async def _hear(signals: AsyncIterator[int], signalled: trio.Event, reloads: Reloads) -> None:
    """Handle signals. The first SIGTERM or SIGINT drains, once there is something to drain; the second ends the process
    at once, which the store survives as it survives a crash."""
    async for number in signals:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            log.info("signal_received", signal=name)
            reloads.ask()
            continue
        if signalled.is_set():
            log.warning("stopped_at_once", signal=name)
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(128 + number)
        log.info("signal_received", signal=name)
        signalled.set()


async def _drain_when(signalled: trio.Event, running: RunningGateway) -> None:
    await signalled.wait()
    running.drain()
