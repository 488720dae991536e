"""A running gateway and the operations on it."""

from __future__ import annotations

import time

import structlog
import trio

from penstock.app.config import Config
from penstock.app.host import HostServices
from penstock.app.management.controls import Controls
from penstock.app.management.traffic import Traffic
from penstock.app.reload import Parts, Reloader
from penstock.backends.embedded import EmbeddedBack
from penstock.backends.logged_tables import LoggedTables
from penstock.core.address import Address
from penstock.core.clock import wall_clock
from penstock.core.errors import CannotReload
from penstock.observe.levels import set_level
from penstock.observe.metrics.families import DRAINING, READY, RELOADED_SECONDS, RELOADS
from penstock.routing.faults.rules import Faults

__all__ = ["RunningGateway"]

log = structlog.get_logger()


class RunningGateway:
    """A gateway that has begun to listen."""

    def __init__(self, reloader: Reloader, parts: Parts, surroundings: HostServices) -> None:
        self._reloader = reloader
        self._parts = parts
        self._reread = surroundings.reread
        self._notifier = surroundings.notifier
        self._drain = trio.Event()
        self._rereading = trio.Lock()
        READY.child().value, DRAINING.child().value = 1, 0
        RELOADED_SECONDS.child().value = time.time()

    @property
    def addresses(self) -> dict[str, list[Address]]:
        """The addresses that each listener is bound to."""
        return self._parts.places.addresses

    @property
    def traffic(self) -> Traffic:
        """The gateway's connections and recordings."""
        return self._parts.traffic

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._reloader.config

    @property
    def faults(self) -> Faults:
        """The rules of fault injection in force, with their counters."""
        return self._parts.faults

    @property
    def controls(self) -> Controls:
        """The operations that the management listener may call."""
        return Controls(
            config=lambda: self.config,
            draining=self._drain.is_set,
            not_ready=self.not_ready,
            warnings=self.warnings,
            drain=self.drain,
            reload=self.reread,
            set_log_level=set_level,
            close_connection=self._parts.places.close_connection,
        )

    def not_ready(self) -> list[str]:
        """Return why new clients should go elsewhere, whatever state the backs are in; empty if ready."""
        reasons = ["the gateway is draining"] if self._drain.is_set() else []
        embedded = self._parts.embedded
        if isinstance(embedded, EmbeddedBack | LoggedTables) and embedded.trouble is not None:
            reasons.append(embedded.trouble)
        return reasons

    def warnings(self) -> list[str]:
        """Return what is wrong although new clients are welcome: a clock that cannot be trusted."""
        embedded = self._parts.embedded
        delay = embedded.store.sweeper.delay if isinstance(embedded, EmbeddedBack) else None
        return [warning for warning in (wall_clock.trouble(), delay) if warning is not None]

    # ---- reload --------------------------------------------------------------------------------------------------

    async def reread(self) -> str:
        """Read the configuration again and put it in force. Return what changed, in one line. On failure nothing
        changes, and CannotReload is logged and raised.

        Calls run one after the other, so that the configuration in force at the end is the one read last.
        """
        async with self._rereading:
            return await self._reread_alone()

    async def _reread_alone(self) -> str:
        outcome = ""
        self._notifier.reloading()
        try:
            if self._reread is None:
                raise CannotReload("the gateway was started without a configuration file to read")
            outcome = await self.reload(await trio.to_thread.run_sync(self._reread))
            RELOADS.child("applied").inc()
            RELOADED_SECONDS.child().value = time.time()
            return outcome
        except CannotReload as error:
            outcome = f"not reloaded: {error}"
            RELOADS.child("refused").inc()
            log.error("reload_refused", reason=str(error))
            raise
        finally:
            if not self._drain.is_set():
                self._notifier.ready(outcome)

    async def reload(self, config: Config) -> str:
        """Put a configuration in force that was already read, without a line in the log. Raises CannotReload."""
        return await self._reloader.reload(config)

    # ---- shutdown ------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Stop accepting, after `drain.accept_seconds`, and let clients finish; `serve` returns when they have, or at
        the hard deadline. Later calls do nothing."""
        self._drain.set()
        self._reloader.close()
        READY.child().value, DRAINING.child().value = 0, 1

    async def drained(self) -> None:
        """Wait for `drain`, then drain. Call it once, from the server."""
        await self._drain.wait()
        self._notifier.stopping("draining")
        drain = self.config.drain
        if drain.accept_seconds:
            log.info("not_ready", accept_seconds=drain.accept_seconds)
            await trio.sleep(drain.accept_seconds)
        await self._parts.places.drain(drain.deadline_seconds)
