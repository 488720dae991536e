"""What one side of an HTTP/2 connection remembers of a stream beside h2's own state."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock_codecs.http.events import Buffer, Headers

__all__ = ["Stream"]

_KEEP_FROM: Final = 32 * 1024
"""Parts of this size stay as they are, since readers of one batch share them: a frame more costs 10 us."""


class Stream:
    """One exchange: how far it has come, and the body that waits to be sent."""

    __slots__ = (
        "_begun",
        "answered",
        "bodiless",
        "ending",
        "expects",
        "heard_trailers",
        "method",
        "peer_done",
        "trailers",
        "unsent",
        "unsent_bytes",
    )

    def __init__(self, method: str) -> None:
        self.method = method
        self.unsent: deque[Buffer] = deque()
        self.unsent_bytes = 0
        self._begun = 0  # bytes of the first unsent part that were sent
        self.ending = False
        self.trailers: Sequence[tuple[bytes, bytes]] = ()  # to send after the body
        self.heard_trailers: Headers = ()
        self.answered = False
        self.peer_done = False
        self.bodiless = False
        self.expects = False

    def queue(self, parts: Sequence[Buffer]) -> int:
        """Add body to what is unsent; how many bytes. Small parts become one, which would make a frame each."""
        small: list[Buffer] = []
        size = 0
        for part in parts:
            size += len(part)
            if len(part) < _KEEP_FROM:
                small.append(part)
            else:
                self._add(small)
                small = []
                self.unsent.append(part)
        self._add(small)
        self.unsent_bytes += size
        return size

    def next_piece(self, most: int) -> Buffer:
        """Take the first of what is unsent, at most so many bytes."""
        piece = self.unsent.popleft()
        if len(piece) > most:
            whole = memoryview(piece)
            self.unsent.appendleft(whole[most:])
            piece = whole[:most]
            self._begun += most
        else:
            self._begun = 0
        self.unsent_bytes -= len(piece)
        return piece

    @property
    def held(self) -> int:
        """Bytes of body in memory: a part is there until its last byte has gone."""
        return self.unsent_bytes + self._begun

    def _add(self, small: list[Buffer]) -> None:
        piece = small[0] if len(small) == 1 else b"".join(small)
        if piece:
            self.unsent.append(piece)
