"""A buffer for the body of an HTTP message, between the connection that receives it and the task that reads it."""

from __future__ import annotations

from typing import Final

import trio

from penstock.wire.http import Buffer

__all__ = ["BodyBuffer"]

_SMALL: Final = 4096
"""Bytes below which pieces are joined as they come: each would take 60 bytes of memory beside its own."""


_LARGE: Final = 64 * 1024
"""Bytes from which a piece is returned alone: joining pieces of 256 KiB costs more than another pass."""


class BodyBuffer:
    """A body that was received and not yet read. One task waits and takes.

    The connection bounds its size: it stops reading, or gives no flow-control window.
    """

    __slots__ = ("_least", "_more", "_pieces", "ended", "unread")

    def __init__(self) -> None:
        self._pieces: list[Buffer] = []  # few: an empty deque takes 600 bytes
        self._more: trio.Event | None = None
        self._least = 1
        self.ended = False
        """True once the body is complete."""
        self.unread = 0
        """Bytes that were received and not yet taken."""

    def feed(self, data: Buffer) -> bool:
        """Add a piece of the body. Return whether that woke the reader."""
        pieces = self._pieces
        last = pieces[-1] if pieces else None
        if last is not None and len(data) < _SMALL and (isinstance(last, bytearray) or len(last) < _SMALL):
            if not isinstance(last, bytearray):
                last = pieces[-1] = bytearray(last)
            last += data
        else:
            pieces.append(data)
        self.unread += len(data)
        return self.unread >= self._least and self.wake()

    def end(self) -> None:
        """Mark the body as complete, and wake the reader."""
        self.ended = True
        self.wake()

    def wake(self) -> bool:
        """Wake the waiting reader. Return whether there was one."""
        if self._more is None:
            return False
        self._more.set()
        self._more = None
        return True

    async def wait(self, least: int = 1) -> None:
        """Wait until the buffer is woken or holds `least` bytes. May be cancelled and called again."""
        if self._more is None:  # an event has no truth value
            self._more = trio.Event()
        self._least = least
        await self._more.wait()

    def take_all(self) -> list[Buffer]:
        """Remove and return all pieces."""
        pieces, self._pieces = self._pieces, []
        self.unread = 0
        return pieces

    def take(self) -> bytes:
        """Remove and return the first piece, joined with all others if it is small."""
        first = self._pieces.pop(0)
        if len(first) < _LARGE and self._pieces:
            first = b"".join((first, *self._pieces))
            self._pieces.clear()
        data = first if isinstance(first, bytes) else bytes(first)
        self.unread -= len(data)
        return data
