"""What connections said before it was known whether a recording wants them."""

from __future__ import annotations

from collections import OrderedDict, deque
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
    """All connections that are held back. Beyond the bounds the oldest bytes go: of the connection itself, or all of
    the one that has something held for the longest time."""

    def __init__(self, most_of_one: int = MOST_OF_ONE, most_of_all: int = MOST_OF_ALL) -> None:
        self.most_of_one = most_of_one
        self.most_of_all = most_of_all
        self.bytes = 0
        """How much is held."""
        # Those that hold something: with 10,000 connections a search among all took 0.2 ms for each piece.
        self._held: OrderedDict[HeldBack, None] = OrderedDict()

    def begin(self) -> HeldBack:
        """One more connection."""
        return HeldBack(self)

    def holds(self, one: HeldBack) -> None:
        """A connection has something from now on."""
        self._held[one] = None

    def grown(self, size: int) -> None:
        """So much more is held."""
        self.bytes += size
        while self.bytes > self.most_of_all:
            next(iter(self._held)).shorten(0)

    def freed(self, one: HeldBack, size: int, *, empty: bool) -> None:
        """So much less is held of a connection, or nothing any more."""
        self.bytes -= size
        if empty:
            self._held.pop(one, None)


class HeldBack:
    """A Sink that keeps the last bytes of one connection, for other sinks."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._opened: Opened | None = None
        self._rest: deque[Chunk] = deque()
        self._bytes = 0
        self._ends: dict[Sender, int] = {}  # of each side: where what was let go ended
        self._since_ns = 0  # when the last of that was said

    @property
    def generation(self) -> int:
        """See `Sink`."""
        return 0

    def put(self, event: CaptureEvent) -> bool:
        """See `Sink`. What is noted, and who has finished, is the tap's to tell."""
        if isinstance(event, Opened):
            self._opened = event
        elif isinstance(event, Chunk):
            if not self._rest:
                self._holding.holds(self)
            self._rest.append(event)
            size = _EACH + len(event.data)
            self._bytes += size
            self._holding.grown(size)
            self.shorten(self._holding.most_of_one)
        return True

    @property
    def events(self) -> Sequence[CaptureEvent]:
        """What a sink is told that wants the connection after all, from `Opened` to now."""
        opened = self._opened
        if opened is None:
            return ()
        if self._ends:
            client = self._ends.get(Sender.CLIENT, opened.client_offset)
            server = self._ends.get(Sender.SERVER, opened.server_offset)
            opened = replace(opened, time_ns=self._since_ns, client_offset=client, server_offset=server)
        return (opened, *self._rest)

    def shorten(self, most: int) -> None:
        """Let the oldest go, until no more than so many bytes are held."""
        before = self._bytes
        while self._bytes > most:
            event = self._rest.popleft()
            self._bytes -= _EACH + len(event.data)
            self._ends[event.sender] = event.offset + len(event.data)
            self._since_ns = event.time_ns
        if self._bytes < before:
            self._holding.freed(self, before - self._bytes, empty=not self._rest)

    def end(self) -> None:
        """Hold nothing any more."""
        self.shorten(0)
