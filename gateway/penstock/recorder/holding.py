"""What connections said before it was known whether a recording wants them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock_codecs.capture import CaptureEvent, Chunk, Opened, Sender
from penstock_codecs.limits import KIB, MIB

__all__ = ["MOST_OF_ALL", "MOST_OF_ONE", "HeldBack", "Holding"]

MOST_OF_ONE: Final = 256 * KIB
"""How much is held back of one connection."""
MOST_OF_ALL: Final = 16 * MIB
"""How much is held back of all connections."""
_EACH: Final = 200
"""What an event takes besides its bytes, about."""


class Holding:
    """All connections that are held back. Beyond the bounds the oldest bytes go: of the connection itself, or of the
    one that was held first."""

    def __init__(self, most_of_one: int = MOST_OF_ONE, most_of_all: int = MOST_OF_ALL) -> None:
        self.most_of_one = most_of_one
        self.most_of_all = most_of_all
        self.bytes = 0
        """How much is held."""
        self._held: dict[HeldBack, None] = {}

    def begin(self) -> HeldBack:
        """One more connection."""
        one = HeldBack(self)
        self._held[one] = None
        return one

    def grown(self) -> None:
        """Some more is held."""
        for one in self._held:
            if self.bytes <= self.most_of_all:
                return
            one.shorten(0)

    def ended(self, one: HeldBack) -> None:
        """A connection is held back no longer."""
        self._held.pop(one, None)


class HeldBack:
    """A Sink that keeps the last bytes of one connection, for other sinks."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._opened: Opened | None = None
        self._rest: deque[Chunk] = deque()
        self._bytes = 0

    @property
    def generation(self) -> int:
        """See `Sink`."""
        return 0

    def put(self, event: CaptureEvent) -> bool:
        """See `Sink`. What is noted, and who has finished, is the tap's to tell."""
        if isinstance(event, Opened):
            self._opened = event
        elif isinstance(event, Chunk):
            self._rest.append(event)
            self._count(_EACH + len(event.data))
            self.shorten(self._holding.most_of_one)
            self._holding.grown()
        return True

    @property
    def events(self) -> Sequence[CaptureEvent]:
        """What a sink is told that wants the connection after all, from `Opened` to now."""
        return () if self._opened is None else (self._opened, *self._rest)

    def shorten(self, most: int) -> None:
        """Let the oldest go, until no more than so many bytes are held."""
        while self._bytes > most:
            event = self._rest.popleft()
            self._count(-_EACH - len(event.data))
            if self._opened is not None:
                end = event.offset + len(event.data)
                if event.sender is Sender.CLIENT:
                    self._opened = replace(self._opened, time_ns=event.time_ns, client_offset=end)
                else:
                    self._opened = replace(self._opened, time_ns=event.time_ns, server_offset=end)

    def end(self) -> None:
        """Hold nothing any more."""
        self.shorten(0)
        self._holding.ended(self)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._holding.bytes += size
