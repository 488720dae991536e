"""Which streams of a mirror have something to copy, and how far behind they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import trio

from penstock_codecs.model import StreamRef

__all__ = ["Lag", "Queue"]


@dataclass(slots=True)
class _Behind:
    """`tail` and `compared`: the primary's sequence numbers, where known; `since`: on trio's clock, None if equal."""

    tail: int | None = None
    compared: int | None = None
    since: float | None = None


class _Later(NamedTuple):
    due: float
    stopped: bool


class Lag(NamedTuple):
    """`records` that are not compared yet, as far as is known, and for how long the oldest has waited, in seconds."""

    records: int
    seconds: float


class Queue:
    """Streams wait in the order in which they came; each is there once, and waits, is worked on or postponed.

    At most `most` are held. One more is forgotten, and `overflowed` says so: then all streams must be listed again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[StreamRef, None] = {}
        self._working: dict[StreamRef, bool] = {}  # whether it was touched again since its turn began
        self._later: dict[StreamRef, _Later] = {}
        self._marked: dict[StreamRef, int | None] = {}  # and the tail that it is to reach, where known
        self._behind: dict[StreamRef, _Behind] = {}
        self._changed = trio.Event()
        self.overflowed = False

    def add(self, stream: StreamRef, tail: int | None = None) -> None:
        """There may be more in this stream; `tail` is its next sequence number, where that is known."""
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
        """The stream whose turn it is, None where none waits."""
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
        """So far it is done with."""
        behind = self._behind.get(stream)
        if behind is None:
            return
        advanced, behind.compared = compared != behind.compared, compared
        if behind.tail is None or compared >= behind.tail:
            behind.since = None
        if advanced and self._reached(stream):  # else it may be the end of a turn that failed
            del self._marked[stream]
            self._signal()

    def _reached(self, stream: StreamRef) -> bool:
        """Whether it is marked, and was compared as far as it was to be."""
        tail, compared = self._marked.get(stream), self._behind[stream].compared
        return tail is not None and compared is not None and compared >= tail

    def done(self, stream: StreamRef, again: bool) -> None:
        """Its turn is over, and did not fail; `again`: there is more to do for it."""
        if not again or self._reached(stream):
            self._marked.pop(stream, None)
        if self._working.pop(stream) or again:
            self._waiting[stream] = None
        else:
            self._behind.pop(stream, None)
        self._signal()

    def postpone(self, stream: StreamRef, seconds: float, *, stopped: bool) -> None:
        """Its turn is over, and the next is not before this time. `stopped`: nothing is expected of that."""
        if stopped:
            self._marked.pop(stream, None)
        self._working.pop(stream)
        self._later[stream] = _Later(trio.current_time() + seconds, stopped)
        self._signal()

    def put_back(self) -> None:
        """Nobody works on any stream: their turns are to come."""
        self._waiting.update(dict.fromkeys(self._working))
        self._working.clear()
        self._signal()

    def hurry(self) -> None:
        """Nothing is postponed any longer."""
        self._later = {stream: _Later(-math.inf, later.stopped) for stream, later in self._later.items()}
        self._signal()

    def look_again(self) -> None:
        """Whoever waits for a change looks whether it is what they wait for."""
        self._signal()

    def mark(self) -> None:
        """From now on `marked` tells whether any of these is not yet done with up to its tail of this moment. Nobody
        waits until a stream is level: one that is appended to without a pause may never be."""
        streams = (*self._waiting, *self._working, *self._later)
        self._marked = {stream: behind.tail if (behind := self._behind.get(stream)) else None for stream in streams}
        self._signal()

    def _signal(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until something else waits, or a turn is over."""
        await self._changed.wait()

    async def changed_or_due(self) -> None:
        """Wait for that, or until something that was postponed is due: for those who then `begin`."""
        with trio.move_on_at(min((later.due for later in self._later.values()), default=math.inf)):
            await self._changed.wait()

    @property
    def waiting(self) -> int:
        """Streams whose turn is to come."""
        return len(self._waiting)

    @property
    def working(self) -> Iterable[StreamRef]:
        """Streams that have their turn."""
        return self._working.keys()

    @property
    def postponed(self) -> int:
        """Streams that are not looked at for a while."""
        return len(self._later)

    @property
    def settled(self) -> bool:
        """Whether nothing more is expected of any stream that was added."""
        due = trio.current_time()
        expected = any(not later.stopped or later.due <= due for later in self._later.values())
        return not self._waiting and not self._working and not expected

    @property
    def marked(self) -> bool:
        """See `mark`."""
        return bool(self._marked)

    @property
    def room(self) -> bool:
        """Whether those that wait, for whatever reason, are less than half of those that may."""
        return len(self._waiting) + len(self._later) < self._most // 2

    def lag(self) -> Lag:
        """Over all streams."""
        late = [behind for behind in self._behind.values() if behind.since is not None]
        records = sum((behind.tail or 0) - (behind.compared or 0) for behind in late if behind.compared is not None)
        oldest = min((behind.since for behind in late if behind.since is not None), default=None)
        return Lag(records, 0.0 if oldest is None else trio.current_time() - oldest)
