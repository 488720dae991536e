"""Attributes of a stream at another server, including positions of writers, and intents that are not confirmed.

One table holds all of a stream: key `a` and the attribute's name: its value; `i` and a slot: a group of intents; `c`:
the number of confirmed intents, counted over the stream, and the place where the last of them ends; `p` and a writer:
the batches that the back has of a partly stored append. Confirmations are written with the next intents, or when the
stream becomes idle: after a crash before that, the intents are confirmed by searching the back for their batches.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from penstock.backends.byte_view.intents import (
    FoundBatch,
    Intent,
    IntentGroup,
    pack_found,
    pack_group,
    unpack_found,
    unpack_group,
    without_bytes,
)
from penstock.backends.byte_view.offsets import RecordOffset
from penstock.model.byte_operations import NO_ATTRIBUTE, Attribute
from penstock.tables.byte_table import ByteTable

__all__ = ["WriterStates"]

CAPACITY: Final = 1000
"""Most durable values that stay in memory for each stream."""
GROUP_INTENTS: Final = 1000
"""Most intents in one group."""

_VALUE: Final = struct.Struct(">q")
_REACHED: Final = struct.Struct(">QQQ")
_CONFIRMED: Final = b"c"


class WriterStates:
    """Attributes and intents of one stream."""

    def __init__(self, table: ByteTable) -> None:
        self.unresolved: IntentGroup | None = None
        """Intents that the back may or may not have executed; nothing else may be appended before that is known."""
        self.late: IntentGroup | None = None
        """Intents that the back had not executed when asked, but may have since: their batches were in flight."""
        self.partial: dict[Attribute, tuple[FoundBatch, ...]] = {}
        """Batches that the back has of a writer's next append, by writer. They must not be sent again."""
        self._table = table
        self._values: OrderedDict[Attribute, int] = OrderedDict()
        self._confirmed_values: dict[Attribute, int] = {}  # not durable yet
        self._next = 0  # the number of the next intent
        self._confirmed = 0
        self._confirmed_end = RecordOffset(0, 0)  # unconfirmed intents are behind it
        self._open: deque[tuple[int, bytes]] = deque()  # of each group: the number after its last intent, its slot
        self._free: list[bytes] = []
        self._slots = 0
        self._changed_partial: set[Attribute] = set()
        self._saving = trio.Lock()

    @classmethod
    async def load(cls, table: ByteTable) -> WriterStates:
        """Load the state of a stream from its table."""
        writers = cls(table)
        (confirmed,) = await table.get(_CONFIRMED)
        if confirmed is not None:
            writers._confirmed, *end = _REACHED.unpack(confirmed)
            writers._confirmed_end = RecordOffset(*end)
        groups = []
        async for key, value in table.items(b"i"):
            groups.append(unpack_group(value))
            writers._free.append(key)
        writers._slots = len(groups)
        groups = [group for group in groups if group.number + len(group.intents) > writers._confirmed]
        groups.sort(key=lambda group: group.number)
        writers._next = writers._confirmed
        if groups:
            first, last = groups[0], groups[-1]
            writers._next = last.number + len(last.intents)
            intents = [intent for group in groups for intent in group.intents]
            intents = intents[max(writers._confirmed - first.number, 0) :]
            writers.unresolved = IntentGroup(writers._confirmed, max(first.base, writers._confirmed_end), intents)
        async for key, value in table.items(b"p"):
            writers.partial[key[1:]] = unpack_found(value)
        return writers

    @property
    def is_saved(self) -> bool:
        """True if everything in memory is durable and nothing is unresolved."""
        return not (self._confirmed_values or self._open or self._changed_partial or self.unresolved)

    async def value(self, attribute: Attribute) -> int:
        """Return the confirmed value, or NO_ATTRIBUTE if there is none."""
        if (value := self._confirmed_values.get(attribute)) is not None:
            return value
        if (value := self._values.get(attribute)) is None:
            (stored,) = await self._table.get(b"a" + attribute)
            value = NO_ATTRIBUTE if stored is None else _VALUE.unpack(stored)[0]
            self._keep(attribute, value)
        return value

    async def intend(self, base: RecordOffset, intents: list[Intent]) -> None:
        """Make intents durable, at most GROUP_INTENTS, together with earlier confirmations."""
        slot = self._free.pop() if self._free else self._new_slot()
        group = IntentGroup(self._next, base, intents)
        self._next += len(intents)
        self._open.append((self._next, slot))
        await self._save((slot, pack_group(group)))

    def confirm(self, writer: Attribute, position: int, end: RecordOffset, skipped: int = 0) -> None:
        """Confirm the next intent: it was executed and ends at `end`.

        `skipped`: number of bytes of the same append before it that the back had already.
        """
        self._confirmed += 1
        self._confirmed_end = end
        self._close()
        self.reach(writer, position, skipped)

    def reach(self, writer: Attribute, position: int, skipped: int) -> None:
        """Set the confirmed position of a writer. `skipped` bytes of this append were at the back already."""
        self._confirmed_values[writer] = position
        if skipped:
            self.keep_partial(writer, without_bytes(self.partial.get(writer, ()), skipped))

    def keep_partial(self, writer: Attribute, batches: tuple[FoundBatch, ...]) -> None:
        """Set the batches that the back has of the writer's next append."""
        if batches:
            self.partial[writer] = batches
        else:
            self.partial.pop(writer, None)
        self._changed_partial.add(writer)

    def give_up(self) -> None:
        """Close all remaining intents: they were not executed and never will be."""
        self._confirmed = self._next
        self._close()

    def settle(self, batches: Sequence[Sequence[FoundBatch]]) -> None:
        """Resolve the unresolved intents. `batches`: for each of them, the batches that the back has."""
        assert self.unresolved is not None
        for intent, some in zip(self.unresolved.intents, batches, strict=True):
            if intent.writer is None or not some:
                continue
            if len(some) == len(intent.prints):
                self._confirmed_values[intent.writer] = intent.position
                self.keep_partial(intent.writer, ())
            else:
                self.keep_partial(intent.writer, (*self.partial.get(intent.writer, ()), *some))
        self.unresolved = None
        self.give_up()

    async def rest(self) -> None:
        """Make confirmations durable, unless something is unresolved."""
        if not self.is_saved and self.unresolved is None:
            await self._save()

    async def change(self, values: Mapping[Attribute, int]) -> None:
        """Set attributes durably; the value NO_ATTRIBUTE removes one."""
        self._confirmed_values.update(values)
        await self._save()

    async def _save(self, *more: tuple[bytes, bytes]) -> None:
        async with self._saving:
            values, partial = dict(self._confirmed_values), set(self._changed_partial)
            self._changed_partial -= partial
            items = [(b"a" + name, _VALUE.pack(value)) for name, value in values.items() if value != NO_ATTRIBUTE]
            items += [(b"p" + name, pack_found(self.partial[name])) for name in partial if name in self.partial]
            reached = _REACHED.pack(self._confirmed, *self._confirmed_end)
            removed = [b"a" + name for name, value in values.items() if value == NO_ATTRIBUTE]
            removed += [b"p" + name for name in partial if name not in self.partial]
            try:
                await self._table.put(*items, (_CONFIRMED, reached), *more)
                if removed:
                    await self._table.remove(*removed)
            except BaseException:
                self._changed_partial |= partial
                raise
            for name, value in values.items():
                self._keep(name, value)
                if self._confirmed_values.get(name) == value:
                    del self._confirmed_values[name]

    def _close(self) -> None:
        while self._open and self._open[0][0] <= self._confirmed:
            self._free.append(self._open.popleft()[1])

    def _new_slot(self) -> bytes:
        self._slots += 1
        return b"i" + self._slots.to_bytes(4, "big")

    def _keep(self, attribute: Attribute, value: int) -> None:
        self._values[attribute] = value
        self._values.move_to_end(attribute)
        if len(self._values) > CAPACITY:
            self._values.popitem(last=False)
