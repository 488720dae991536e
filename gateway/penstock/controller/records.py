"""What the controller remembers, as it stands in its table: JSON of these structs. Times are ms since the epoch."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

import msgspec

from penstock.controller.topology import Segments, of_epoch

__all__ = [
    "NO_LIMIT",
    "Completed",
    "Configuration",
    "GroupCut",
    "ReaderGroup",
    "RetentionType",
    "ScaleType",
    "ScopeRecord",
    "StreamRecord",
    "StreamState",
    "Transaction",
    "TransactionState",
]

NO_LIMIT: Final = 2**63 - 1
"""What clients of Pravega send as a bound that there is not."""


class ScaleType(IntEnum):
    """By what a stream would be scaled; the numbers are those of the protocol."""

    FIXED = 0
    KILOBYTES = 1
    EVENTS = 2


class RetentionType(IntEnum):
    """What a stream's retention counts; the numbers are those of the protocol."""

    NONE = 0
    TIME = 1
    SIZE = 2


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What clients said about a stream, to be given back to them. `retention`: ms with TIME, bytes with SIZE."""

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
    def age_seconds(self) -> int | None:
        """How long events are kept; None: for ever.

        With a bound above, Pravega removes what every reader group has read; here it stays until that bound.
        """
        if self.retention_type is not RetentionType.TIME:
            return None
        bounded = 0 < self.retention_max < NO_LIMIT
        return max(1, -(-(self.retention_max if bounded else self.retention) // 1000))


class StreamState(Enum):
    """CREATING and DELETING streams are not there for anybody; asking for the same again finishes it."""

    CREATING = "creating"
    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"


class StreamRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream. While segments of a later epoch than `epoch` are in it, a scale is under way.

    `head`: a cut, as offsets by segments' ids, before which there is nothing any more; None: the stream's beginning.
    `truncating`: what lies before `head` may not be gone yet.
    """

    state: StreamState
    config: Configuration
    segments: Segments
    epoch: int = 0
    head: dict[int, int] | None = None
    truncating: bool = False

    @property
    def exists(self) -> bool:
        """Whether clients see it."""
        return self.state not in (StreamState.CREATING, StreamState.DELETING)

    @property
    def sealed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self.state is StreamState.SEALED

    @property
    def open(self) -> bool:
        """Whether it may change: it is neither sealed nor about to be."""
        return self.state is StreamState.OPEN

    @property
    def plain(self) -> bool:
        """Whether it is one segment and always was: then all about it but its configuration is the segment's."""
        return len(self.segments) == 1

    @property
    def scaling(self) -> bool:
        """Whether its next epoch has been decided, and not everything is done for it yet."""
        return self.segments[-1].epoch > self.epoch

    @property
    def unfinished(self) -> bool:
        """Whether somebody must go on with what was begun."""
        return self.scaling or self.truncating or self.state not in (StreamState.OPEN, StreamState.SEALED)

    def first(self) -> list[int]:
        """The ids of the segments at the head."""
        return list(self.head) if self.head is not None else [segment.id for segment in of_epoch(self.segments, 0)]


class ScopeRecord(msgspec.Struct, frozen=True):
    """A scope that is no basin."""

    created_at: int


class TransactionState(Enum):
    """As in the protocol. Those that are COMMITTED or ABORTED have a `Completed` instead of a `Transaction`."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class Transaction(msgspec.Struct, frozen=True):
    """A transaction that is not over. `segments`: the ids of those that its events go to. At `expires_at` it is
    aborted unless somebody pings; nothing extends it beyond `latest`."""

    state: TransactionState
    segments: tuple[int, ...]
    expires_at: int
    latest: int


class Completed(msgspec.Struct, frozen=True):
    """How a transaction ended, and when."""

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
