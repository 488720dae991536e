"""Keep appended records until they are acknowledged; return records as columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.capture.dialogue.columns import LazyRecords, SeenColumns, numbered
from penstock.capture.dialogue.messages import APPENDED, DELIVERED, SeenRecord
from penstock.capture.pcapng import Conversation
from penstock.model.limits import MIB
from penstock.model.operations import Append, Appended
from penstock.model.records import Headers, RecordBatch

__all__ = [
    "MAX_WAITING",
    "MAX_WAITING_BYTES",
    "HttpPendingAppend",
    "PendingAppendLimit",
    "PendingAppends",
    "delivered",
    "unacknowledged",
]

MAX_WAITING: Final = 100_000
"""Most appends of a conversation whose acknowledgement is waited for."""
MAX_WAITING_BYTES: Final = 256 * MIB
"""Most metered bytes of them. A server stops reading long before: s2-lite at 128 MiB (S2 fact sheet, 2.3)."""


class HttpPendingAppend(NamedTuple):
    """A pending append of `size` records. `append` None: it is not kept, and its records are not reported."""

    append: Append | None
    size: int
    asked_ns: int


class PendingAppends:
    """Pending appends of one exchange, the oldest first. Those of all exchanges share one `PendingAppendLimit`."""

    def __init__(self, conversation: Conversation, room: PendingAppendLimit) -> None:
        self.stream = ""
        """Name of the stream as in `SeenRecord`."""
        self.unsure = False
        """True if the next acknowledgement may be of an append that was not recorded."""
        self._conversation = conversation
        self._room = room
        self._waiting: deque[HttpPendingAppend] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, append: Append, time_ns: int) -> bool:
        """Add an input; return whether it is kept."""
        kept = self._room.take(append)
        self._waiting.append(HttpPendingAppend(append if kept else None, len(append.bodies), time_ns))
        return kept

    def carried(self, append: Append, time_ns: int) -> Sequence[SeenRecord]:
        """Return the records of an input, as it carries them."""
        make = partial(numbered, APPENDED, self.stream, append.bodies, append.headers, None, time_ns)
        return LazyRecords(len(append.bodies), self._conversation, make)

    def answers_other(self, count: int) -> bool:
        """Return whether an acknowledgement of `count` records is of an append that was not recorded: one of another
        size."""
        self.unsure = self.unsure and (not self._waiting or self._waiting[0].size != count)
        return self.unsure

    def acknowledge(self) -> HttpPendingAppend | None:
        """Remove and return the append that the next acknowledgement is of."""
        if not self._waiting:
            return None
        waiting = self._waiting.popleft()
        self._room.give_back(waiting)
        return waiting

    def records(self, waiting: HttpPendingAppend, appended: Appended) -> Sequence[SeenRecord]:
        """Return the records of an append with their acknowledgement."""
        if waiting.append is None:
            return ()
        make = partial(_acknowledged, waiting.append, appended, self.stream, waiting.asked_ns)
        return LazyRecords(waiting.size, self._conversation, make)

    def numbered(self, waiting: HttpPendingAppend, first: int | None) -> Sequence[SeenRecord]:
        """Return the records of an acknowledged append, numbered from `first` on; None: their numbers are unknown.
        They have no timestamps."""
        append = waiting.append
        if append is None:
            return ()
        make = partial(numbered, APPENDED, self.stream, append.bodies, append.headers, first, waiting.asked_ns)
        return LazyRecords(waiting.size, self._conversation, make)

    def left(self, failure: str = "") -> Sequence[SeenRecord]:
        """Return the records of all pending appends, which will not be acknowledged any more."""
        appends: list[tuple[Append, int]] = []
        while (waiting := self.acknowledge()) is not None:
            if waiting.append is not None:
                appends.append((waiting.append, waiting.asked_ns))
        return unacknowledged(appends, self.stream, self._conversation, failure)


class PendingAppendLimit:
    """Limit of a conversation's appends that are kept until they are acknowledged."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def take(self, append: Append) -> bool:
        """Reserve room for an append; return whether there was enough."""
        if self._count >= MAX_WAITING or self._bytes + append.metered > MAX_WAITING_BYTES:
            return False
        self._count += 1
        self._bytes += append.metered
        return True

    def give_back(self, waiting: HttpPendingAppend) -> None:
        """Release the room of an append."""
        if waiting.append is not None:
            self._count -= 1
            self._bytes -= waiting.append.metered


def _acknowledged(append: Append, appended: Appended, stream: str, time_ns: int) -> SeenColumns:
    count, first = len(append.bodies), appended.start.seq_num
    return SeenColumns(
        APPENDED,
        stream,
        append.bodies,
        append.headers,
        range(first, first + count),
        _stamps(append, appended),
        [time_ns] * count,
    )


def _stamps(append: Append, appended: Appended) -> Sequence[int | None]:
    """Return the timestamps of acknowledged records: the first and last from the acknowledgement, those between from
    the client, if it set them.

    Timestamps never decrease (S2 fact sheet, 5.2), so if both are equal, all are.
    """
    first, last, count = appended.start.timestamp, appended.end.timestamp, len(append.bodies)
    if first == last:
        return [first] * count
    stamps = list(append.timestamps or [None] * count)
    if stamps:
        stamps[0] = first
        stamps[-1] = last
    return stamps


def unacknowledged(
    appends: Sequence[tuple[Append, int]], stream: str, conversation: Conversation, failure: str = ""
) -> Sequence[SeenRecord]:
    """Return the records of appends that were refused, or whose acknowledgement was not recorded; each append comes
    with the time at which it was complete, in ns."""
    count = sum(len(append.bodies) for append, _ in appends)
    if not count:
        return ()
    return LazyRecords(count, conversation, partial(_unacknowledged, appends, stream, failure))


def _unacknowledged(appends: Sequence[tuple[Append, int]], stream: str, failure: str) -> SeenColumns:
    bodies: list[bytes] = []
    headers: dict[int, Headers] = {}
    stamps: list[int | None] = []
    times: list[int] = []
    for append, time_ns in appends:
        headers |= {len(bodies) + index: pairs for index, pairs in append.headers.items()}
        bodies += append.bodies
        stamps += append.timestamps or [None] * len(append.bodies)
        times += [time_ns] * len(append.bodies)
    return SeenColumns(APPENDED, stream, bodies, headers, [None] * len(bodies), stamps, times, False, failure)


def delivered(batch: RecordBatch, stream: str, conversation: Conversation, time_ns: int) -> Sequence[SeenRecord]:
    """Return the records of a server's batch."""
    return LazyRecords(batch.count, conversation, partial(_delivered, batch, stream, time_ns))


def _delivered(batch: RecordBatch, stream: str, time_ns: int) -> SeenColumns:
    columns = batch.columns
    return SeenColumns(
        DELIVERED,
        stream,
        columns.bodies,
        columns.headers,
        columns.seq_nums,
        columns.timestamps,
        [time_ns] * batch.count,
    )
