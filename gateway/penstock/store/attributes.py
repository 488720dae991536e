"""Attributes of streams, including positions of writers: numbers by name, durable like records.

Segment fact sheet, 1.3 and 1.4. Like heads they are decided in memory and then written. Unlike heads, a stream may have
any number of them, one for each writer that it ever had. So only values that are not durable yet must be in memory; the
others are looked up in the file, synchronously, and a bounded number of them is cached.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.model.byte_operations import NO_ATTRIBUTE, Attribute, GetAttribute, UpdateAttribute
from penstock.model.failures import FailureCode, fail
from penstock.store.committer import CommitOutcome, Committer, Statement
from penstock.store.heads import StoredStream
from penstock.store.registry import Registry, could_not_read, unknown_stream

__all__ = ["AttributeOperations", "Edits", "StoreAttributes"]

CAPACITY: Final = 20_000
"""Most durable values in memory, over all streams; about 250 bytes each."""
_MOST: Final = (1 << 63) - 1

_SELECT: Final = "SELECT value FROM attributes WHERE stream = ? AND attribute = ?"
_SET: Final = """
INSERT INTO attributes (stream, attribute, value) VALUES (?, ?, ?)
ON CONFLICT (stream, attribute) DO UPDATE SET value = excluded.value
"""
_REMOVE: Final = "DELETE FROM attributes WHERE stream = ? AND attribute = ?"

Key = tuple[int, Attribute]
"""A stream's id, which no other stream gets while the process runs, and an attribute of it."""


class StoreAttributes:
    """Values of attributes as decided so far. Look-ups raise OperationFailed(STORAGE) if the file cannot be read."""

    def __init__(self, db: sqlite3.Connection, capacity: int = CAPACITY) -> None:
        self._db = db
        self._capacity = capacity
        self._decided: dict[Key, deque[int]] = {}  # values that are not durable yet, oldest first
        self._durable: OrderedDict[Key, int] = OrderedDict()

    def value(self, stream: StoredStream, attribute: Attribute) -> int:
        """Return the newest value, durable or not; NO_ATTRIBUTE if there is none."""
        key = (stream.id, attribute)
        decided = self._decided.get(key)
        if decided is not None:
            return decided[-1]
        position = self._durable.get(key)
        if position is None:
            position = self._look_up(key)
            self._keep(key, position)
        else:
            self._durable.move_to_end(key)
        return position

    def decide(self, stream: StoredStream, values: Mapping[Attribute, int]) -> Edits:
        """Set values; NO_ATTRIBUTE removes one. Raises OperationFailed(INVALID) for a value beyond 64 bits."""
        if not all(NO_ATTRIBUTE <= value <= _MOST for value in values.values()):
            raise fail(FailureCode.INVALID, "an attribute's value or a writer's position must fit into 64 bits")
        edits = [((stream.id, attribute), value) for attribute, value in values.items()]
        for key, value in edits:
            self._decided.setdefault(key, deque()).append(value)
        return Edits(self, edits)

    def committed(self, key: Key) -> None:
        """Note that the oldest pending value of an attribute is durable."""
        decided = self._decided[key]
        self._keep(key, decided.popleft())
        if not decided:
            del self._decided[key]

    def undone(self, key: Key) -> None:
        """Drop the newest pending value of an attribute."""
        decided = self._decided[key]
        decided.pop()
        if not decided:
            del self._decided[key]

    def _look_up(self, key: Key) -> int:
        try:
            row = self._db.execute(_SELECT, key).fetchone()
        except sqlite3.Error as error:
            raise could_not_read(error) from error
        return NO_ATTRIBUTE if row is None else int(row[0])

    def _keep(self, key: Key, value: int) -> None:
        self._durable[key] = value
        self._durable.move_to_end(key)
        if len(self._durable) > self._capacity:
            self._durable.popitem(last=False)


class Edits:
    """New values of one stream's attributes, as part of a change."""

    __slots__ = ("_attributes", "_edits")

    def __init__(self, attributes: StoreAttributes, edits: Sequence[tuple[Key, int]]) -> None:
        self._attributes = attributes
        self._edits = edits

    @property
    def statements(self) -> list[Statement]:
        """Statements that make the values durable."""
        return [(_REMOVE, key) if value == NO_ATTRIBUTE else (_SET, (*key, value)) for key, value in self._edits]

    def commit(self) -> None:
        """Note that the values are durable; see `Change.commit`."""
        for key, _ in self._edits:
            self._attributes.committed(key)

    def undo(self) -> None:
        """Drop the values; see `Change.undo`."""
        for key, _ in self._edits:
            self._attributes.undone(key)


class _Update(CommitOutcome[bool]):
    """The change of one attribute; its outcome is True."""

    __slots__ = ("_edits",)

    def __init__(self, edits: Edits) -> None:
        super().__init__(True, edits.statements)
        self._edits = edits

    def commit(self) -> None:
        self._edits.commit()

    def undo(self) -> None:
        self._edits.undo()


class AttributeOperations:
    """The operations on attributes."""

    def __init__(self, registry: Registry, committer: Committer, attributes: StoreAttributes) -> None:
        self._registry = registry
        self._committer = committer
        self._attributes = attributes

    async def get(self, operation: GetAttribute) -> int:
        """Carry out `GetAttribute`."""
        stream = await self._find(operation)
        return await self._committer.settle(self._attributes.value(stream, operation.attribute))

    async def update(self, operation: UpdateAttribute) -> bool:
        """Carry out `UpdateAttribute` and return whether the value was as expected."""
        stream = await self._find(operation)
        if self._attributes.value(stream, operation.attribute) != operation.expected:
            return await self._committer.settle(False)
        change = _Update(self._attributes.decide(stream, {operation.attribute: operation.value}))
        self._committer.add(change)
        return await change.ticket.wait()

    async def _find(self, operation: GetAttribute | UpdateAttribute) -> StoredStream:
        """Return the stream. Raises STREAM_NOT_FOUND once all decisions that this depends on are durable."""
        stream = self._registry.stream(operation.stream)
        if stream is None:
            await self._committer.settle(unknown_stream(operation.stream).failure)
            raise AssertionError("unreachable")
        return stream
