"""Reading one batch ahead of a client, for a bounded number of clients."""

from __future__ import annotations

import trio

from penstock.backends.sequence_numbering.history import ScanStart, read
from penstock.backends.sequence_numbering.numbered import NumberedRecords
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.model.failures import Failure, OperationFailed

__all__ = ["Fetch", "Prefetcher"]


class Fetch:
    """One read ahead, in progress or done, whose result was not taken yet."""

    def __init__(self, ahead: Prefetcher, cursor: ScanStart) -> None:
        self.cursor = cursor
        self._ahead = ahead
        self._scope = trio.CancelScope()
        self._done = trio.Event()
        self._numbered: NumberedRecords | None = None
        self._failure: Failure | None = None

    async def run(self, stream: IndexedStream, max_records: int) -> None:
        """Carry out the read."""
        try:
            with self._scope:
                self._numbered = await read(stream, self.cursor, max_records)
        except OperationFailed as error:
            self._failure = error.failure
        finally:
            self._done.set()

    async def wait(self) -> NumberedRecords:
        """Wait for the result and take it. May be called again after being cancelled. Raises OperationFailed."""
        await self._done.wait()
        self._ahead.taken()
        if self._failure is not None:
            raise OperationFailed(self._failure)
        assert self._numbered is not None, "given up"
        return self._numbered

    def give_up(self) -> None:
        """Cancel the read."""
        self._scope.cancel()
        self._ahead.taken()


class Prefetcher:
    """Starts reads ahead in `nursery`, at most `most` at once."""

    def __init__(self, most: int, nursery: trio.Nursery) -> None:
        self._left = most
        self._nursery = nursery

    def fetch(self, stream: IndexedStream, cursor: ScanStart, max_records: int) -> Fetch | None:
        """Start a read, or return None if there are too many."""
        if not self._left:
            return None
        self._left -= 1
        fetch = Fetch(self, cursor)
        self._nursery.start_soon(fetch.run, stream, max_records)
        return fetch

    def taken(self) -> None:
        """Make room for another read."""
        self._left += 1
