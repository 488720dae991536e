"""A sink for tests of taps: a list of events, and what they say when put together."""

from __future__ import annotations

import trio

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Noted, Opened, Sender, Side
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import Tap
from penstock.observe.taps.tapped import TappedStream

__all__ = ["Heard", "taken", "tapped_front"]


class Heard:
    """A Sink that keeps all. `takes` False: it is full."""

    def __init__(self) -> None:
        self.events: list[CaptureEvent] = []
        self.takes = True
        self.generation = 1

    def put(self, event: CaptureEvent) -> bool:
        if self.takes:
            self.events.append(event)
        return self.takes

    def said(self, sender: Sender, tap: Tap | None = None) -> bytes:
        """A side's bytes, of one connection or the only one, which must be without gaps from where they begin."""
        said, end = b"", None
        for event in self._of(tap):
            if isinstance(event, Opened):
                end = event.client_offset if sender is Sender.CLIENT else event.server_offset
            if isinstance(event, Chunk) and event.sender is sender:
                assert event.offset == end, "bytes follow each other"
                said += event.data
                end += len(event.data)
        return said

    @property
    def ends(self) -> list[tuple[Sender, bool]]:
        """Sides that closed, in order, each with whether it was by a reset."""
        return [(event.sender, event.reset) for event in self.events if isinstance(event, Closed)]

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Keys and values of the notes, in order."""
        return [(event.key, event.value) for event in self.events if isinstance(event, Noted)]

    @property
    def opened(self) -> list[tuple[int, int, int, bool]]:
        """Each beginning: connection, both offsets, whether it goes on."""
        return [
            (event.conversation.number, event.client_offset, event.server_offset, event.continued)
            for event in self.events
            if isinstance(event, Opened)
        ]

    def _of(self, tap: Tap | None) -> list[CaptureEvent]:
        return [event for event in self.events if tap is None or event.conversation is tap.conversation]


def tapped_front(
    stream: trio.abc.Stream, heard: Heard | None = None, *, number: int = 1, connections: Connections | None = None
) -> TappedStream:
    """The server's end of a connection, with a tap to which `heard` listens."""
    tapped = (connections or Connections()).accepted(stream, number, "listeners.s2", "s2")
    assert tapped.tap.conversation.side is Side.FRONT
    if heard is not None:
        tapped.tap.attach(heard)
    return tapped


async def taken(stream: trio.abc.Stream) -> bytes:
    """Receive until the end, or until the connection is lost, and return the bytes."""
    got = b""
    try:
        async for data in stream:
            got += data
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    return got
