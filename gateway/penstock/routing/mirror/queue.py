"""The queue of a mirror: streams that have something to copy, and how far behind they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import trio

from penstock.model.records import StreamRef

__all__ = ["Lag", "Queue"]


class _Behind(msgspec.Struct):
    """The lag of a stream. `tail`, `compared`: the primary's sequence numbers, None if unknown. `since`: the trio time
    since which the stream is behind, None if it is not."""

    tail: int | None = None
    compared: int | None = None
    since: float | None = None


class _Later(NamedTuple):
    due: float
    stopped: bool


class Lag(NamedTuple):
    """The lag of a mirror. `records`: those known not to be compared yet. `seconds`: time since the longest-lagging
    stream fell behind."""

    records: int
    seconds: float


class Queue:
    """A first-in, first-out queue of streams. Each stream is in it once: waiting, in its turn, or postponed.

    It holds `most` streams at most. Streams beyond that are dropped and set `overflowed`: then all streams must be
    listed again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[StreamRef, None] = {}
        self._working: dict[StreamRef, bool] = {}  # True: touched again since its turn began
        self._later: dict[StreamRef, _Later] = {}
        self._marked: dict[StreamRef, int | None] = {}  # the tail to reach, None if unknown
        self._behind: dict[StreamRef, _Behind] = {}
        self._changed = trio.Event()
        self.overflowed = False

    def add(self, stream: StreamRef, tail: int | None = None) -> None:
        """Add a stream that may have new records. `tail`: its next sequence number, None if unknown."""
        behind = self._behind.get(stream)
        if behind is None:
            if len(self._behind) >= self._most:
                self.overflowed = True
                return
            behind = self._behind[stream] = _Behind()
        if tail is not None:
            behind.tail = max(tail, behind.tail or 0)
            if stream in self._marked and self._marked[stream] is None:
                self._marked[stream] = tail
            if behind.since is None:
                behind.since = trio.current_time()
        if stream in self._working:
            self._working[stream] = True
        elif stream not in self._later and stream not in self._waiting:
            self._waiting[stream] = None
            self._signal()

    def begin(self) -> StreamRef | None:
        """Begin the turn of the next waiting stream and return it, or None if none waits."""
        if self._later:
            now = trio.current_time()
            for stream in [stream for stream, later in self._later.items() if later.due <= now]:
                del self._later[stream]
                self._waiting[stream] = None
        for stream in self._waiting:
            del self._waiting[stream]
            self._working[stream] = False
            return stream
        return None

    def progress(self, stream: StreamRef, compared: int) -> None:
        """Note that a stream is compared up to this sequence number of the primary."""
        behind = self._behind.get(stream)
        if behind is None:
            return
        advanced, behind.compared = compared != behind.compared, compared
        if behind.tail is None or compared >= behind.tail:
            behind.since = None
        if advanced and self._reached(stream):  # otherwise it may be the end of a failed turn
            del self._marked[stream]
            self._signal()

    def _reached(self, stream: StreamRef) -> bool:
        """Return whether the stream is marked and was compared up to the tail that it had then."""
        tail, compared = self._marked.get(stream), self._behind[stream].compared
        return tail is not None and compared is not None and compared >= tail

    def done(self, stream: StreamRef, again: bool) -> None:
        """End the turn of a stream that did not fail. `again`: it has more to copy."""
        if not again or self._reached(stream):
            self._marked.pop(stream, None)
        if self._working.pop(stream) or again:
            self._waiting[stream] = None
        else:
            self._behind.pop(stream, None)
        self._signal()

    def postpone(self, stream: StreamRef, seconds: float, *, stopped: bool) -> None:
        """End the turn of a stream, and make the next due after `seconds`. `stopped`: its copy has stopped, so
        `settled` and `marked` do not wait for it."""
        if stopped:
            self._marked.pop(stream, None)
        self._working.pop(stream)
        self._later[stream] = _Later(trio.current_time() + seconds, stopped)
        self._signal()

    def put_back(self) -> None:
        """End all turns, and let their streams wait again."""
        self._waiting.update(dict.fromkeys(self._working))
        self._working.clear()
        self._signal()

    def hurry(self) -> None:
        """Make all postponed streams due now."""
        self._later = {stream: _Later(-math.inf, later.stopped) for stream, later in self._later.items()}
        self._signal()

    def look_again(self) -> None:
        """Wake the tasks in `changed`, to check their condition again."""
        self._signal()

    def mark(self) -> None:
        """Mark all streams in the queue: each stays marked until it is compared up to its present tail. A stream that
        is appended to without a pause may never be level, so waiting for that could take forever."""
        streams = (*self._waiting, *self._working, *self._later)
        self._marked = {stream: behind.tail if (behind := self._behind.get(stream)) else None for stream in streams}
        self._signal()

    def _signal(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until another stream waits, or a turn ends."""
        await self._changed.wait()

    async def changed_or_due(self) -> None:
        """Wait for that, or until a postponed stream is due; then call `begin`."""
        with trio.move_on_at(min((later.due for later in self._later.values()), default=math.inf)):
            await self._changed.wait()

    @property
    def waiting(self) -> int:
        """Number of streams that wait for their turn."""
        return len(self._waiting)

    @property
    def working(self) -> Iterable[StreamRef]:
        """Streams in their turn."""
        return self._working.keys()

    @property
    def postponed(self) -> int:
        """Number of postponed streams."""
        return len(self._later)

    @property
    def settled(self) -> bool:
        """True if no stream waits, is in its turn or is postponed, except stopped streams that are not due yet."""
        due = trio.current_time()
        expected = any(not later.stopped or later.due <= due for later in self._later.values())
        return not self._waiting and not self._working and not expected

    @property
    def marked(self) -> bool:
        """True while any stream is marked; see `mark`."""
        return bool(self._marked)

    @property
    def room(self) -> bool:
        """True if less than half of the queue's capacity is waiting or postponed."""
        return len(self._waiting) + len(self._later) < self._most // 2

    def lag(self) -> Lag:
        """Return the lag over all streams."""
        late = [behind for behind in self._behind.values() if behind.since is not None]
        records = sum((behind.tail or 0) - (behind.compared or 0) for behind in late if behind.compared is not None)
        oldest = min((behind.since for behind in late if behind.since is not None), default=None)
        return Lag(records, 0.0 if oldest is None else trio.current_time() - oldest)
