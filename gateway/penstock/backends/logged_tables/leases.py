"""Duties that one gateway does at a time, for all gateways with the same state.

The holder of a lease is a key that changes when it changes hands; beside it is one that the holder writes again and
again. A gateway that has not seen a beat for PATIENCE seconds takes the lease. It needs no clock but its own: it counts
from the last beat that it has read, and the second half of the time from the end of the log, since one that was paused
or cut off has not read the beats of a healthy holder. Whatever the duty stores is stored on the condition that the
lease has not changed hands, so a holder that was only slow stores nothing any more.

Each gateway that has the lease or waits for it writes a key of its own again and again, by which the others know of it.
Each removes the keys that stay the same while it writes its own twice: their gateways are gone. While the state cannot
be written, none is taken for gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
import structlog
import trio

from penstock.backends.logged_tables.back import LoggedTables
from penstock.backends.logged_tables.state import GuardedChange
from penstock.core.back import Back, BackWrapper
from penstock.model.failures import OperationFailed
from penstock.model.operations import Operation
from penstock.model.table_operations import NOT_EXISTS, ListTable, ReadTable, TableItem
from penstock.tables.byte_table import ByteTable

__all__ = ["Lease"]

log = structlog.get_logger()

R = TypeVar("R")

PATIENCE: Final = 9.0
"""Seconds without a beat after which the holder is taken for dead."""
_BEATS: Final = 3
"""Beats of a holder in that time."""
PRESENCE_SECONDS: Final = 9.0
"""Time between two writes of a gateway's own key."""
_AGAIN_SECONDS: Final = 1.0


class _Holder(msgspec.Struct, frozen=True):
    """The holder of a lease; "": none. `about`: its description for the others."""

    gateway: str
    about: str = ""


class Lease:
    """A lease of this name. `about` returns a description of this gateway for the others, such as its address."""

    def __init__(self, state: LoggedTables, name: str, about: Callable[[], str]) -> None:
        self._state = state
        self._table = ByteTable(state, "#leases")
        self._about = about
        self._name = name
        self._key, self._beat = f"holder/{name}".encode(), f"beat/{name}".encode()
        self._present = f"present/{name}/".encode()  # what the keys of gateways begin with
        self._own = self._present + state.gateway.encode()
        self._heard = 0.0  # the time of the last beat of another holder
        self.held = False
        """True while this gateway does the duty."""

    def holder(self) -> str | None:
        """Return the description of another gateway that has the lease, None if none has it, or if it may be dead:
        clients that are sent to one that is may not ask again for long."""
        if trio.current_time() - self._heard > PATIENCE / 2:
            return None
        item = self._read(self._key)
        holder_row = None if item is None else msgspec.json.decode(item.value, type=_Holder)
        return holder_row.about if holder_row is not None and holder_row.gateway else None

    def others(self) -> list[str]:
        """Return the descriptions of the other gateways that have the lease or wait for it, sorted. One that was killed
        is among them for up to three times PRESENCE_SECONDS."""
        return sorted({item.value.decode() for item in self._presences() if item.key != self._own})

    def _presences(self) -> frozenset[TableItem]:
        try:
            return frozenset(self._state.peek(ListTable(self._table.name, prefix=self._present)).items)
        except OperationFailed:  # there is no table yet
            return frozenset()

    def _read(self, key: bytes) -> TableItem | None:
        try:
            (item,) = self._state.peek(ReadTable(self._table.name, (key,)))
        except OperationFailed:  # there is no table yet, or the log is being read again from its beginning
            return None
        return item

    def _has(self, version: int) -> bool:
        item = self._read(self._key)
        return item is not None and item.version == version

    async def run(self, duty: Callable[[Back], Awaitable[None]]) -> None:
        """Do a duty whenever this gateway has the lease, until cancelled. `duty` gets the state to store in, and is
        cancelled when the lease is lost."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._be_present)
            await self._take_turns(duty)

    async def _take_turns(self, duty: Callable[[Back], Awaitable[None]]) -> None:
        while True:
            await self.run_once(duty)

    async def run_once(self, duty: Callable[[Back], Awaitable[None]]) -> None:
        """Do a duty once this gateway has the lease, until it is lost; the others are not told of a gateway that
        waits."""
        version = await self._taken()
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

    async def _taken(self) -> int:
        """Wait until the lease is taken, however long the state cannot be reached; return the version of that."""
        while True:
            try:
                return await self._take()
            except OperationFailed as error:
                log.info("lease_not_taken", lease=self._name, reason=str(error.failure))
                await trio.sleep(_AGAIN_SECONDS)

    async def _take(self) -> int:
        """Wait until the lease is free, and take it; return the version of that."""
        mine = msgspec.json.encode(_Holder(self._state.gateway, self._about()))
        last: TableItem | None = None
        while True:
            lease_item, beat = await self._table.entries(self._key, self._beat)
            holder = _Holder("") if lease_item is None else msgspec.json.decode(lease_item.value, type=_Holder)
            if holder.gateway:
                if beat != last:
                    last, self._heard = beat, trio.current_time()
                if not await self._state.is_silent(lambda: (self._read(self._key), self._read(self._beat)), PATIENCE):
                    continue
            version = await self._table.replace(
                self._key, mine, NOT_EXISTS if lease_item is None else lease_item.version
            )
            if version is not None:
                return version

    async def _go_on(self, version: int, scope: trio.CancelScope) -> None:
        """Write beats; cancel the duty when another gateway has the lease."""
        with trio.CancelScope() as beating:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._beat_on)
                while not self._state.loaded or self._has(version):
                    await self._state.news()
                beating.cancel()
        scope.cancel()

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._table.put((self._beat, self._state.gateway.encode()))
            except OperationFailed as error:
                log.info("lease_not_renewed", lease=self._name, reason=str(error.failure))
                await trio.sleep(_AGAIN_SECONDS)
            else:
                await trio.sleep(PATIENCE / _BEATS)

    async def _be_present(self) -> None:
        """Write this gateway's key again and again, and remove the keys of those that no longer write theirs."""
        earlier: frozenset[TableItem] = frozenset()
        before: frozenset[TableItem] = frozenset()
        try:
            while True:
                try:
                    await self._table.put((self._own, self._about().encode()))
                    now = self._presences()
                    if gone := now & earlier:
                        await self._table.remove(*(item.key for item in gone))
                    earlier, before = before, now
                except OperationFailed as error:
                    log.info("presence_not_written", lease=self._name, reason=str(error.failure))
                    await trio.sleep(_AGAIN_SECONDS)
                else:
                    await trio.sleep(PRESENCE_SECONDS)
        finally:
            with trio.move_on_after(_AGAIN_SECONDS, shield=True), suppress(OperationFailed):
                await self._table.remove(self._own)

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
