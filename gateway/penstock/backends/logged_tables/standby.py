"""State for what is written for one gateway: of those that have the same, one at a time has the use of it.

The others stand by. They are not ready, and carry out no operation, so none of them has anything in memory that the
first one changes. When that has gone, another one takes over: `leases` says when. A gateway that was only slow, and was
taken for dead, stores nothing any more, and ends: what it has in memory is outdated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from penstock.backends.background import background
from penstock.backends.logged_tables.back import LoggedTables
from penstock.backends.logged_tables.leases import Lease
from penstock.core.back import Back, BackWrapper
from penstock.core.errors import StoreFailed
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.operations import Operation

__all__ = ["StandbyTables", "open_standby"]

R = TypeVar("R")


class StandbyTables(BackWrapper):
    """Tables that one gateway at a time has the use of. Made by `open_standby`."""

    def __init__(self, state: LoggedTables, patience: float) -> None:
        super().__init__(state)
        self._state = state
        self._patience = patience
        self._lease = Lease(state, "state", lambda: state.gateway)
        self._taken = trio.Event()
        self._held: Back | None = None

    @property
    def trouble(self) -> str | None:
        """The reason not to be ready: the state cannot be read, or another gateway has the use of it."""
        return self._state.trouble or (None if self._held is not None else "another gateway has the use of the state")

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`. Waits for the use of the state; raises HOT_SERVER after `patience` seconds."""
        with trio.move_on_after(self._patience):
            await self._taken.wait()
        if self._held is None:
            raise fail(FailureCode.HOT_SERVER, "this gateway stands by: another one has the use of the state")
        return await self._held.perform(operation)

    def recent(self, operation: Operation[R]) -> R:
        """See `LoggedTables.recent`. A gateway that stands by follows the log too."""
        return self._state.recent(operation)

    async def run(self) -> None:
        """Wait for the use of the state, and keep it. Raises StoreFailed when another gateway has taken it."""
        await self._lease.run_once(self._hold)
        raise StoreFailed("this gateway was too slow, and another one has taken over its state: start it again")

    async def _hold(self, state: Back) -> None:
        self._held = state
        self._taken.set()
        try:
            await trio.sleep_forever()
        finally:
            self._held = None


@asynccontextmanager
async def open_standby(state: LoggedTables, patience: float) -> AsyncIterator[StandbyTables]:
    """Stand by for the use of a state, and have it, until the block ends, and with it the use. `patience`: seconds for
    which operations wait meanwhile."""
    async with background() as nursery:
        tables = StandbyTables(state, patience)
        nursery.start_soon(tables.run)
        yield tables
