"""The order of a replay: the turns of all conversations, and the bound on reading ahead in the capture.

There is no deadlock: an item waits only for items before it in the capture, which were read before, and the first
unplayed item waits only for the server, with a deadline. So the reader may simply wait when it is too far ahead.
"""

from __future__ import annotations

from typing import Final

import trio

from penstock_codecs.limits import MIB

__all__ = ["READ_AHEAD_BYTES", "PlaybackBuffer", "RequestsInFlight", "Turns"]

READ_AHEAD_BYTES: Final = 32 * MIB
"""Bytes of a capture, of all conversations, that may wait to be played. A larger message is read alone."""


MAX_IN_FLIGHT: Final = 10_000
"""Most recorded requests without an answer that are remembered."""


class Turns:
    """Turns of items, which are numbered in the order of the capture: an item has its turn when all before it are done.

    With `together` False every item has its turn at once: a conversation then waits only for its own server.
    """

    def __init__(self, together: bool = True) -> None:
        self._together = together
        self._next = 0
        self._first = 0  # the first one that is not done
        self._done: set[int] = set()  # those after the first
        self._waiting: dict[int, trio.Event] = {}

    def take(self) -> int:
        """Return the number of the next item."""
        self._next += 1
        return self._next - 1

    async def wait(self, place: int) -> None:
        """Wait until this item has its turn."""
        if self._together and place > self._first:
            await self._waiting.setdefault(place, trio.Event()).wait()

    def done(self, place: int) -> None:
        """Mark an item as done, whether or not it was played."""
        if not self._together:
            return
        self._done.add(place)
        while self._first in self._done:
            self._done.discard(self._first)
            self._first += 1
            event = self._waiting.pop(self._first, None)
            if event is not None:
                event.set()


class RequestsInFlight:
    """The recorded requests that wait for an answer, of all conversations, and which of them were alone from their
    beginning to their answer: the answer to a read depends on an append that was in flight at the same time. Of more
    than MAX_IN_FLIGHT the oldest are forgotten."""

    def __init__(self) -> None:
        self._begun = 0
        self._open: dict[tuple[object, int], tuple[int, bool]] = {}  # how many had begun, and whether none was open

    def begin(self, conversation: object, exchange: int) -> None:
        """Note a request."""
        self._begun += 1
        self._open[conversation, exchange] = self._begun, not self._open
        if len(self._open) > MAX_IN_FLIGHT:
            del self._open[next(iter(self._open))]

    def is_alone(self, conversation: object, exchange: int | None) -> bool:
        """Return whether a request has been alone until now."""
        begun, alone = (0, False) if exchange is None else self._open.get((conversation, exchange), (0, False))
        return alone and begun == self._begun

    def end(self, conversation: object, exchange: int | None) -> None:
        """Note that a request is answered; None: all requests of the conversation."""
        if exchange is not None:
            self._open.pop((conversation, exchange), None)
            return
        for key in [key for key in self._open if key[0] is conversation]:
            del self._open[key]


class PlaybackBuffer:
    """The bytes that were read and not yet played, bounded."""

    def __init__(self, most: int = READ_AHEAD_BYTES) -> None:
        self._most = most
        self._held = 0
        self._room = trio.lowlevel.ParkingLot()

    async def take(self, size: int) -> None:
        """Wait until there is room for `size` more bytes, and take it."""
        while self._held and self._held + size > self._most:
            await self._room.park()
        self._held += size

    def give_back(self, size: int) -> None:
        """Release `size` bytes that were played."""
        self._held -= size
        self._room.unpark_all()
