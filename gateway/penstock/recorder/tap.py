"""Taps: what goes by on one TCP connection, as capture events, for whoever wants them.

A tap stands above TLS. It changes nothing: it never waits, never raises, and what it tells is told when the bytes have
been read, or taken by the kernel (over TLS: when they are given to TLS). Where nobody listens it costs an attribute test
and an addition for each read or write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Final, Protocol

import structlog
import trio

from penstock.recorder.sink import Sink
from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Noted, Opened, Sender, Side
from penstock_codecs.http import Buffer

__all__ = ["CONNECTION", "MOST_NOTES", "Tap", "Watcher", "note_use"]

log = structlog.get_logger()

MOST_NOTES: Final = 256
"""So many values are remembered of each key (route, stream, identity) for one connection."""
_SMALL: Final = 4096
"""Smaller parts of one write are told together."""


class Watcher(Protocol):
    """Whoever decides which sinks a tap has. No method waits."""

    def noted(self, tap: Tap) -> None:
        """Something new is known of a connection: what wants such connections may begin now."""

    def dropped(self, tap: Tap, sink: Sink) -> None:
        """A sink takes no more of a connection, for now."""

    def ended(self, tap: Tap) -> None:
        """The connection is gone; its sinks have been told."""


class Tap:
    """One connection. Which side is the client's is the conversation's to say: `received` is what our peer sent."""

    def __init__(self, conversation: Conversation, watcher: Watcher) -> None:
        self.conversation = conversation
        self.opened_ns = time.time_ns()
        self.received_bytes = 0
        """What the peer has sent so far."""
        self.sent_bytes = 0
        """What we have sent so far."""
        self.sinks: tuple[Sink, ...] = ()
        """Who wants to know."""
        self.over = False

    # ---- what goes by --------------------------------------------------------------------------------------------

    def received(self, data: Buffer) -> None:
        """The peer's bytes, which are copied if need be; b"": it has finished sending."""

    def sent(self, parts: Iterable[Buffer], size: int) -> None:
        """Our bytes: the first `size` of these parts, which do not change any more."""

    def finished(self) -> None:
        """We have finished sending."""

    def broken(self) -> None:
        """The connection is lost."""

    def unsure(self, why: str) -> None:
        """What was told last as sent may not have been: a write was broken off."""

    def end(self) -> None:
        """We close the connection: nothing more goes by. May be called more than once."""

    # ---- what is known -------------------------------------------------------------------------------------------

    def note(self, key: str, value: str) -> None:
        """The connection has to do with this `route`, `stream`, `identity` or `back`."""

    @property
    def notes(self) -> Mapping[str, Iterable[str]]:
        """What was noted, by key; at most MOST_NOTES of each."""

    # ---- who listens ---------------------------------------------------------------------------------------------

    def attach(self, sink: Sink, *, continued: bool = False) -> None:
        """From now on a sink is told: `Opened`, with the bytes so far as its offsets, then what is noted, then what
        goes by. `continued`: it has heard an earlier part."""

    def detach(self, sink: Sink) -> None:
        """The sink is told nothing more."""


CONNECTION: ContextVar[Tap | None] = ContextVar("penstock.connection", default=None)
"""The client's connection that the current task works for; None where the gateway works for itself."""


def note_use(route: str | None, stream: str, identity: str) -> None:
    """The current connection has to do with these: once per connection it is told to those who select by them."""
