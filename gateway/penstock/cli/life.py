"""A gateway from its start to its end, as signals and its file say: `penstock serve`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import click
import structlog
import trio

from penstock.cli.banner import banner
from penstock.config import Config
from penstock.errors import CannotReload, CannotStart
from penstock.reload import watch_file
from penstock.server import Running, serve
from penstock.surroundings import Surroundings

__all__ = ["serve_until_signalled"]

log = structlog.get_logger()


async def serve_until_signalled(config: Config, surroundings: Surroundings, path: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT, and drain; a second one ends the process. SIGHUP reloads, and so does a change of
    the file at `path` where `reload.watch` says so. Raises CannotStart."""
    refusal: CannotStart | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            signalled, reloads = trio.Event(), Reloads()
            nursery.start_soon(_hear, signals, signalled, reloads)

            async def serve_then_stop(*, task_status: trio.TaskStatus[Running]) -> None:
                await serve(config, surroundings, task_status=task_status)
                nursery.cancel_scope.cancel()

            try:
                running: Running = await nursery.start(serve_then_stop)
            except CannotStart as error:
                refusal = error
                nursery.cancel_scope.cancel()
            else:
                nursery.start_soon(_drain_when, signalled, running)
                nursery.start_soon(reloads.run, running)
                nursery.start_soon(surroundings.notifier.watchdog)
                if path is not None:
                    nursery.start_soon(watch_file, path, lambda: _watched(running), reloads.ask_soon)
                with contextlib.suppress(OSError):  # nobody may be there to read it; the gateway runs all the same
                    click.echo(banner(config, running.addresses))
    if refusal is not None:  # raised here, outside the nursery, which would wrap it in a group
        raise refusal


class Reloads:
    """Reloads that were asked for: one at a time, and none is begun for what the next one reads as well."""

    def __init__(self) -> None:
        self._asked = trio.Event()

    def ask(self) -> None:
        """Reload as soon as there is something that runs."""
        self._asked.set()

    async def ask_soon(self) -> None:
        """The same for those who wait."""
        self.ask()
        await trio.lowlevel.checkpoint()

    async def run(self, running: Running) -> None:
        """Carry them out, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            with contextlib.suppress(CannotReload):  # the log says why
                await running.reread()


def _watched(running: Running) -> float | None:
    table = running.config.reload
    return table.watch_seconds if table.watch else None


async def _hear(signals: AsyncIterator[int], signalled: trio.Event, reloads: Reloads) -> None:
    """The first signal drains, as soon as there is something to drain; the second ends the process: the store survives
    that, as it survives a crash."""
    async for number in signals:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            log.info("signalled", signal=name)
            reloads.ask()
            continue
        if signalled.is_set():
            log.warning("stopped_at_once", signal=name)
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(128 + number)
        log.info("signalled", signal=name)
        signalled.set()


async def _drain_when(signalled: trio.Event, running: Running) -> None:
    await signalled.wait()
    running.drain()
