"""The order of a replay: whose turn it is among all conversations, and how far the capture is read ahead.

Why nothing can wait for ever: what an item waits for stands before it in the capture, so it was read before, and the
first item that is not played waits for nothing but the server, for which there is a deadline. So the reader may simply
wait where it is too far ahead.
"""

from __future__ import annotations

from typing import Final

import trio

from penstock_codecs.limits import MIB

__all__ = ["READ_AHEAD_BYTES", "ReadAhead", "Turns"]

READ_AHEAD_BYTES: Final = 32 * MIB
"""So much of a capture, of all conversations, waits to be played. Larger messages go alone."""


class Turns:
    """Items are numbered in the order of the capture; each has its turn when all before it are done.

    With `together` False every item has its turn at once: conversations then wait for nobody but their own server.
    """

    def __init__(self, together: bool = True) -> None:
        self._together = together
        self._next = 0
        self._first = 0  # that is not done
        self._done: set[int] = set()  # behind the first
        self._waiting: dict[int, trio.Event] = {}

    def take(self) -> int:
        """The number of the next item."""
        self._next += 1
        return self._next - 1

    async def wait(self, place: int) -> None:
        """Wait until this item has its turn."""
        if self._together and place > self._first:
            await self._waiting.setdefault(place, trio.Event()).wait()

    def done(self, place: int) -> None:
        """The item is done with, played or not."""
        if not self._together:
            return
        self._done.add(place)
        while self._first in self._done:
            self._done.discard(self._first)
            self._first += 1
            event = self._waiting.pop(self._first, None)
            if event is not None:
                event.set()


class ReadAhead:
    """What is read and not yet played, in bytes."""

    def __init__(self, most: int = READ_AHEAD_BYTES) -> None:
        self._most = most
        self._held = 0
        self._room = trio.lowlevel.ParkingLot()

    async def take(self, size: int) -> None:
        """Wait until there is room for so many more bytes."""
        while self._held and self._held + size > self._most:
            await self._room.park()
        self._held += size

    def give_back(self, size: int) -> None:
        """So many bytes are played."""
        self._held -= size
        self._room.unpark_all()
