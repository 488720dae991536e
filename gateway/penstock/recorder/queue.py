"""From the trio thread to a recording's own: events in their order, in bounded bytes.

The trio thread never waits: the lock is held for a few us by either side. Where there is no room, conversations are
given up, those with most waiting first: what waits of them goes, so that the others go on, and a `Lost` says so.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Opened, Sender
from penstock_codecs.limits import MIB

__all__ = ["BATCH_BYTES", "EVENT_BYTES", "Drops", "EventQueue"]

EVENT_BYTES: Final = 320
"""What an event takes beside its data: 200 bytes were measured with CPython 3.11, and 180 more where data are a
memoryview."""
BATCH_BYTES: Final = 1 * MIB
"""So much is taken at once, and is worth getting up for. Of chunks of 128 bytes a batch holds Python's lock for 5 ms,
2.5 us each; of chunks of 512 KiB for 0.1 ms. Of these the thread took 400 to 440 us of processor time per MB on a busy
machine of two cores, most of it the kernel's; with 256 KiB it was 490 to 510, with 4 MiB 610 to 770, in turns."""
_MARGIN: Final = 64
"""One part of so many is made free at once, so that the search for the largest is rare: it took 1 ms where 10,000
conversations had something waiting. Otherwise `put` takes 0.9 us."""
_LESS: Final = 8
"""So much less is held while processors are short: what is held for long is out of their caches when it is written,
and what is read meanwhile takes other memory."""
_STALE: Final = 4096
"""So many places of events that are gone may stay in the order, or as many as there are others."""


class _Lane:
    """What waits of one conversation."""

    __slots__ = ("closed", "conversation", "end", "events", "given_up", "sender", "waiting")

    def __init__(self, event: Opened) -> None:
        self.conversation = event.conversation
        # Made when there is something: an empty deque takes 0.6 KiB, and most connections have nothing waiting.
        self.events: deque[CaptureEvent] | None = None
        self.waiting = 0
        self.sender = Sender.CLIENT  # of the last chunk, and where that ended
        self.end = event.client_offset
        self.closed = False  # by one side
        self.given_up = False


@dataclass(slots=True)
class Drops:
    """Conversations that were given up, and how much was waiting of them."""

    conversations: int = 0
    bytes: int = 0


class EventQueue:
    """`put` is for the trio thread, `wait`, `take` and what follows for the recording's; `hurry` for all.

    `limit`: bytes, with those of the batch that is being written. Admits nothing before the first `admit`.
    """

    def __init__(self, limit: int) -> None:
        self.generation = 0
        """As `Sink.generation`."""
        self.conversations = 0
        """How many were begun."""
        self.drops = Drops()
        """In all; also those that were suspended."""
        self._full_limit = self._limit = limit
        self._lock = threading.Lock()
        self._lanes: dict[Conversation, _Lane] = {}
        self._order: deque[_Lane] = deque()  # one place for each event, and some of events that are gone
        self._loaded: set[_Lane] = set()  # that could be given up
        self._held = self._queued = self._taken = self._events = 0
        self._admits = False
        self._some = threading.Event()
        self._plenty = threading.Event()

    @property
    def held(self) -> int:
        """Bytes that wait or are being written."""
        return self._held

    # ---- the trio thread -----------------------------------------------------------------------------------------

    def put(self, event: CaptureEvent) -> bool:
        """Take it, as `Sink.put` says."""
        size = _size(event)
        with self._lock:
            lane = self._lanes.get(event.conversation)
            if lane is None:
                if not self._admits or type(event) is not Opened:
                    return False
                lane = _Lane(event)
                if self._held + size > self._limit and not self._make_room(event, lane, size):
                    return False
                self._lanes[event.conversation] = lane
                self.conversations += 1
            elif self._held + size > self._limit and not self._make_room(event, lane, size):
                return False
            self._append(lane, event, size)
            if type(event) is Chunk:
                lane.sender = event.sender
                lane.end = event.offset + len(event.data)
                if self._queued >= BATCH_BYTES:
                    self._plenty.set()
            elif _ends(event, lane):
                del self._lanes[event.conversation]
        return True

    def _append(self, lane: _Lane, event: CaptureEvent, size: int) -> None:
        if lane.events is None:
            lane.events = deque()
            if not lane.given_up:
                self._loaded.add(lane)
        lane.events.append(event)
        lane.waiting += size
        self._order.append(lane)
        self._held += size
        self._queued += size
        self._events += 1
        if self._events == 1:
            self._some.set()

    # ---- no room -------------------------------------------------------------------------------------------------

    def _make_room(self, event: CaptureEvent, own: _Lane, size: int) -> bool:
        """Give up others, or the event's own conversation. Gives whether the event can be taken."""
        goal = self._limit - max(size, self._limit // _MARGIN)
        for lane in sorted(self._loaded, key=attrgetter("waiting"), reverse=True):
            if self._held <= goal:
                break
            self._give_up(lane, event)
        if self._held + size > self._limit and self._lanes.get(event.conversation) is own:
            self._give_up(own, event)  # it had nothing waiting, and there is no room for this all the same
        if len(self._order) > max(_STALE, 2 * self._events):
            self._forget_places()
        return not own.given_up and self._held + size <= self._limit

    def _give_up(self, lane: _Lane, now: CaptureEvent) -> None:
        """Its beginning stays if that still waits, so that it can be seen that there was something."""
        events: deque[CaptureEvent] = lane.events or deque()
        self.drops.conversations += 1
        self.drops.bytes += sum(len(event.data) for event in events if type(event) is Chunk)
        self._held -= lane.waiting
        self._queued -= lane.waiting
        self._events -= len(events)
        lane.events, lane.waiting, lane.given_up = None, 0, True
        self._loaded.discard(lane)
        if self._lanes.get(lane.conversation) is lane:
            del self._lanes[lane.conversation]
        for event in events:
            if type(event) is Opened:
                self._append(lane, event, EVENT_BYTES)
        first = next((event for event in events if type(event) is Chunk), None)
        sender, offset = (first.sender, first.offset) if first else (lane.sender, lane.end)
        lost = Lost(lane.conversation, now.time_ns, sender, offset, 0, "the recording did not follow")
        self._append(lane, lost, EVENT_BYTES)

    def _forget_places(self) -> None:
        left = {lane: len(lane.events or ()) for lane in self._order}
        order: deque[_Lane] = deque()
        for lane in self._order:
            if left[lane]:
                left[lane] -= 1
                order.append(lane)
        self._order = order

    # ---- the recording's thread ----------------------------------------------------------------------------------

    def wait(self, idle: float | None, gather: float) -> None:
        """Until something waits, for `idle` seconds at the most; then until a batch does, for `gather` seconds."""
        if self._some.wait(idle):
            self._plenty.wait(gather)
        with self._lock:
            if self._queued < BATCH_BYTES:
                self._plenty.clear()
            if not self._events:
                self._some.clear()

    def hold_less(self, less: bool) -> None:
        """While its thread may not do as much as it could, conversations are given up sooner: what they say would not
        be written in time anyway, and memory that is kept for long costs traffic more than memory that is used again
        at once."""
        self._limit = self._full_limit // _LESS if less else self._full_limit

    def hurry(self) -> None:
        """Whoever is in `wait`, or comes there next, returns at once."""
        self._plenty.set()
        self._some.set()

    def take(self) -> list[CaptureEvent]:
        """The next batch, of BATCH_BYTES or a little more; empty: nothing waits. `written` is to be called then."""
        batch: list[CaptureEvent] = []
        size = 0
        with self._lock:
            while self._order and size < BATCH_BYTES:
                lane = self._order.popleft()
                if not lane.events:
                    continue  # the place of one that is gone
                event = lane.events.popleft()
                cost = _size(event)
                lane.waiting -= cost
                if not lane.events:
                    lane.events = None
                    self._loaded.discard(lane)
                size += cost
                batch.append(event)
            self._events -= len(batch)
            self._queued -= size
            self._taken = size
        return batch

    def written(self) -> None:
        """The batch that was taken takes no room any more."""
        with self._lock:
            self._held -= self._taken
            self._taken = 0

    def admit(self) -> None:
        """A file begins: `generation` grows, and conversations may be begun."""
        with self._lock:
            self._admits = True
            self.generation += 1

    def suspend(self) -> int:
        """Give up all conversations and all that waits, and admit nothing. Gives how many there were."""
        with self._lock:
            dropped = len(self._lanes)
            self.drops.conversations += dropped
            self._clear()
        return dropped

    def close(self) -> None:
        """Nothing is wanted any more."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._admits = False
        self._lanes.clear()
        self._order.clear()
        self._loaded.clear()
        self._held = self._queued = self._taken = self._events = 0


def _size(event: CaptureEvent) -> int:
    return EVENT_BYTES + len(event.data) if type(event) is Chunk else EVENT_BYTES


def _ends(event: CaptureEvent, lane: _Lane) -> bool:
    """Whether nothing follows of its conversation."""
    if type(event) is Closed:
        over, lane.closed = lane.closed or event.reset, True
        return over
    return type(event) is Lost and event.length == 0
