"""Duties that one gateway does at a time, for all gateways with the same state.

The holder of a lease is a key that changes when it changes hands; beside it is one that the holder writes again and
again. A gateway that has not seen a beat for `patience` seconds takes the lease. It needs no clock but its own: it
counts from the last beat that it has read. Whatever the duty stores is stored on the condition that the lease has not
changed hands, so a holder that was only slow stores nothing any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec
import structlog
import trio

from penstock.backends.kept_table import KeptTable
from penstock.backends.logged_tables.back import LoggedTables
from penstock.backends.logged_tables.state import GuardedChange
from penstock.core.back import Back, BackWrapper
from penstock_codecs.failures import OperationFailed
from penstock_codecs.operations import Operation
from penstock_codecs.table_operations import NOT_EXISTS, ReadTable, TableItem

__all__ = ["Lease"]

log = structlog.get_logger()

R = TypeVar("R")

PATIENCE: Final = 9.0
"""Seconds without a beat after which the holder is taken for dead."""
_BEATS: Final = 3
"""Beats of a holder in that time."""
_AGAIN_SECONDS: Final = 1.0


class _Holder(msgspec.Struct, frozen=True):
    """The holder of a lease; "": none. `about`: its description for the others."""

    gateway: str
    about: str = ""


class Lease:
    """A lease of this name. `about` returns a description of this gateway for the others, such as its address."""

    def __init__(self, state: LoggedTables, name: str, about: Callable[[], str]) -> None:
        self._state = state
        self._table = KeptTable(state, "#leases")
        self._about = about
        self._name = name
        self._key, self._beat = f"holder/{name}".encode(), f"beat/{name}".encode()
        self._heard = 0.0  # the time of the last beat of another holder
        self.held = False
        """True while this gateway does the duty."""

    def holder(self) -> str | None:
        """Return the description of another gateway that has the lease, None if none has it, or if it may be dead:
        clients that are sent to one that is may not ask again for long."""
        if trio.current_time() - self._heard > PATIENCE / 2:
            return None
        try:
            item = self._read(self._key)
        except OperationFailed:
            return None
        found = None if item is None else msgspec.json.decode(item.value, type=_Holder)
        return found.about if found is not None and found.gateway else None

    def _read(self, key: bytes) -> TableItem | None:
        (item,) = self._state.peek(ReadTable(self._table.name, (key,)))
        return item

    async def run(self, duty: Callable[[Back], Awaitable[None]]) -> None:
        """Do a duty whenever this gateway has the lease, until cancelled. `duty` gets the state to store in, and is
        cancelled when the lease is lost."""
        while True:
            try:
                version = await self._take()
            except OperationFailed as error:
                log.info("lease_not_taken", lease=self._name, reason=str(error.failure))
                await trio.sleep(_AGAIN_SECONDS)
                continue
            log.info("lease_taken", lease=self._name)
            try:
                with trio.CancelScope() as scope:
                    self.held = True
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._go_on, version, scope)
                        await duty(_Guarded(self._state, self._table.name, self._key, version))
            finally:
                self.held = False
                with trio.move_on_after(_AGAIN_SECONDS, shield=True):
                    await self._leave(version)
            log.warning("lease_lost", lease=self._name)

    async def _take(self) -> int:
        """Wait until the lease is free, and take it; return the version of that."""
        mine = msgspec.json.encode(_Holder(self._state.gateway, self._about()))
        while True:
            found, beat = await self._table.entries(self._key, self._beat)
            holder = _Holder("") if found is None else msgspec.json.decode(found.value, type=_Holder)
            if holder.gateway:
                self._heard = trio.current_time()
                with trio.move_on_after(PATIENCE) as patience:
                    while self._read(self._key) == found:
                        await self._state.news()
                        if (now := self._read(self._beat)) != beat:
                            beat, self._heard = now, trio.current_time()
                            patience.deadline = self._heard + PATIENCE
                if not patience.cancelled_caught:
                    continue
            version = await self._table.replace(self._key, mine, NOT_EXISTS if found is None else found.version)
            if version is not None:
                return version

    async def _go_on(self, version: int, scope: trio.CancelScope) -> None:
        """Write beats; cancel the duty when another gateway has the lease."""
        with trio.CancelScope() as beating:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._beat_on)
                while (item := self._read(self._key)) is not None and item.version == version:
                    await self._state.news()
                beating.cancel()
        scope.cancel()

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._table.put((self._beat, self._state.gateway.encode()))
            except OperationFailed as error:
                log.info("lease_not_renewed", lease=self._name, reason=str(error.failure))
            await trio.sleep(PATIENCE / _BEATS)

    async def _leave(self, version: int) -> None:
        try:
            await self._table.replace(self._key, msgspec.json.encode(_Holder("")), version)
        except OperationFailed as error:
            log.info("lease_not_left", lease=self._name, reason=str(error.failure))


class _Guarded(BackWrapper):
    """State that is changed as long as a key has a version."""

    def __init__(self, state: LoggedTables, table: str, key: bytes, version: int) -> None:
        super().__init__(state)
        self._state = state
        self._table, self._key, self._version = table, key, version

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        if self._state.changes(operation):
            operation = GuardedChange(operation, self._table, self._key, self._version)
        return self._inner.perform(operation)
