"""Reads of bytes under way: one read session at the back for all who read at about the same place.

A reader of bytes asks in steps, each from where the last one ended. A *window* keeps what its session gave until it is
asked for, a bounded amount, and goes on with the session then. At the tail it follows, for all who wait there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from penstock.backs.base import Back, Following
from penstock.backs.bytes_on_records.counting import Counter
from penstock.backs.bytes_on_records.offsets import Place
from penstock.backs.bytes_on_records.streams import Stream
from penstock.backs.credentials import token_shown
from penstock_codecs.byte_rendering import Rendered
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.model import RecordBatch
from penstock_codecs.operations import FromSeqNum, Read

__all__ = ["Window", "Windows"]

MOST_WITHOUT_BYTES: Final = 1000
"""Most records without bytes that are kept in a window at one offset: a refusal needs the first, and counts are off by
the rest."""


class Window:
    """Consecutive bytes of a stream from `first` to `end`, and the session that gives more, for those of one token.

    `on_unused` is called when nobody reads here any more.
    """

    def __init__(
        self,
        stream: Stream,
        counter: Counter,
        start: Place,
        offset: int,
        ahead: int,
        token: str | None,
        on_unused: Callable[[], object],
    ) -> None:
        self.stream = stream
        self.token = token
        self.following = False
        self.failure: Failure | None = None
        self.over = False
        self.idle_since = trio.current_time()
        self.scope = trio.CancelScope()
        self.first = self.end = start.offset
        self._on_unused = on_unused
        self._counter = counter
        self._seq_num = start.seq_num
        self._wanted = offset  # bytes before it are not kept, but for a few
        self._goal = 0
        self._ahead = ahead
        self._pieces: deque[Rendered] = deque()
        self._empty = 0  # records without bytes since the last one with some
        self._readers: list[int] = []
        self._room = trio.lowlevel.ParkingLot()

    def serves(self, offset: int) -> bool:
        """Whether a read from there on finds its bytes here, sooner or later."""
        if self.over or self.scope.cancel_called or offset < self.first:
            return False
        return self.following or offset <= max(self.end, self._wanted)

    @property
    def used(self) -> bool:
        """Whether somebody reads here just now."""
        return bool(self._readers)

    @contextmanager
    def reading(self, offset: int, max_bytes: int) -> Iterator[None]:
        """Somebody wants these bytes, until the block ends."""
        self._readers.append(offset)
        self._goal = max(self._goal, offset + max_bytes + self._ahead)
        self._room.unpark_all()
        try:
            yield
        finally:
            self._readers.remove(offset)
            self._wanted = max(self._wanted, offset)
            self.idle_since = trio.current_time()
            if not self._readers:
                self._on_unused()

    def pieces(self) -> deque[Rendered]:
        """All that is here."""
        return self._pieces

    async def run(self, records: Back) -> None:
        """Read, as far as somebody is interested."""
        read = Read(self.stream.ref, FromSeqNum(self._seq_num), clamp=True, create_if_missing=False)
        try:
            with self.scope:
                async with records.read_session(read) as session:
                    while (given := await session.next()) is not None:
                        if isinstance(given, Following):
                            self.following = True
                        else:
                            await self._take(given)
                        self.stream.changed.unpark_all()
                        while self.end >= self._goal:
                            await self._room.park()
                self.failure = Failure(FailureCode.UNAVAILABLE, f"the read of stream {self.stream.ref} ended")
        except OperationFailed as error:
            self.failure = error.failure
        finally:
            self.over = True
            self.stream.windows.remove(self)
            self.stream.changed.unpark_all()

    async def _take(self, batch: RecordBatch) -> None:
        if batch.first_seq_num > self._seq_num:  # what was between is gone
            place = await self._counter.first_at(self.stream, batch.first_seq_num)
            self.stream.first = max(self.stream.first, place)
            self._pieces.clear()
            self.first = self.end = place.offset
        self._seq_num = batch.next_seq_num
        self._counter.take(self.stream, batch)
        self._keep(self.stream.render(batch, self.end))

    def _keep(self, piece: Rendered) -> None:
        self.end = piece.end_offset
        if piece.data:
            self._empty = 0
        else:
            self._empty += len(piece.marks)
            if self._empty > MOST_WITHOUT_BYTES:
                return
        self._pieces.append(piece)
        lowest = min(self._readers, default=self._wanted)
        while self._pieces and self._pieces[0].end_offset < lowest - self._ahead:
            self._pieces.popleft()
        self.first = self._pieces[0].first_offset if self._pieces else self.end


class Windows:
    """Of all streams of one back."""

    def __init__(self, records: Back, counter: Counter, nursery: trio.Nursery, most: int, ahead: int) -> None:
        self._records = records
        self._counter = counter
        self._nursery = nursery
        self._most = most
        self._turns = trio.StrictFIFOLock()
        self._ended = trio.lowlevel.ParkingLot()
        self._wanted = 0  # reads for which there is no room
        self._ahead = ahead
        self._all: list[Window] = []

    async def find(self, stream: Stream, offset: int) -> Window:
        """The window for a read from there on; opened where there is none. Raises OperationFailed(PERMISSION_DENIED)
        where the back has no token for the client."""
        shown = token_shown(self._records)
        if (window := _serving(stream, offset, shown)) is not None:
            return window
        async with self._turns:
            while (window := _serving(stream, offset, shown)) is None and len(self._all) >= self._most:
                self._wanted += 1
                self._make_room()
                try:
                    await self._ended.park()
                finally:
                    self._wanted -= 1
            return window or self._open(stream, offset, shown)

    def _open(self, stream: Stream, offset: int, shown: str | None) -> Window:
        start = stream.offsets.before_offset(offset)
        window = Window(stream, self._counter, start, offset, self._ahead, shown, self._make_room)
        stream.windows.append(window)
        self._all.append(window)
        self._nursery.start_soon(self._run, window)
        return window

    async def _run(self, window: Window) -> None:
        try:
            await window.run(self._records)
        finally:
            self._all.remove(window)
            self._ended.unpark_all()

    def _make_room(self) -> None:
        """Where somebody waits for room, end the read that nobody has used for longest, unless one is ending already.
        It serves nobody from then on: who uses it again and again waits for room as well."""
        idle = [window for window in self._all if not window.used] if self._wanted else []
        if idle and not any(window.scope.cancel_called for window in idle):
            min(idle, key=lambda window: window.idle_since).scope.cancel()

    def close_idle(self, before: float) -> None:
        """End those that nobody has used since then."""
        for window in self._all:
            if not window.used and window.idle_since < before:
                window.scope.cancel()

    def close(self, stream: Stream, *, used: bool = True) -> None:
        """End all of a stream; `used`: also those that somebody reads at just now."""
        for window in stream.windows:
            if used or not window.used:
                window.scope.cancel()


def _serving(stream: Stream, offset: int, shown: str | None) -> Window | None:
    return next((window for window in stream.windows if window.token == shown and window.serves(offset)), None)
