"""Reading a batch ahead of its client, for a bounded number of clients."""

from __future__ import annotations

import trio

from penstock.backs.indexed.history import Cursor, read
from penstock.backs.indexed.numbered import Numbered
from penstock.backs.indexed.state import StreamState
from penstock_codecs.failures import Failure, OperationFailed

__all__ = ["Fetch", "ReadAhead"]


class Fetch:
    """One read, under way or done, that nobody has taken yet."""

    def __init__(self, ahead: ReadAhead, cursor: Cursor) -> None:
        self.cursor = cursor
        self._ahead = ahead
        self._scope = trio.CancelScope()
        self._done = trio.Event()
        self._numbered: Numbered | None = None
        self._failure: Failure | None = None

    async def run(self, stream: StreamState, max_records: int) -> None:
        """Read."""
        try:
            with self._scope:
                self._numbered = await read(stream, self.cursor, max_records)
        except OperationFailed as error:
            self._failure = error.failure
        finally:
            self._done.set()

    async def wait(self) -> Numbered:
        """What was read. Raises OperationFailed. May be cancelled and called again."""
        await self._done.wait()
        self._ahead.taken()
        if self._failure is not None:
            raise OperationFailed(self._failure)
        assert self._numbered is not None, "given up"
        return self._numbered

    def give_up(self) -> None:
        """Nobody wants it."""
        self._scope.cancel()
        self._ahead.taken()


class ReadAhead:
    """`most` at once; `nursery`: where they run."""

    def __init__(self, most: int, nursery: trio.Nursery) -> None:
        self._left = most
        self._nursery = nursery

    def fetch(self, stream: StreamState, cursor: Cursor, max_records: int) -> Fetch | None:
        """Begin to read; None where too many do."""
        if not self._left:
            return None
        self._left -= 1
        fetch = Fetch(self, cursor)
        self._nursery.start_soon(fetch.run, stream, max_records)
        return fetch

    def taken(self) -> None:
        """There is room for another."""
        self._left += 1
