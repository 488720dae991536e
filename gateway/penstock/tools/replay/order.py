"""The order of a replay: the turns of all conversations, and the bound on reading ahead in the capture.

There is no deadlock: an item waits only for items before it in the capture, which were read before, and the first
unplayed item waits only for the server, with a deadline. So the reader may simply wait when it is too far ahead.
"""

from __future__ import annotations

from typing import Final

import trio

from penstock_codecs.limits import MIB

__all__ = ["READ_AHEAD_BYTES", "PlaybackBuffer", "Turns"]

READ_AHEAD_BYTES: Final = 32 * MIB
"""Bytes of a capture, of all conversations, that may wait to be played. A larger message is read alone."""


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
