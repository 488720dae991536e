"""The state of a mirrored stream, kept in a table of the embedded store so that a restart continues from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.core.back import Back
from penstock.model.records import StreamRef
from penstock.routing.mirror.hashing import NO_RECORDS, HashedParts
from penstock.tables.struct_table import Prefix, StructTable

__all__ = ["CAUSES", "MirrorDifference", "MirroredStream", "StateTable"]

CAUSES: Final = ("missing", "extra", "body", "headers", "timestamp", "order", "refused")
"""Causes of differences. On the secondary, a record was lost ("missing"), was never on the primary ("extra"), has
another body, headers or timestamp, is in another place ("order"), or cannot be carried ("refused")."""

_PAGE: Final = 500


class MirrorDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cause and place of a difference; it never holds content of records. `message`: the secondary's error."""

    cause: str
    primary_seq_num: int
    secondary_seq_num: int
    message: str = ""


class MirroredStream(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of copying and comparing a stream. Sequence numbers are the primary's unless said otherwise.

    - `compared`: the first record that is not compared or passed over yet.
    - `shift`: difference of sequence numbers from there on; the secondary's are smaller, since it did not get records
      that were gone or that it refused.
    - `hashed_from`, `hashed`: the first record in the hashes, and their number.
    - `primary_last`, `secondary_last`: hash of the last compared record alone, "" if the record just before `compared`
      was not compared.
    - `uncompared`: number of records that were gone from one side before they could be compared.
    - `restarts`: times that the comparison began again, because the stream did on either side.
    - `extra_until`: the secondary's sequence number up to which extra records are counted.
    - `refused_until`: the primary's sequence number up to which refused records are counted.
    - `stopped`: the reason that the copy stopped, "" if it has not.
    - `equal`: both sides ended at `compared` when last checked.
    - `unkept`: number of records whose headers or timestamps differ, because a side does not keep them.
    - `by_bytes`: clients append bytes to the stream.
    - `byte_shift`: bytes by which the primary is longer than the secondary, if `by_bytes`.
    """

    primary: str
    secondary: str
    timestamps: bool
    headers: bool = True
    compared: int = 0
    shift: int = 0
    hashed_from: int = 0
    hashed: int = 0
    primary_hash: str = NO_RECORDS.hex()
    secondary_hash: str = NO_RECORDS.hex()
    primary_last: str = ""
    secondary_last: str = ""
    uncompared: int = 0
    unkept: int = 0
    restarts: int = 0
    extra_until: int = 0
    refused_until: int = 0
    differences: dict[str, int] = {}
    first_difference: MirrorDifference | None = None
    stopped: str = ""
    equal: bool = False
    by_bytes: bool = False
    byte_shift: int = 0

    @classmethod
    def fresh(cls, primary: str, secondary: str, parts: HashedParts) -> MirroredStream:
        """Return the state of a stream before the first comparison. `parts`: what both sides keep."""
        return cls(primary=primary, secondary=secondary, timestamps=parts.timestamps, headers=parts.headers)

    @property
    def parts(self) -> HashedParts:
        """The parts of records that are compared."""
        return HashedParts(self.timestamps, self.headers)

    def of_sides(self, primary: str, secondary: str, parts: HashedParts) -> MirroredStream:
        """Return the state for these backs: this one if it belongs to them, with the sides exchanged if they were cut
        over without faults, else a fresh one."""
        fresh = self.fresh(primary, secondary, parts)
        if self.parts != parts:
            return fresh
        if (self.primary, self.secondary) == (primary, secondary):
            return self
        if (self.primary, self.secondary) != (secondary, primary) or self.obstacles:
            return fresh
        turned = {"primary_hash": self.secondary_hash, "secondary_hash": self.primary_hash, "equal": False}
        last = {"primary_last": self.secondary_last, "secondary_last": self.primary_last}
        return replace(self, primary=primary, secondary=secondary, extra_until=0, refused_until=0, **turned, **last)

    def with_difference(self, difference: MirrorDifference, count: int = 1) -> MirroredStream:
        """Return a copy with `count` more differences of this cause."""
        counts = {**self.differences, difference.cause: self.differences.get(difference.cause, 0) + count}
        return replace(self, differences=counts, first_difference=self.first_difference or difference)

    def rehashed_from(self, compared: int) -> MirroredStream:
        """Return a copy that restarts the hashes at this record."""
        empty = NO_RECORDS.hex()
        restarted = replace(self, hashed_from=compared, hashed=0, primary_hash=empty, secondary_hash=empty)
        return restarted.passed_over(compared)

    def passed_over(self, compared: int) -> MirroredStream:
        """Return a copy that passes over, without comparing them, the records before this one."""
        return replace(self, compared=compared, primary_last="", secondary_last="")

    @property
    def faults(self) -> list[str]:
        """The reasons that the secondary's stream is not the primary's as far as both sides keep records."""
        fault_texts = [f"{count} records differ: {cause}" for cause, count in self.differences.items()]
        if self.shift:
            fault_texts.append(f"its sequence numbers are smaller by {self.shift}")
        if self.byte_shift:
            fault_texts.append(f"clients append bytes to it, and its length in bytes differs by {abs(self.byte_shift)}")
        if self.stopped:
            fault_texts.append(f"the copy has stopped: {self.stopped}")
        return fault_texts

    @property
    def obstacles(self) -> list[str]:
        """The reasons that readers of the primary could not continue on the secondary with the same numbers and
        records."""
        unkept = f"{self.unkept} records have other headers or timestamps, which one of the backs does not keep"
        return [*self.faults, unkept] if self.unkept else self.faults


_STATES: Final = Prefix("", MirroredStream)


class StateTable:
    """The saved states of a route's streams, by `basin/stream`."""

    def __init__(self, store: Back, route: str) -> None:
        self._table = StructTable(store, f"mirror/{route}")

    async def load(self, stream: StreamRef) -> MirroredStream | None:
        """Return the saved state of a stream, or None."""
        entry = await self._table.get(_STATES.key(str(stream)))
        return None if entry is None else entry.value

    async def save(self, stream: StreamRef, state: MirroredStream) -> None:
        """Save the state of a stream."""
        await self._table.put_any(_STATES.key(str(stream)), state)

    async def forget(self, stream: StreamRef) -> None:
        """Remove the state of a stream that is gone."""
        await self._table.discard(_STATES.key(str(stream)))

    async def page(self, after: str = "", count: int = _PAGE) -> tuple[list[tuple[StreamRef, MirroredStream]], bool]:
        """Return at most `count` streams and states after `after` (`basin/stream`), in order of names; and whether
        there are more."""
        named, has_more = await self._table.page(_STATES, after, count)
        return [(StreamRef(*name.split("/", 1)), state) for name, state in named], has_more

    async def visit(self, what: Callable[[StreamRef, MirroredStream], Awaitable[None]]) -> None:
        """Call `what` for each stream and state, including or not those that are added meanwhile."""
        after, more = "", True
        while more:
            states, more = await self.page(after)
            for stream, state in states:
                after = str(stream)
                await what(stream, state)
