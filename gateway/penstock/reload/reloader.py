"""Putting a configuration in the place of the one in force."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from penstock.accepting import Listener
from penstock.backs.base import Back
from penstock.config import Config
from penstock.errors import CannotReload, CannotStart
from penstock.faults.rules import Faults
from penstock.limits import Limiter
from penstock.management.traffic import Traffic
from penstock.observe.levels import set_level
from penstock.places import Place, Places
from penstock.recorder.recordings import Recordings
from penstock.reload.changes import changes, check_changes
from penstock.routing.router import Router
from penstock.tls import CERTIFICATES
from penstock.wiring import Plan, Routing, apply_basins, backs_of_routes, check_files, fault_settings, recording_rules
from penstock_codecs.failures import OperationFailed

__all__ = ["Parts", "Reloader"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a gateway is made of, as far as a reload changes it. `build`: the listeners of a configuration, over a
    router."""

    embedded: Back
    routing: Routing
    places: Places
    limiter: Limiter
    recordings: Recordings
    traffic: Traffic
    faults: Faults
    build: Callable[[Config, Router], list[Listener]]


class Reloader:
    """`config`: what is in force."""

    def __init__(self, config: Config, parts: Parts) -> None:
        self.config = config
        self._parts = parts
        self._one_at_a_time = trio.Lock()
        self._closed = False

    async def reload(self, config: Config) -> str:
        """Put it in force: all of it, at once, or nothing. What changed, in a line. Raises CannotReload.

        Everything that may fail is done before: files are read, backs opened, new listeners bound.
        """
        async with self._one_at_a_time:
            self._check_open()
            changed = changes(self.config, config)
            check_changes(self.config, config)
            try:
                await self._reload(config)
                await CERTIFICATES.reload()  # those of backs that stay as they are
            except (CannotStart, OperationFailed, ValueError) as error:
                raise CannotReload(str(error)) from error
            log.info("reloaded", changed=changed)
            return f"in force: {', '.join(changed) or 'nothing else than before'}"

    def close(self) -> None:
        """The gateway drains: nothing more is put in force."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise CannotReload("the gateway is draining")

    async def _reload(self, config: Config) -> None:
        parts = self._parts
        await trio.to_thread.run_sync(check_files, config)
        async with contextlib.AsyncExitStack() as undo:
            plan = await parts.routing.prepare(config)
            undo.callback(parts.routing.abandon, plan)
            listeners = parts.build(config, plan.router)
            opened: list[Place] = []
            for listener in listeners:
                if not parts.places.has(listener):
                    opened.append(await parts.places.open(listener))
                    undo.callback(parts.places.abandon, opened[-1])
            await apply_basins(parts.embedded, config, self.config)
            self._check_open()
            undo.pop_all()
            self._commit(config, plan, listeners, opened)

    def _commit(self, config: Config, plan: Plan, listeners: list[Listener], opened: list[Place]) -> None:
        """Nobody else has a turn before it is done."""
        parts = self._parts
        parts.routing.commit(plan)
        parts.limiter.table = config.limits
        parts.faults.put(fault_settings(config.faults))
        parts.places.replace(listeners, opened, config.drain.deadline_seconds)
        parts.recordings.change(recording_rules(config), backs_of_routes(config))
        parts.traffic.know([label for label, _ in config.listeners.labelled()], config.backs)
        set_level(config.log.level)
        self.config = config
