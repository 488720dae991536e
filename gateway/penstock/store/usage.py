"""An account of what was done with the store's streams: sums by minute, basin and series.

Sums are collected in memory, and added to table `usage` every ten seconds, before a query, and at the end. So a
power cut loses the last seconds of the account, never more. After `MINUTES_KEPT` the minutes of an hour become one row,
and after `HOURS_KEPT` they go.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from penstock.model.failures import Failure
from penstock.model.operations import Operation
from penstock.model.usage_operations import GetStorage, GetUsage, ListActiveBasins, Points, UsageKind
from penstock.store.committer import Change, Committer, Statement
from penstock.store.reader import ReaderThreads
from penstock.store.settings import Clock

__all__ = ["StoreUsage", "Usage", "UsageRow"]

MINUTES_KEPT: Final = 2 * 24 * 60
HOURS_KEPT: Final = 91 * 24 * 60
"""Both in minutes."""

UsageRow = tuple[str, str, int]
"""A basin, a series, and a minute since the epoch."""
_OF_ACCOUNT: Final = frozenset(
    {"list_basins", "create_basin", "ensure_basin", "get_basin_config", "reconfigure_basin", "delete_basin"}
)
_OF_BASIN: Final = frozenset(
    {"list_streams", "create_stream", "ensure_stream", "get_stream_config", "reconfigure_stream", "delete_stream"}
)
_NAMES: Final = {
    "".join(word.capitalize() for word in name.split("_")): name for name in _OF_ACCOUNT | _OF_BASIN | {"check_tail"}
}
"""Names of series by those of operations."""
_ADD: Final = """
INSERT INTO usage (minute, basin, series, value) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = value + excluded.value
"""
_COMPACT: Final = (
    """
    INSERT INTO usage (minute, basin, series, value)
    SELECT minute - minute % 60, basin, series, sum(value) FROM usage WHERE minute < ? AND minute % 60 GROUP BY 1, 2, 3
    ON CONFLICT DO UPDATE SET value = value + excluded.value
    """,
    "DELETE FROM usage WHERE minute < ? AND minute % 60",
)
_EXPIRE: Final = "DELETE FROM usage WHERE minute < ?"
_SUMS: Final = "SELECT minute, series, value FROM usage WHERE minute BETWEEN ? AND ? AND basin = ?"
_ACTIVE: Final = """
SELECT DISTINCT b.name FROM basins b JOIN streams s ON s.basin = b.id
WHERE s.created_at <= ?2 AND coalesce(s.deleted_at, ?1) >= ?1 AND coalesce(b.deleted_at, ?1) >= ?1
  AND b.name NOT GLOB '_*' ORDER BY b.name
"""
_STREAMS: Final = """
SELECT s.id, s.trim_point FROM streams s JOIN basins b ON s.basin = b.id
WHERE b.name = ?1 AND b.deleted_at IS NULL AND s.deleted_at IS NULL AND (?2 = '' OR s.name = ?2)
"""
_STORED: Final = (
    "SELECT coalesce(sum(metered), 0) FROM batches INDEXED BY batches_by_seq WHERE stream = ? AND last_seq >= ?"
)
_NEWER: Final = """
SELECT arrived_at, metered FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq >= ? ORDER BY last_seq DESC
"""


class Usage:
    """Sums that are not in the file yet."""

    FLUSH_SECONDS = 10.0
    """Interval at which they go there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sums: defaultdict[UsageRow, int] = defaultdict(int)
        # Appends and their bytes, by basin, storage class and minute: one look-up for each append.
        self._appends: defaultdict[UsageRow, list[int]] = defaultdict(lambda: [0, 0])

    def appended(self, basin: str, storage_class: str, metered: int, at: int) -> None:
        """Count a durable append of so many metered bytes; `at` in ms."""
        if basin[0] != "_":  # the gateway's own
            both = self._appends[basin, storage_class, at // 60_000]
            both[0] += 1
            both[1] += metered

    def read(self, basin: str, name: str) -> None:
        """Count the beginning of a read, "unary" or "streaming"."""
        if basin[0] != "_":
            self._sums[basin, _READS + name, self.now()] += 1

    def delivered(self, basin: str, size: int) -> None:
        """Count bytes that a read delivers."""
        if basin[0] != "_":
            self._sums[basin, _READ_BYTES, self.now()] += size

    def performed(self, operation: Operation[Any]) -> None:
        """Count an operation of the control plane."""
        name = _NAMES.get(type(operation).__name__)
        if name is not None:
            stream = getattr(operation, "stream", None)
            of_basin = "" if name in _OF_ACCOUNT else operation.basin if stream is None else stream.basin  # type: ignore[attr-defined]
            if not of_basin.startswith("_"):
                self._sums[of_basin, _OPERATIONS + name, self.now()] += 1

    def now(self) -> int:
        """Return the current minute since the epoch."""
        return self._clock() // 60_000

    def take(self) -> Mapping[UsageRow, int]:
        """Return the sums, and start from nothing."""
        for (basin, storage_class, minute), (appends, size) in self._appends.items():
            self._sums[basin, _APPENDS + storage_class, minute] += appends
            self._sums[basin, _APPENDED_BYTES + storage_class, minute] += size
        self._appends.clear()
        taken, self._sums = self._sums, defaultdict(int)
        return taken

    def put_back(self, sums: Mapping[UsageRow, int]) -> None:
        """Add sums that were taken and did not get into the file."""
        for row, value in sums.items():
            self._sums[row] += value


_APPENDS, _APPENDED_BYTES, _READS, _READ_BYTES, _OPERATIONS = (f"{kind.value}/" for kind in UsageKind)


class _Flush(Change):
    """Sums on their way to the file."""

    __slots__ = ("_sums", "_usage")

    def __init__(self, usage: Usage, sums: Mapping[UsageRow, int], statements: Sequence[Statement]) -> None:
        super().__init__(statements, 64 * len(statements))
        self._usage = usage
        self._sums = sums

    def reject(self, failure: Failure) -> None:  # noqa: ARG002
        self._usage.put_back(self._sums)


class StoreUsage(Usage):
    """The account of the whole store."""

    def __init__(self, committer: Committer, reader: ReaderThreads, clock: Clock) -> None:
        super().__init__(clock)
        self._committer = committer
        self._reader = reader
        self._compacted = 0

    async def run(self) -> None:
        """Add the sums to the file now and then."""
        while True:
            await trio.sleep(self.FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Hand the sums to the committer."""
        sums = self.take()
        if not sums:
            return
        statements: list[Statement] = [
            (_ADD, (minute, basin, series, value)) for (basin, series, minute), value in sums.items()
        ]
        now = self.now()
        if now // 60 > self._compacted:
            self._compacted = now // 60
            before = (now - MINUTES_KEPT) // 60 * 60
            statements += [(sql, (before,)) for sql in _COMPACT]
            statements.append((_EXPIRE, (now - HOURS_KEPT,)))
        self._committer.add(_Flush(self, sums, statements))

    async def sums(self, operation: GetUsage) -> Mapping[str, Points]:
        """Carry out `GetUsage`."""
        self.flush()
        await self._committer.settle(None)
        interval, kind = operation.interval, f"{operation.kind.value}/"
        first, end = operation.start // interval * interval, operation.end
        rows = await self._reader.run(
            lambda db: db.execute(_SUMS, (first // 60, end // 60, operation.basin)).fetchall()
        )
        sums_by_series: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for minute, series, value in rows:
            if series.startswith(kind):
                sums_by_series[series.removeprefix(kind)][minute * 60 // interval * interval] += value
        return {name: sorted(points.items()) for name, points in sorted(sums_by_series.items())}

    async def storage(self, operation: GetStorage) -> Points:
        """Carry out `GetStorage`."""
        return await self._reader.run(partial(_storage, operation=operation))

    async def active_basins(self, operation: ListActiveBasins) -> Sequence[str]:
        """Carry out `ListActiveBasins`."""
        times = (operation.start * 1000, operation.end * 1000 + 999)
        rows = await self._reader.run(lambda db: db.execute(_ACTIVE, times).fetchall())
        return [name for (name,) in rows]


def _storage(db: sqlite3.Connection, operation: GetStorage) -> Points:
    """Count backwards from what is stored now, so that only rows that came since `start` are visited."""
    interval = operation.interval
    times = range(math.ceil(operation.start / interval) * interval, operation.end + 1, interval)
    ref = operation.stream
    streams = db.execute(_STREAMS, (ref.basin, ref.stream)).fetchall()
    if not streams or not times:
        return []
    total = 0
    later: Counter[int] = Counter()  # bytes that came after each time and before the next, or ever after the last
    oldest, last = times[0] * 1000, len(times) - 1
    for stream, trim_point in streams:
        total += db.execute(_STORED, (stream, trim_point)).fetchone()[0]
        for arrived_at, metered in db.execute(_NEWER, (stream, trim_point)):
            if arrived_at < oldest:
                break
            later[min((arrived_at // 1000 - times[0]) // interval, last)] += metered
    points = []
    for index in range(last, -1, -1):
        total -= later[index]
        points.append((times[index], total))
    return points[::-1]
