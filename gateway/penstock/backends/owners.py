"""Ownership of streams among several gateways with the same state: some operations on a stream are its owner's alone.

The key of a stream's owner has the id of a gateway; there is none if no gateway needs the stream. A gateway that needs
a stream of another's writes its own id beside it; the owner sees that, ends what it has begun and gives the stream up.
If it does not in PATIENCE seconds, nor renews its key, it is taken for dead; a gateway that was paused or cut off while
it waited first reads what the owner has written (`LoggedTables.is_silent`). What an owner stores can be conditional on
its key being as it was when it took the stream: one that was only slow stores nothing any more.

With the embedded store there is one gateway, and it owns all streams.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import trio

from penstock.backends.logged_tables import GuardedChange, LoggedTables
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Operation
from penstock.model.records import StreamRef
from penstock.model.table_operations import NOT_EXISTS, ReadTable, ReadTableDelta, TableItem
from penstock.tables.byte_table import ByteTable

__all__ = ["NOT_OWNED", "StreamOwners", "key_of", "lost", "ref_of"]

PATIENCE: Final = 5.0
"""Seconds that an owner has to give a stream up, or to renew its key."""
NOT_OWNED: Final = -1
"""The version of a stream that is read, and not owned: nothing is stored of it."""
_OWNER: Final = b"\0owner/"
_WANTED: Final = b"\0wanted/"
_PAGE: Final = 1000


class StreamOwners:
    """The owners of the streams of one back. `table` has them, beside other keys, which do not begin with a null."""

    def __init__(self, state: Back, table: ByteTable) -> None:
        self._back = state
        self._state = state if isinstance(state, LoggedTables) else None
        self._table = table

    @property
    def several(self) -> bool:
        """True if other gateways may have the same state."""
        return self._state is not None

    def tables(self, ref: StreamRef, version: int) -> Callable[[str], ByteTable]:
        """Return what opens a table by its name to store what belongs to a stream, which is owned with this version."""
        if self._state is None:
            return lambda name: ByteTable(self._back, name)
        if version == NOT_OWNED:
            return lambda name: _Unsaved(self._back, name)

        def guard(change: Operation[Any]) -> Operation[Any]:
            return GuardedChange(change, self._table.name, _OWNER + key_of(ref), version)

        return lambda name: ByteTable(self._back, name, guard)

    async def take(self, ref: StreamRef) -> int:
        """Own a stream; return the version of that, which is the same as long as no other gateway has had it and it was
        not renewed."""
        if self._state is None:
            return 0
        name, mine = key_of(ref), self._state.gateway.encode()
        silent: TableItem | None = None
        while True:
            (owner,) = await self._table.entries(_OWNER + name)
            if owner is not None and owner.value == mine:
                return owner.version
            if owner is None or owner == silent:
                version = NOT_EXISTS if owner is None else owner.version
                taken = await self._table.replace(_OWNER + name, mine, version)
                if taken is not None:
                    await self._table.remove(_WANTED + name)
                    return taken
                continue
            await self._table.put((_WANTED + name, mine))
            silent = await self._silent(owner)

    async def _silent(self, owner: TableItem) -> TableItem | None:
        """Wait until a stream has another owner or none. Returns the owner's item if it was silent for PATIENCE
        seconds: a later one is of a live owner, which may be another gateway that has waited too."""
        assert self._state is not None, "there are several gateways"
        last = self._in_memory(owner.key)  # it may have been given up since it was read
        while last is not None and last.value == owner.value:
            if await self._state.is_silent(lambda: self._in_memory(owner.key), PATIENCE):
                return last
            last = self._in_memory(owner.key)
        return None

    async def renew(self, ref: StreamRef) -> None:
        """Tell a gateway that waits for an owned stream that its owner is alive."""
        assert self._state is not None, "there are several gateways"
        (owner,) = await self._table.entries(_OWNER + key_of(ref))
        if owner is not None and owner.value == self._state.gateway.encode():
            await self._table.replace(owner.key, owner.value, owner.version)

    def has_row(self, key: bytes) -> bool:
        """Return whether the table has a key, as far as it has been read."""
        return self._in_memory(key) is not None

    def peek(self, key: bytes) -> bytes | None:
        """Return the value of a key, as far as the table has been read; never waits."""
        item = self._in_memory(key)
        return None if item is None else item.value

    def _in_memory(self, key: bytes) -> TableItem | None:
        assert self._state is not None, "there are several gateways"
        try:
            (owner,) = self._state.peek(ReadTable(self._table.name, (key,)))
        except OperationFailed:  # there is no table yet
            return None
        return owner

    async def give_up(self, ref: StreamRef) -> None:
        """Let other gateways own a stream; does nothing if one does."""
        assert self._state is not None, "there are several gateways"
        mine, key = self._state.gateway.encode(), _OWNER + key_of(ref)
        while (owner := (await self._table.entries(key))[0]) is not None and owner.value == mine:
            if await self._table.remove_version(key, owner.version):
                return

    async def give_up_all(self) -> None:
        """Let other gateways own all streams of this one, before it stops. Those that cannot be given up are taken when
        it is silent."""
        if self._state is None:
            return
        mine = self._state.gateway.encode()

        async def leave(item: TableItem) -> None:
            with suppress(OperationFailed):
                await self._table.remove_version(item.key, item.version)

        async with trio.open_nursery() as nursery:
            for item in self._state.peek_items(self._table.name, prefix=_OWNER):
                if item.value == mine:
                    nursery.start_soon(leave, item)

    async def forget(self, ref: StreamRef) -> None:
        """Remove the owner of a stream that is gone."""
        if self._state is not None:
            await self._table.remove(_OWNER + key_of(ref), _WANTED + key_of(ref))

    async def wanted(self) -> AsyncIterator[StreamRef]:
        """Yield streams that other gateways need, as long as there are several gateways."""
        if self._state is None:
            return
        mine, position = self._state.gateway.encode(), 0
        while True:
            seen = self._state.batches_read
            try:
                delta = self._state.peek(ReadTableDelta(self._table.name, position, _PAGE))
            except OperationFailed:  # there is no table yet, or none any more
                position = 0
                await self._state.news(seen)
                continue
            position = delta.next_position
            for key, value, _ in delta.items:
                if key.startswith(_WANTED) and value != mine:
                    yield ref_of(key[len(_WANTED) :])
            if delta.reached_end:
                await self._state.news(seen)


class _Unsaved(ByteTable):
    """A table to which a gateway that does not own the stream stores nothing: it counts the records again."""

    async def put(self, *items: tuple[bytes, bytes]) -> None:
        pass

    async def remove(self, *keys: bytes) -> None:
        pass


def key_of(ref: StreamRef) -> bytes:
    """Return the name of a stream in keys."""
    return str(ref).encode()


def ref_of(key: bytes) -> StreamRef:
    """Return the stream of `key_of`."""
    return StreamRef(*key.decode().split("/", 1))


def lost(ref: StreamRef) -> OperationFailed:
    """Return the error of an operation that another gateway must do now."""
    return fail(FailureCode.HOT_SERVER, f"another gateway has taken over the byte operations of stream {ref}")
