"""Replaces the configuration in force."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import structlog
import trio

from penstock.app.bootstrap import (
    RouterPlan,
    Routing,
    apply_resources,
    backs_of_routes,
    check_files,
    fault_settings,
    recording_rules,
)
from penstock.app.config import Config
from penstock.app.management.traffic import Traffic
from penstock.app.reload.changes import changes, check_changes
from penstock.core.back import Back
from penstock.core.errors import CannotReload, CannotStart
from penstock.model.failures import OperationFailed
from penstock.net.accepting import Listener
from penstock.net.limits import Limiter
from penstock.net.listeners import ListenerServer, ListenerSet
from penstock.net.tls import CERTIFICATES
from penstock.observe.levels import set_level
from penstock.recorder.recordings import Recordings
from penstock.routing.faults.rules import Faults
from penstock.routing.router import Router

__all__ = ["Parts", "Reloader"]

log = structlog.get_logger()


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a gateway that a reload changes. `build`: builds a configuration's listeners over a router."""

    embedded: Back
    routing: Routing
    places: ListenerSet
    limiter: Limiter
    recordings: Recordings
    traffic: Traffic
    faults: Faults
    build: Callable[[Config, Router], list[Listener]]


class Reloader:
    """Reloads a gateway. `config`: the configuration in force."""

    def __init__(self, config: Config, parts: Parts) -> None:
        self.config = config
        self._parts = parts
        self._one_at_a_time = trio.Lock()
        self._closed = False

    async def reload(self, config: Config) -> str:
        """Put a configuration in force, all of it at once or nothing. Return what changed, in one line. Raises
        CannotReload.

        Everything that may fail is done first: files are read, backs opened, new listeners bound.
        """
        async with self._one_at_a_time:
            self._check_open()
            changed = changes(self.config, config)
            check_changes(self.config, config)
            try:
                await self._reload(config)
                await CERTIFICATES.reload()  # those of unchanged backs
            except (CannotStart, OperationFailed, ValueError) as error:
                raise CannotReload(str(error)) from error
            log.info("reloaded", changed=changed)
            return f"changed: {', '.join(changed) or 'nothing'}"

    def close(self) -> None:
        """Refuse further reloads: the gateway drains."""
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
            opened: list[ListenerServer] = []
            for listener in listeners:
                if not parts.places.has(listener):
                    opened.append(await parts.places.open(listener))
                    undo.callback(parts.places.abandon, opened[-1])
            await apply_resources(parts.embedded, config, self.config)
            self._check_open()
            undo.pop_all()
            self._commit(config, plan, listeners, opened)

    def _commit(
        self, config: Config, plan: RouterPlan, listeners: list[Listener], opened: list[ListenerServer]
    ) -> None:
        """Put everything in force without a checkpoint, so that no other task sees a mixture."""
        parts = self._parts
        parts.routing.commit(plan)
        parts.limiter.table = config.limits
        parts.faults.put(fault_settings(config.faults))
        parts.places.replace(listeners, opened, config.drain.deadline_seconds)
        parts.recordings.change(recording_rules(config), backs_of_routes(config))
        parts.traffic.know([label for label, _ in config.listeners.labelled()], config.backs)
        set_level(config.log.level)
        self.config = config
