"""The records in the controller's table: JSON of these structs. Times are ms since the epoch."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

import msgspec

from penstock_pravega.controller.controller.topology import Segments, of_epoch

__all__ = [
    "NO_LIMIT",
    "WINDOW",
    "AcknowledgedCut",
    "Completed",
    "Configuration",
    "GroupCut",
    "KeyValueTable",
    "KeyValueTableState",
    "ReaderGroup",
    "RecordedCut",
    "RecordedCuts",
    "RetentionType",
    "ScaleType",
    "ScopeRecord",
    "StreamRecord",
    "StreamStatus",
    "Transaction",
    "TransactionState",
    "Watermarks",
    "WriterMark",
]

NO_LIMIT: Final = 2**63 - 1
"""The value that clients of Pravega send for "unlimited"."""


WINDOW: Final = 2
"""Watermarks from the one that tells active writers from silent ones to the last one."""
BEGINNING: Final = -(2**63)
"""A time before all that writers note."""


class ScaleType(IntEnum):
    """The unit of automatic scaling; the numbers are those of the protocol."""

    FIXED = 0
    KILOBYTES = 1
    EVENTS = 2


class RetentionType(IntEnum):
    """The unit of a stream's retention; the numbers are those of the protocol."""

    NONE = 0
    TIME = 1
    SIZE = 2


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream's configuration as clients gave it. `retention`: the least that is kept, ms with TIME, bytes with SIZE;
    `retention_max`: the most, 0 for no limit."""

    segments: int = 1
    scale_type: ScaleType = ScaleType.FIXED
    target_rate: int = 0
    scale_factor: int = 0
    retention_type: RetentionType = RetentionType.NONE
    retention: int = 0
    retention_max: int = 0
    tags: tuple[str, ...] = ()
    timestamp_aggregation_timeout: int = 0
    rollover_size_bytes: int = 0

    @property
    def most_kept(self) -> int:
        """The most that is kept of what subscribers have not read, in ms or bytes."""
        return self.retention_max or NO_LIMIT


class StreamStatus(Enum):
    """CREATING and DELETING streams do not exist for clients; a repeated request finishes the change."""

    CREATING = "creating"
    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"


class StreamRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream. While it has segments of a later epoch than `epoch`, a scale is in progress.

    `head`: a cut, as offsets by segments' ids, before which everything is truncated; None: the stream's beginning. Its
    segments with an offset below 0 are read after the others (see `topology.is_cut`). `truncating`: data before `head`
    may not be removed yet. `named`: index in `segments` of the one that has the stream's own name in the back.
    `consumed`: subscribers have acknowledged what they have read of a stream with retention by time. `began`: when
    epochs began.
    """

    state: StreamStatus
    config: Configuration
    segments: Segments
    epoch: int = 0
    head: dict[int, int] | None = None
    truncating: bool = False
    named: int = 0
    consumed: bool = False
    began: dict[int, int] = {}

    @property
    def age_seconds(self) -> int | None:
        """Seconds for which the segments keep events; None: for ever, or until the controller truncates the stream.

        With subscribers, that is the upper bound, and the controller truncates what all of them have read.
        """
        config = self.config
        if config.retention_type is not RetentionType.TIME:
            return None
        bound = config.most_kept if self.consumed else config.retention
        return None if bound >= NO_LIMIT else max(1, -(-bound // 1000))

    @property
    def exists(self) -> bool:
        """Return whether clients see the stream."""
        return self.state not in (StreamStatus.CREATING, StreamStatus.DELETING)

    @property
    def sealed(self) -> bool:
        """Return whether the stream is sealed."""
        return self.state is StreamStatus.SEALED

    @property
    def open(self) -> bool:
        """Return whether the stream may change: it is neither sealed nor about to be."""
        return self.state is StreamStatus.OPEN

    @property
    def plain(self) -> bool:
        """Return whether the stream has always had a single segment, which then decides everything but the
        configuration."""
        return len(self.segments) == 1

    @property
    def scaling(self) -> bool:
        """Return whether the next epoch has been decided but is not in force yet."""
        return self.segments[-1].epoch > self.epoch

    @property
    def unfinished(self) -> bool:
        """Return whether a change was begun and must be finished."""
        return self.scaling or self.truncating or self.state not in (StreamStatus.OPEN, StreamStatus.SEALED)

    def first(self) -> list[int]:
        """Return the ids of the segments at the head, where reading begins."""
        if self.head is None:
            return [segment.id for segment in of_epoch(self.segments, 0)]
        return [segment for segment, offset in self.head.items() if offset >= 0]


class ScopeRecord(msgspec.Struct, frozen=True):
    """A scope that is not a basin."""

    created_at: int


class TransactionState(Enum):
    """The states of the protocol. COMMITTED and ABORTED transactions have a `Completed` instead of a `Transaction`."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class Transaction(msgspec.Struct, frozen=True):
    """A transaction that has not ended. `segments`: ids of the segments that its events go to. It is aborted at
    `expires_at`; pings postpone that, but not beyond `latest`. `first`: the id of the stream's first segment. `asked`:
    increases from one requested commit to the next. `noted`: the writer that commits, and the time that it notes."""

    state: TransactionState
    segments: tuple[int, ...]
    expires_at: int
    latest: int
    first: int = 0
    asked: int = 0
    noted: tuple[str, int] | None = None


class Completed(msgspec.Struct, frozen=True):
    """The outcome of a transaction, and the time it ended."""

    state: TransactionState
    at: int


class GroupCut(msgspec.Struct, frozen=True):
    """A stream cut of a reader group, as offsets by segments' ids."""

    scope: str
    stream: str
    cut: dict[int, int]


class ReaderGroup(msgspec.Struct, frozen=True):
    """A reader group's configuration, as clients gave it; times in ms."""

    group_refresh_time: int
    checkpoint_interval: int
    outstanding_checkpoints: int
    retention_type: int
    generation: int
    id: str
    start: tuple[GroupCut, ...]
    end: tuple[GroupCut, ...]
    rollover_size_bytes: int


class KeyValueTableState(Enum):
    """CREATING and DELETING tables do not exist for clients."""

    CREATING = "creating"
    OPEN = "open"
    DELETING = "deleting"


class KeyValueTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key-value table: lengths in bytes, as clients gave them. `first`: the number of its first segment."""

    partitions: int
    primary_key_length: int
    secondary_key_length: int = 0
    rollover_size_bytes: int = 0
    state: KeyValueTableState = KeyValueTableState.OPEN
    first: int = 0

    @property
    def key_length(self) -> int:
        """Bytes of each key in the table's segments."""
        return self.primary_key_length + self.secondary_key_length

    @property
    def unfinished(self) -> bool:
        """Return whether its creation or deletion was begun and is not finished."""
        return self.state is not KeyValueTableState.OPEN


class RecordedCut(msgspec.Struct, frozen=True):
    """The tail that a stream had at a time, as offsets by segments' ids."""

    at: int
    cut: dict[int, int]


class RecordedCuts(msgspec.Struct, frozen=True):
    """The tails of a stream that retention may truncate it at, oldest first."""

    cuts: tuple[RecordedCut, ...]


class AcknowledgedCut(msgspec.Struct, frozen=True):
    """The cut up to which the reader group with this id has read a stream."""

    group_id: str
    cut: dict[int, int]


class WriterMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time that a writer noted last, in a unit of its own, with its position as offsets by segments' ids.
    `noted_at`: in ms; `closed`: the writer has ended."""

    time: int
    cut: dict[int, int]
    noted_at: int
    closed: bool = False


class Watermarks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lower times of a stream's last watermarks, at most `WINDOW` + 1, and the cut of the last one. `narrowed`: the
    first of them is the window, although they are fewer."""

    times: tuple[int, ...] = ()
    cut: dict[int, int] = {}
    narrowed: bool = False

    @property
    def newest(self) -> int:
        """The lower time of the last watermark."""
        return self.times[-1] if self.times else BEGINNING

    @property
    def window(self) -> int | None:
        """The time that active writers are beyond; None: all writers are active."""
        return self.times[0] if self.times and (self.narrowed or len(self.times) > WINDOW) else None

    def without_news(self) -> Watermarks:
        """Return these after a turn without a new watermark: the window is one further on."""
        further = self.times[1:] if self.window is not None and len(self.times) > 1 else self.times
        return Watermarks(further, self.cut, narrowed=bool(self.times))
