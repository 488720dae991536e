"""A log in memory that several gateways share, as a topic of a cluster: slow, and losing answers if asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from penstock.backends.logged_tables import ChangeLog, LoggedBatch, LogNews, TableChange, TableState
from penstock.backends.logged_tables.state import sizes_of
from penstock.model.failures import FailureCode, fail

__all__ = ["SharedLog", "SharedLogEnd"]


class SharedLog:
    """The batches that were appended. `lossy` is asked at each append: True loses the answer, False the request, None
    neither."""

    def __init__(self, lossy: Callable[[], bool | None] = lambda: None) -> None:
        self.batches: list[LoggedBatch] = []
        self.end = 0
        self.lossy = lossy
        self.more = trio.lowlevel.ParkingLot()

    def compact(self) -> None:
        """Keep the newest record of each key, and no removal."""
        last = {change.key: position for batch in self.batches for position, change in batch.changes}
        self.batches = [
            LoggedBatch(
                b"",
                [
                    (position, change)
                    for position, change in batch.changes
                    if last[change.key] == position and change.value is not None
                ],
            )
            for batch in self.batches
        ]


class SharedLogEnd(ChangeLog):
    """One gateway's end of the log. A request takes `seconds`, and waits as long as `reachable` is not set."""

    where = "the shared log"
    recover_seconds = 30.0
    max_bytes = 1 << 22

    def __init__(self, shared: SharedLog, seconds: float = 0.001) -> None:
        self._shared = shared
        self._seconds = seconds
        self._read = 0
        self._begun = False
        self.reachable = trio.Event()
        self.reachable.set()

    async def _travel(self) -> None:
        await trio.sleep(self._seconds)
        await self.reachable.wait()

    async def read(self) -> LogNews:
        await self._travel()
        restarted, self._begun = not self._begun, True
        while not restarted and self._read == len(self._shared.batches):
            await self._shared.more.park()
            await self.reachable.wait()
        end = self._shared.end  # nothing is appended in between
        batches = self._shared.batches[self._read :]
        self._read = len(self._shared.batches)
        return LogNews(batches, end, restarted)

    async def end(self) -> int:
        await self._travel()
        return self._shared.end

    async def append(self, author: bytes, changes: Sequence[TableChange], state: TableState) -> int | None:
        assert sizes_of(changes) <= self.max_bytes, "the log does not take it"
        shared, place = self._shared, self._read
        await self._travel()
        lost = shared.lossy()
        if lost is False:
            raise fail(FailureCode.UNAVAILABLE, "the request was lost")
        if place != len(shared.batches):
            return None
        shared.batches.append(LoggedBatch(author, [(shared.end + at, one) for at, one in enumerate(changes)]))
        shared.end += len(changes)
        shared.more.unpark_all()
        if lost:
            raise fail(FailureCode.UNAVAILABLE, "the answer was lost")
        return shared.end - 1

    def begin_again(self) -> None:
        pass
