"""Operations that ask what was done and what is stored, in series of points. Times are seconds since the Unix epoch.

A back that keeps no account of its use fails them with NOT_IMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from penstock.model.operations import Operation
from penstock.model.records import StreamRef

__all__ = ["GetStorage", "GetUsage", "ListActiveBasins", "Points", "UsageKind"]

Points = Sequence[tuple[int, int]]
"""Values by time, in order. Of sums: from that time to the next multiple of the interval."""


class UsageKind(Enum):
    """Kinds of sums. Each has a series for each name: the storage class, the kind of read, the operation."""

    APPENDS = "append_ops"
    APPENDED_BYTES = "append_bytes"
    READS = "read_ops"
    READ_BYTES = "read_bytes"
    OPERATIONS = "ops"


class GetUsage(Operation[Mapping[str, Points]], frozen=True):
    """Sum what was done in a basin from `start` to the minute of `end`, for each `interval` in seconds that has any.
    `basin` "": operations that concern no stream."""

    basin: str
    kind: UsageKind
    start: int
    end: int
    interval: int


class GetStorage(Operation[Points], frozen=True):
    """Get the metered bytes that are stored in a basin, or in one of its streams, at each multiple of `interval` from
    `start` to `end`. Only records that are stored now are known, also for earlier times."""

    stream: StreamRef
    """A stream "" stands for all of the basin."""
    start: int
    end: int
    interval: int


class ListActiveBasins(Operation[Sequence[str]], frozen=True):
    """List the basins that had a stream at some time from `start` to `end`."""

    start: int
    end: int
