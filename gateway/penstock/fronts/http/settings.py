"""What an operator may set of an HTTP server, and how it is told to drain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from penstock_codecs.http import HttpLimits
from penstock_codecs.limits import KIB, MIB

__all__ = ["TURN_SECONDS", "WAKE_SECONDS", "Drain", "HttpSettings"]

TURN_SECONDS: Final = 0.00025
"""How long one connection may read before others have their turn: 256 KiB of the smallest frames take half a second."""
WAKE_SECONDS: Final = 0.00004
"""What a handler costs that is woken by a piece of its body, about, in the same pass: it counts as read."""


@dataclass(slots=True)
class HttpSettings:
    """Settings of a server. Times in seconds, sizes in bytes, all of one connection."""

    limits: HttpLimits = field(default_factory=HttpLimits)
    streams_before_auth: float = math.inf
    """HTTP/2: most requests at once before one was not refused for want of authentication."""
    keep_alive: float = 120.0
    """A connection without a request under way is closed after this."""
    head_timeout: float = 30.0
    """A request head, or the TLS handshake, must be complete this long after its first byte."""
    slow_reader: float = 60.0
    """The slow-reader rule: a connection whose socket took nothing for this long while something was to be written
    is dropped; an HTTP/2 stream that its client gave no window for this long is reset."""
    half_close: float = 1.0
    """A client that closed its sending side may still want the answer: its handler has this long to finish."""
    linger: float = 1.0
    """After the last byte the server waits this long for the client to close, lest a reset destroy the answer."""
    read_size: int = 256 * KIB
    """Most that is read at a time."""
    receive_buffer: int = 256 * KIB
    """HTTP/1.1: with this much unread request body, or pipelined requests, the socket is not read any further."""
    send_buffer: int = 1 * MIB
    """`send` waits while more than this is on its way."""
    max_unsent: int = 8 * MIB
    """HTTP/2: what all answers of a connection may hold while they wait for window. Beyond it `room` waits; so does a
    stream's `send`, until nothing of that stream is left."""


class Drain:
    """Tells all connections of a server to take no new requests. HTTP/1.1 answers carry `connection: close` from
    then on, HTTP/2 connections send GOAWAY; idle ones are closed; running exchanges go on."""

    def __init__(self) -> None:
        self._draining = False
        self._connections: set[Callable[[], None]] = set()

    @property
    def draining(self) -> bool:
        """Whether it has begun."""
        return self._draining

    def begin(self) -> None:
        """Begin. To be called from a task of the server's trio run; does not wait."""
        self._draining = True
        for notify in list(self._connections):
            notify()

    @contextmanager
    def watched_by(self, notify: Callable[[], None]) -> Iterator[None]:
        """While entered, `notify` is called when draining begins, or at once where it has begun."""
        self._connections.add(notify)
        try:
            if self._draining:
                notify()
            yield
        finally:
            self._connections.discard(notify)
