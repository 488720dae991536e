"""Body that has come in over HTTP and waits for whoever reads it, at a server or at a client."""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

__all__ = ["Inbox"]

_SMALL: Final = 4096
"""Smaller pieces are joined as they come: each would take 60 bytes of memory beside its own."""


_LARGE: Final = 64 * 1024
"""Pieces of this size are given one by one: joining some of 256 KiB costs more than another pass."""


class Inbox:
    """One task waits and takes. What is unread is bounded by the connection, which stops reading or gives no window."""

    __slots__ = ("_least", "_more", "_pieces", "ended", "unread")

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray] = deque()
        self._more: trio.Event | None = None
        self._least = 1
        self.ended = False
        """Whether nothing will come any more."""
        self.unread = 0
        """Bytes that wait."""

    def feed(self, data: bytes) -> bool:
        """A piece has come. Whether it wakes somebody."""
        pieces = self._pieces
        if pieces and len(data) < _SMALL and (type(pieces[-1]) is bytearray or len(pieces[-1]) < _SMALL):
            if type(pieces[-1]) is not bytearray:
                pieces[-1] = bytearray(pieces[-1])
            pieces[-1] += data
        else:
            pieces.append(data)
        self.unread += len(data)
        return self.unread >= self._least and self.wake()

    def end(self) -> None:
        """The body is complete."""
        self.ended = True
        self.wake()

    def wake(self) -> bool:
        """Something has changed that whoever waits must look at. Whether somebody waits."""
        if self._more is None:
            return False
        self._more.set()
        self._more = None
        return True

    async def wait(self, least: int = 1) -> None:
        """Wait until something changes, or `least` bytes wait. May be cancelled and called again."""
        if self._more is None:  # an event has no truth value
            self._more = trio.Event()
        self._least = least
        await self._more.wait()

    def take_all(self) -> list[bytes | bytearray]:
        """All pieces that wait."""
        pieces = list(self._pieces)
        self._pieces.clear()
        self.unread = 0
        return pieces

    def take(self) -> bytes:
        """What waits: the first piece, or all of them where that is small."""
        first = self._pieces.popleft()
        if len(first) < _LARGE and self._pieces:
            first = b"".join((first, *self._pieces))
            self._pieces.clear()
        data = first if isinstance(first, bytes) else bytes(first)
        self.unread -= len(data)
        return data
