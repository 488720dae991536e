"""State of an HTTP/2 stream beyond h2's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.wire.http.events import Buffer, HttpHeaders, RequestHead, ResponseHead

__all__ = ["H2Stream"]

_KEEP_FROM: Final = 32 * 1024
"""Parts of at least this many bytes are not copied, since readers of one batch share them: one more frame costs 10
us."""


class H2Stream:
    """One exchange: its progress, and the body waiting to be sent."""

    __slots__ = (
        "_begun",
        "answered",
        "bodiless",
        "ending",
        "expects",
        "method",
        "peer_done",
        "received_trailers",
        "request",
        "response",
        "shut",
        "trailers",
        "unsent",
        "unsent_bytes",
    )

    def __init__(self, method: str, request: RequestHead | None = None) -> None:
        self.method = method
        self.request = request
        self.response: ResponseHead | None = None
        self.unsent: deque[Buffer] | None = None  # while there is any: an empty one takes 760 bytes
        self.unsent_bytes = 0
        self.shut = False
        """True while body waits for flow-control window, and therefore takes no turns."""
        self._begun = 0  # bytes of the first unsent part that were sent
        self.ending = False
        self.trailers: Sequence[tuple[bytes, bytes]] = ()  # to send after the body
        self.received_trailers: HttpHeaders = ()
        self.answered = False
        self.peer_done = False
        self.bodiless = False
        self.expects = False

    @property
    def streams(self) -> bool:
        """True while more body may be sent, and nothing of it waits."""
        return self.answered and not (self.ending or self.bodiless or self.unsent)

    def queue(self, parts: Sequence[Buffer]) -> int:
        """Queue body to send; return its size in bytes. Small parts are joined, as each would make a frame."""
        small: list[Buffer] = []
        size = 0
        for part in parts:
            size += len(part)
            if len(part) < _KEEP_FROM:
                small.append(part)
            else:
                self._add(small)
                small = []
                self._append(part)
        self._add(small)
        self.unsent_bytes += size
        return size

    def next_piece(self, most: int) -> Buffer:
        """Take the beginning of the unsent body, at most `most` bytes. There must be some."""
        assert self.unsent is not None, "some is unsent"
        piece = self.unsent.popleft()
        if len(piece) > most:
            whole = memoryview(piece)
            self.unsent.appendleft(whole[most:])
            piece = whole[:most]
            self._begun += most
        else:
            self._begun = 0
        self.unsent_bytes -= len(piece)
        if not self.unsent:
            self.unsent = None
        return piece

    @property
    def held(self) -> int:
        """Bytes of body in memory: a part stays until its last byte was sent."""
        return self.unsent_bytes + self._begun

    def _add(self, small: list[Buffer]) -> None:
        piece = small[0] if len(small) == 1 else b"".join(small)
        if piece:
            self._append(piece)

    def _append(self, piece: Buffer) -> None:
        if self.unsent is None:
            self.unsent = deque()
        self.unsent.append(piece)
