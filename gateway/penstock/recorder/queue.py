"""A bounded queue of events, from the trio thread to the thread of a recording.

The trio thread never waits: either side holds the lock for a few us. If there is no room, conversations are dropped,
those with the most queued bytes first: their queued events are removed, so that the others continue, and a `Lost` marks
the gap.
"""

from __future__ import annotations

import threading
from collections import deque
from operator import attrgetter
from typing import Final

import msgspec

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Joined, Lost, Opened, Sender
from penstock.model.limits import MIB

__all__ = ["BATCH_BYTES", "EVENT_BYTES", "Drops", "EventQueue"]

EVENT_BYTES: Final = 320
"""Size of an event beside its data, in bytes: 200 were measured with CPython 3.11, and 180 more if the data is a
memoryview."""
BATCH_BYTES: Final = 1 * MIB
"""Bytes per batch, and the fill level that wakes the recording's thread. For chunks of 128 bytes a batch holds Python's
lock for 5 ms, 2.5 us each; for chunks of 512 KiB for 0.1 ms. Of these the thread took 400 to 440 us of processor time
per MB on a busy machine of two cores, most of it the kernel's; with 256 KiB it was 490 to 510, with 4 MiB 610 to 770,
in turns."""
_MARGIN: Final = 64
"""1/64 of the limit is freed at once, so that the search for the largest conversation is rare: it took 1 ms with 10,000
queued conversations. Otherwise `put` takes 0.9 us."""
_LESS: Final = 8
"""Divisor of the limit while processors are short: events that are held for long are out of the caches when they are
written, and what is read meanwhile takes other memory."""
_STALE: Final = 4096
"""Stale places (of removed events) that may stay in the order; as many as there are others may stay in any case."""


class _Backlog:
    """The queued events of one conversation."""

    __slots__ = ("closed", "conversation", "end", "events", "given_up", "sender", "waiting")

    def __init__(self, event: Opened) -> None:
        self.conversation = event.conversation
        # Created on demand: an empty deque takes 0.6 KiB, and most connections have nothing queued.
        self.events: deque[CaptureEvent] | None = None
        self.waiting = 0
        self.sender = Sender.CLIENT  # of the last chunk, and the offset after it
        self.end = event.client_offset
        self.closed = False  # by one side
        self.given_up = False


class Drops(msgspec.Struct):
    """Counts of dropped conversations, and of their queued bytes."""

    conversations: int = 0
    bytes: int = 0


class EventQueue:
    """`put` is for the trio thread; `wait`, `take` and the methods below them for the recording's thread; `hurry` for
    all.

    `limit`: maximum of queued bytes, including the batch that is being written. Accepts nothing before the first
    `admit`.
    """

    def __init__(self, limit: int) -> None:
        self.generation = 0
        """As `Sink.generation`."""
        self.conversations = 0
        """Number of conversations that were begun."""
        self.drops = Drops()
        """Totals, including conversations dropped by `suspend`."""
        self._full_limit = self._limit = limit
        self._lock = threading.Lock()
        self._backlogs: dict[Conversation, _Backlog] = {}
        self._order: deque[_Backlog] = deque()  # one place per event, and some stale ones
        self._loaded: set[_Backlog] = set()  # lanes that could be dropped
        self._held = self._queued = self._taken = self._events = 0
        self._admits = False
        self._some = threading.Event()
        self._plenty = threading.Event()

    @property
    def held(self) -> int:
        """Bytes that are queued or being written."""
        return self._held

    # ---- the trio thread -----------------------------------------------------------------------------------------

    def put(self, event: CaptureEvent) -> bool:
        """Add an event, as `Sink.put`."""
        size = _size(event)
        with self._lock:
            backlog = self._backlogs.get(event.conversation)
            if backlog is None:
                if not self._admits or type(event) is not Opened:
                    return False
                backlog = _Backlog(event)
                if self._held + size > self._limit and not self._make_room(event, backlog, size):
                    return False
                self._backlogs[event.conversation] = backlog
                self.conversations += 1
            elif self._held + size > self._limit and not self._make_room(event, backlog, size):
                return False
            self._append(backlog, event, size)
            if type(event) is Chunk:
                backlog.sender = event.sender
                backlog.end = event.offset + len(event.data)
                if self._queued >= BATCH_BYTES:
                    self._plenty.set()
            elif _ends(event, backlog):
                del self._backlogs[event.conversation]
        return True

    def _append(self, backlog: _Backlog, event: CaptureEvent, size: int) -> None:
        if backlog.events is None:
            backlog.events = deque()
            if not backlog.given_up:
                self._loaded.add(backlog)
        backlog.events.append(event)
        backlog.waiting += size
        self._order.append(backlog)
        self._held += size
        self._queued += size
        self._events += 1
        if self._events == 1:
            self._some.set()

    # ---- dropping conversations ----------------------------------------------------------------------------------

    def _make_room(self, event: CaptureEvent, own: _Backlog, size: int) -> bool:
        """Drop other conversations, or the event's own. Returns whether the event can be added."""
        goal = self._limit - max(size, self._limit // _MARGIN)
        for backlog in sorted(self._loaded, key=attrgetter("waiting"), reverse=True):
            if self._held <= goal:
                break
            self._give_up(backlog, event)
        if self._held + size > self._limit and self._backlogs.get(event.conversation) is own:
            self._give_up(own, event)  # it had nothing queued, and there is still no room
        if len(self._order) > max(_STALE, 2 * self._events):
            self._forget_stale()
        return not own.given_up and self._held + size <= self._limit

    def _give_up(self, backlog: _Backlog, now: CaptureEvent) -> None:
        """Drop a conversation. A queued `Opened` stays, to show that the conversation existed."""
        events: deque[CaptureEvent] = backlog.events or deque()
        self.drops.conversations += 1
        self.drops.bytes += sum(len(event.data) for event in events if type(event) is Chunk)
        self._held -= backlog.waiting
        self._queued -= backlog.waiting
        self._events -= len(events)
        backlog.events, backlog.waiting, backlog.given_up = None, 0, True
        self._loaded.discard(backlog)
        if self._backlogs.get(backlog.conversation) is backlog:
            del self._backlogs[backlog.conversation]
        for event in events:
            if type(event) is Opened:
                self._append(backlog, event, EVENT_BYTES)
        first = next((event for event in events if type(event) is Chunk), None)
        sender, offset = (first.sender, first.offset) if first else (backlog.sender, backlog.end)
        lost = Lost(backlog.conversation, now.time_ns, sender, offset, 0, "the recording could not keep up")
        self._append(backlog, lost, EVENT_BYTES)

    def _forget_stale(self) -> None:
        left = {backlog: len(backlog.events or ()) for backlog in self._order}
        order: deque[_Backlog] = deque()
        for backlog in self._order:
            if left[backlog]:
                left[backlog] -= 1
                order.append(backlog)
        self._order = order

    # ---- the recording's thread ----------------------------------------------------------------------------------

    def wait(self, idle: float | None, gather: float) -> None:
        """Block until an event is queued, for at most `idle` seconds; then until a batch is, for at most `gather`
        seconds."""
        if self._some.wait(idle):
            self._plenty.wait(gather)
        with self._lock:
            if self._queued < BATCH_BYTES:
                self._plenty.clear()
            if not self._events:
                self._some.clear()

    def hold_less(self, less: bool) -> None:
        """Lower the limit while the recording's thread is throttled, so that conversations are dropped sooner: they
        would not be written in time anyway, and memory that is held for long costs traffic more than memory that is
        reused at once."""
        self._limit = self._full_limit // _LESS if less else self._full_limit

    def hurry(self) -> None:
        """Make the current or next `wait` return at once."""
        self._plenty.set()
        self._some.set()

    def take(self) -> list[CaptureEvent]:
        """Return the next batch, of BATCH_BYTES or a little more, or an empty one if nothing is queued. Call `written`
        after it."""
        batch: list[CaptureEvent] = []
        size = 0
        with self._lock:
            while self._order and size < BATCH_BYTES:
                backlog = self._order.popleft()
                if not backlog.events:
                    continue  # stale
                event = backlog.events.popleft()
                cost = _size(event)
                backlog.waiting -= cost
                if not backlog.events:
                    backlog.events = None
                    self._loaded.discard(backlog)
                size += cost
                batch.append(event)
            self._events -= len(batch)
            self._queued -= size
            self._taken = size
        return batch

    def written(self) -> None:
        """Free the room of the batch that was taken."""
        with self._lock:
            self._held -= self._taken
            self._taken = 0

    def admit(self) -> None:
        """Accept conversations, with a new `generation`: a file begins."""
        with self._lock:
            self._admits = True
            self.generation += 1

    def suspend(self) -> int:
        """Drop all conversations and events, and accept nothing until `admit`. Returns the number of conversations."""
        with self._lock:
            dropped = len(self._backlogs)
            self.drops.conversations += dropped
            self._clear()
        return dropped

    def close(self) -> None:
        """Drop everything and accept nothing more."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._admits = False
        self._backlogs.clear()
        self._order.clear()
        self._loaded.clear()
        self._held = self._queued = self._taken = self._events = 0


def _size(event: CaptureEvent) -> int:
    if type(event) is Chunk:
        return EVENT_BYTES + len(event.data)
    return EVENT_BYTES + len(event.client) + len(event.server) if type(event) is Joined else EVENT_BYTES


def _ends(event: CaptureEvent, backlog: _Backlog) -> bool:
    """Return whether this is the last event of its conversation."""
    if type(event) is Closed:
        over, backlog.closed = backlog.closed or event.reset, True
        return over
    return type(event) is Lost and event.length == 0
