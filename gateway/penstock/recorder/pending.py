"""Buffers of connections for which it is not known yet whether a recording wants them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from penstock.capture.pcapng import CaptureEvent, Chunk, Joined, Opened, Sender
from penstock.model.limits import KIB, MIB
from penstock.observe.taps.sink import Sink

__all__ = ["MOST_OF_ALL", "MOST_OF_ONE", "PendingConnections", "PendingSink"]

MOST_OF_ONE: Final = 256 * KIB
"""Maximum number of bytes held back per connection."""
MOST_OF_ALL: Final = 16 * MIB
"""Maximum number of bytes held back of all connections."""
_EACH: Final = 200
"""Approximate size of an event besides its data, in bytes."""


class PendingConnections:
    """All connections that are held back. Beyond the bounds the oldest bytes are dropped: of the connection itself, or
    all of the connection that has held bytes for the longest time."""

    def __init__(self, most_of_one: int = MOST_OF_ONE, most_of_all: int = MOST_OF_ALL) -> None:
        self.most_of_one = most_of_one
        self.most_of_all = most_of_all
        self.bytes = 0
        """Bytes held back."""
        # Only connections with held bytes: with 10,000 connections a search among all took 0.2 ms per piece.
        self._held: OrderedDict[PendingSink, None] = OrderedDict()

    def begin(self) -> PendingSink:
        """Begin to hold back one more connection."""
        return PendingSink(self)

    def holds(self, sink: PendingSink) -> None:
        """Note that a connection begins to hold bytes."""
        self._held[sink] = None

    def grown(self, size: int) -> None:
        """Count `size` more bytes; drops the oldest connections' bytes beyond the bound."""
        self.bytes += size
        while self.bytes > self.most_of_all:
            next(iter(self._held)).shorten(0)

    def freed(self, sink: PendingSink, size: int, *, empty: bool) -> None:
        """Count `size` bytes less of a connection. `empty`: it holds no more bytes."""
        self.bytes -= size
        if empty:
            self._held.pop(sink, None)


class PendingSink(Sink):
    """A Sink that keeps the last bytes of one connection for other sinks."""

    def __init__(self, holding: PendingConnections) -> None:
        self._holding = holding
        self._opened: Opened | None = None
        self._joined: Joined | None = None
        self._rest: deque[Chunk] = deque()
        self._bytes = 0
        self._ends: dict[Sender, int] = {}  # of each sender: the offset after its last dropped byte
        self._since_ns = 0  # the time of the last dropped chunk

    @property
    def generation(self) -> int:
        return 0

    def put(self, event: CaptureEvent) -> bool:
        """See `Sink`. Notes and ends of connections are ignored: the tap reports them."""
        if isinstance(event, Opened):
            self._opened, self._joined = event, None
        elif isinstance(event, Joined):
            self._joined = event
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
    def whole(self) -> bool:
        """True if nothing was dropped since the connection was opened."""
        return not self._ends

    @property
    def events(self) -> Sequence[CaptureEvent]:
        """The events for a sink that joins now, beginning with `Opened`."""
        opened = self._opened
        if opened is None:
            return ()
        if self._ends:
            client = self._ends.get(Sender.CLIENT, opened.client_offset)
            server = self._ends.get(Sender.SERVER, opened.server_offset)
            opened = replace(opened, time_ns=self._since_ns, client_offset=client, server_offset=server)
        elif self._joined is not None:
            return (opened, self._joined, *self._rest)
        return (opened, *self._rest)

    def shorten(self, most: int) -> None:
        """Drop the oldest chunks until at most `most` bytes are held."""
        before = self._bytes
        while self._bytes > most:
            event = self._rest.popleft()
            self._bytes -= _EACH + len(event.data)
            self._ends[event.sender] = event.offset + len(event.data)
            self._since_ns = event.time_ns
        if self._bytes < before:
            self._holding.freed(self, before - self._bytes, empty=not self._rest)

    def end(self) -> None:
        """Drop everything."""
        self.shorten(0)
