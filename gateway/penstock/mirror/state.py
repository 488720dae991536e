"""What is known of one mirrored stream; kept in a table of the embedded store, so that a restart goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.backs.base import Back
from penstock.mirror.hashing import NO_RECORDS
from penstock.routing.segments import INTERNAL_TABLES
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Operation
from penstock_codecs.table_operations import (
    CreateTable,
    ListTable,
    ReadTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)

__all__ = ["CAUSES", "Difference", "StateTable", "StreamState", "Table"]

R = TypeVar("R")

CAUSES: Final = ("missing", "extra", "body", "headers", "timestamp", "order", "refused")
"""Why two sides differ: records that the secondary lost; that it has and the primary never had; that have another body,
other headers or another timestamp; that are there in another order; that it cannot carry."""

_PAGE: Final = 500


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where two sides differ; never what was in the records. `message`: what the secondary said."""

    cause: str
    primary_seq_num: int
    secondary_seq_num: int
    message: str = ""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream is copied and compared. Sequence numbers are the primary's unless said else.

    `compared`: all before it is done with. `shift`: the secondary's numbers from there on are smaller by so many,
    since it was not given records that were gone or that it refused. `hashed_from` and `hashed`: the first record in
    the hashes, and how many are. `primary_last`, `secondary_last`: hashes of the last records alone that were compared,
    "" where what is just before `compared` was not. `uncompared`: records that were gone from one side before that.
    `restarts`: how often the comparison began anew, because either side's stream did. `extra_until`: the secondary's
    end up to which extra records are counted; `refused_until`: the primary's, for refused ones. `stopped`: why the copy
    ends here, "" where it goes on. `equal`: both sides ended at `compared` when it was last looked at. `by_bytes`:
    segment clients append to it; `byte_shift`: how many bytes more the primary then had.
    """

    primary: str
    secondary: str
    timestamps: bool
    compared: int = 0
    shift: int = 0
    hashed_from: int = 0
    hashed: int = 0
    primary_hash: str = NO_RECORDS.hex()
    secondary_hash: str = NO_RECORDS.hex()
    primary_last: str = ""
    secondary_last: str = ""
    uncompared: int = 0
    restarts: int = 0
    extra_until: int = 0
    refused_until: int = 0
    differences: dict[str, int] = {}
    first_difference: Difference | None = None
    stopped: str = ""
    equal: bool = False
    by_bytes: bool = False
    byte_shift: int = 0

    @classmethod
    def fresh(cls, primary: str, secondary: str, timestamps: bool) -> StreamState:
        """Of a stream of which nothing was compared; `timestamps`: whether both sides can carry them."""
        return cls(primary=primary, secondary=secondary, timestamps=timestamps)

    def of_sides(self, primary: str, secondary: str, timestamps: bool) -> StreamState:
        """This, if it is about these backs; after a cut-over the other way round; else from the beginning."""
        fresh = self.fresh(primary, secondary, timestamps)
        if self.timestamps != timestamps:
            return fresh
        if (self.primary, self.secondary) == (primary, secondary):
            return self
        if (self.primary, self.secondary) != (secondary, primary) or self.faults:
            return fresh
        turned = {"primary_hash": self.secondary_hash, "secondary_hash": self.primary_hash, "equal": False}
        last = {"primary_last": self.secondary_last, "secondary_last": self.primary_last}
        return replace(self, primary=primary, secondary=secondary, extra_until=0, refused_until=0, **turned, **last)

    def with_difference(self, found: Difference, count: int = 1) -> StreamState:
        """With so many differences more of this cause."""
        counts = {**self.differences, found.cause: self.differences.get(found.cause, 0) + count}
        return replace(self, differences=counts, first_difference=self.first_difference or found)

    def rehashed_from(self, compared: int) -> StreamState:
        """Comparing anew from this record on."""
        empty = NO_RECORDS.hex()
        anew = replace(self, hashed_from=compared, hashed=0, primary_hash=empty, secondary_hash=empty)
        return anew.passed_over(compared)

    def passed_over(self, compared: int) -> StreamState:
        """What is before this record is done with, but was not compared."""
        return replace(self, compared=compared, primary_last="", secondary_last="")

    @property
    def faults(self) -> list[str]:
        """Why readers of the primary could not go on at the secondary with the same numbers and records."""
        found = [f"{count} records differ: {cause}" for cause, count in self.differences.items()]
        if self.shift:
            found.append(f"its sequence numbers are smaller by {self.shift}")
        if self.byte_shift:
            found.append(f"segment clients append to it, and its length in bytes differs by {abs(self.byte_shift)}")
        if self.stopped:
            found.append(f"the copy has stopped: {self.stopped}")
        return found


class Table:
    """A table of the embedded store with text as keys, which is created when it is first needed."""

    def __init__(self, store: Back, name: str) -> None:
        self._store = store
        self._name = f"{INTERNAL_TABLES}{name}"

    async def get(self, key: str) -> bytes | None:
        """What a key holds."""
        [item] = await self._perform(ReadTable(self._name, (key.encode(),)))
        return None if item is None else item.value

    async def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        await self._perform(UpdateTable(self._name, (TableItem(key.encode(), value),)))

    async def remove(self, key: str) -> None:
        """Remove a key that may be there."""
        await self._perform(RemoveTableKeys(self._name, (VersionedKey(key.encode()),)))

    async def page(self, after: str, count: int) -> tuple[list[tuple[str, bytes]], bool]:
        """Keys and values in the keys' order, behind `after`; and whether there are more."""
        found = await self._perform(ListTable(self._name, after=after.encode() or None, count=count))
        return [(item.key.decode(), item.value) for item in found.items], found.has_more

    async def _perform(self, operation: Operation[R]) -> R:
        try:
            return await self._store.perform(operation)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        with suppress(OperationFailed):  # somebody else was as quick
            await self._store.perform(CreateTable(self._name))
        return await self._store.perform(operation)


class StateTable:
    """The states of a route's streams."""

    def __init__(self, store: Back, route: str) -> None:
        self._table = Table(store, f"mirror/{route}")

    async def load(self, stream: StreamRef) -> StreamState | None:
        """What was written down about a stream."""
        value = await self._table.get(str(stream))
        return None if value is None else _decode(value)

    async def save(self, stream: StreamRef, state: StreamState) -> None:
        """Keep it."""
        await self._table.put(str(stream), msgspec.json.encode(state))

    async def forget(self, stream: StreamRef) -> None:
        """The stream is gone."""
        await self._table.remove(str(stream))

    async def page(self, after: str = "", count: int = _PAGE) -> tuple[list[tuple[StreamRef, StreamState]], bool]:
        """Streams and states in the order of names, behind `after` (`basin/stream`); and whether there are more."""
        found, more = await self._table.page(after, count)
        return [(StreamRef(*key.split("/", 1)), _decode(value)) for key, value in found], more

    async def visit(self, what: Callable[[StreamRef, StreamState], Awaitable[None]]) -> None:
        """Do something with each of them; with those that are added meanwhile or not."""
        after, more = "", True
        while more:
            found, more = await self.page(after)
            for stream, state in found:
                after = str(stream)
                await what(stream, state)


def _decode(value: bytes) -> StreamState:
    return msgspec.json.decode(value, type=StreamState)
