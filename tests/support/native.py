"""A server without sequence numbers and tables, both in memory, for a numbered back to stand on."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from support.backs import PartialBack

from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.core.native import Bounds, Native, NativeAck, NativeAppendSession, Scanned
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Append, Capability, ListStreams, Page
from penstock.model.records import RecordId, StreamRef, next_record_id
from penstock.model.streams import StreamInfo
from penstock.model.table_operations import (
    CreateTable,
    DeleteTable,
    ListTable,
    ReadTable,
    RemoveTableKeys,
    TableItem,
    TablePage,
    UpdateTable,
)

__all__ = ["FakeNative", "FakeSession", "MemoryTables"]


class MemoryTables(PartialBack):
    """The table operations of a back; `writes` counts changes, and `broken` fails them."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.writes = 0
        self.broken = False

    async def perform(self, operation: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(operation, CreateTable):
            assert operation.table not in self.tables
            self.tables[operation.table] = {}
            return None
        table = self.tables.get(operation.table)
        if table is None:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"table {operation.table} does not exist")
        match operation:
            case DeleteTable():
                if self.broken:
                    raise fail(FailureCode.STORAGE, "the disk is full")
                del self.tables[operation.table]
            case UpdateTable():
                if self.broken:
                    raise fail(FailureCode.STORAGE, "the disk is full")
                self.writes += 1
                table.update({item.key: item.value for item in operation.items})
            case RemoveTableKeys():
                for key in operation.keys:
                    table.pop(key.key, None)
            case ReadTable():
                return tuple(TableItem(key, table[key], 0) if key in table else None for key in operation.keys)
            case ListTable():
                first = max(operation.first or b"", (operation.after or b"") + b"\0")
                keys = sorted(key for key in table if first <= key <= (operation.last or b"\xff" * 9))
                page = tuple(TableItem(key, table[key], 0) for key in keys[: operation.count])
                return TablePage(page, len(keys) > operation.count)
            case _:
                raise AssertionError(operation)
        return None


@dataclass
class FakeNative(Native):
    """One stream. `offsets`: a server of segments, else one of S3P, which stamps records by `clock`.

    At most `most` records are given by one scan. `held`: acknowledgements are kept back. `silent`: they do not say
    where the records are. `broken`: scans fail. `one_by_one`: each acknowledgement comes alone.
    """

    clock: Callable[[], int]
    offsets: bool
    most: int = 3
    delivery: Delivery = Delivery.REFUSE
    exists: bool = True
    held: bool = False
    silent: bool = False
    broken: bool = False
    one_by_one: bool = False
    bodies: list[bytes] = field(default_factory=list)
    ids: list[RecordId] = field(default_factory=list)
    begins: list[int] = field(default_factory=lambda: [0])  # starts of records, and the end of the last one
    first: int = 0
    scans: int = 0

    def __post_init__(self) -> None:
        self.changed = trio.lowlevel.ParkingLot()

    @property
    def capabilities(self) -> frozenset[Capability]:
        own = {Capability.MATCH_SEQ_NUM} if self.offsets else {Capability.RECORD_IDS}
        return frozenset({Capability.TRIM, Capability.HEADERS, *own})

    @property
    def has_byte_offsets(self) -> bool:
        return self.offsets

    # ---- what others do ------------------------------------------------------------------------------------------

    def store(self, bodies: list[bytes], exact: int | None = None) -> NativeAck:
        """Append records, as another client or for a session."""
        now = self.clock() if exact is None else exact
        for body in bodies:
            last = self.ids[-1] if self.ids else None
            self.ids.append(next_record_id(last, now))
            self.bodies.append(body)
            self.begins.append(self.begins[-1] + 8 + len(body))
        self.changed.unpark_all()
        if self.silent:
            return NativeAck(len(bodies))
        if self.offsets:
            return NativeAck(len(bodies), None, self.begins[-1], self.begins[-1] - self.begins[-1 - len(bodies)])
        return NativeAck(len(bodies), tuple(self.ids[-1]))

    def cut(self, first: int) -> None:
        """Trim the stream, as another client."""
        self.first = max(self.first, first)

    # ---- see Native ----------------------------------------------------------------------------------------------

    def _check(self, stream: StreamRef) -> None:
        if not self.exists:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"there is no stream {stream}")

    async def bounds(self, stream: StreamRef) -> Bounds:
        await trio.lowlevel.checkpoint()
        self._check(stream)
        return Bounds(self.begins[self.first], self.begins[-1]) if self.offsets else Bounds()

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        await trio.lowlevel.checkpoint()
        self.scans += 1
        with trio.move_on_after(wait):
            while self._at(stream, start) == len(self.bodies):
                await self.changed.park()
        at = self._at(stream, start)
        end = min(at + min(max_records, self.most), len(self.bodies))
        found = self.bodies[at:end]
        if self.offsets:
            return Scanned(found, offsets=self.begins[at : end + 1], at_tail=end == len(self.bodies))
        timestamps, places = [one.ms for one in self.ids[at:end]], [one.seq for one in self.ids[at:end]]
        return Scanned(found, timestamps=timestamps, places=places, at_tail=not found)

    def _at(self, stream: StreamRef, start: Mark) -> int:
        self._check(stream)
        if self.broken:
            raise fail(FailureCode.HOT_SERVER, "the server is gone")
        if not self.offsets:
            return max(bisect_left(self.ids, start.record_id), self.first)
        if start.offset < self.begins[self.first]:
            raise fail(FailureCode.OFFSET_TRUNCATED, "truncated", offset=self.begins[self.first])
        at = bisect_left(self.begins, start.offset)
        assert self.begins[at] == start.offset, "a scan begins inside an event"
        return at

    @asynccontextmanager
    async def append_session(self, stream: StreamRef) -> AsyncIterator[FakeSession]:
        self._check(stream)
        yield FakeSession(self)

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        await trio.lowlevel.checkpoint()
        if at.offset != self.begins[-1]:
            raise fail(FailureCode.OFFSET_MISMATCH, "not there", offset=self.begins[-1])
        return self.store(append.bodies)

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        await trio.lowlevel.checkpoint()
        self.cut(
            bisect_left(self.begins, first_kept.offset) if self.offsets else bisect_left(self.ids, first_kept.record_id)
        )

    async def create(self, stream: StreamRef) -> bool:
        await trio.lowlevel.checkpoint()
        was, self.exists = self.exists, True
        return not was

    async def delete(self, stream: StreamRef) -> None:
        await trio.lowlevel.checkpoint()
        self._check(stream)
        self.exists = False
        self.bodies, self.ids, self.begins, self.first = [], [], [0], 0
        self.changed.unpark_all()

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        raise NotImplementedError


class FakeSession(NativeAppendSession):
    """Appends at once, and acknowledges unless that is held back."""

    def __init__(self, native: FakeNative) -> None:
        self._native = native
        self._acks: deque[NativeAck] = deque()
        self._closed = False

    async def send(self, append: Append) -> None:
        if b"refused" in append.bodies:
            raise fail(FailureCode.NOT_REPRESENTABLE, "it cannot be carried")
        self._acks.append(self._native.store(append.bodies, append.exact_timestamp))
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._closed = True
        self._native.changed.unpark_all()

    async def receive(self) -> list[NativeAck]:
        while self._native.held or not (self._acks or self._closed):
            await self._native.changed.park()
        if self._native.one_by_one and self._acks:
            return [self._acks.popleft()]
        acks = list(self._acks)
        self._acks.clear()
        return acks
