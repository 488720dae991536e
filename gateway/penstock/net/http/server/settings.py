"""Settings of an HTTP server."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from penstock.model.limits import KIB, MIB
from penstock.wire.http import HttpLimits

__all__ = ["TURN_SECONDS", "WAKE_SECONDS", "HttpSettings"]

TURN_SECONDS: Final = 0.00025
"""Seconds that one connection may process input before others have their turn: 256 KiB of the smallest frames take half
a second."""
WAKE_SECONDS: Final = 0.00004
"""Estimated cost, in seconds, of a handler that is woken by a piece of its body in the same pass; it counts towards the
turn."""


class HttpSettings(msgspec.Struct):
    """Settings of a server. Times in seconds, sizes in bytes, all of one connection."""

    limits: HttpLimits = msgspec.field(default_factory=HttpLimits)
    streams_before_auth: float = math.inf
    """HTTP/2: requests at once until the first one is authenticated."""
    keep_alive: float = 120.0
    """Time after which a connection without a request in flight is closed."""
    head_timeout: float = 30.0
    """Time limit for a request head, from its first byte, and for the TLS handshake."""
    slow_reader: float = 60.0
    """The slow-reader rule: a connection whose socket accepted nothing for this long while output was pending is
    dropped; an HTTP/2 stream whose client gave it no window for this long is reset."""
    half_close: float = 1.0
    """Time that a handler has to finish after its client closed the sending side: the client may still want the
    answer."""
    linger: float = 1.0
    """Time that the server waits after the last byte for the client to close, lest a reset destroy the answer."""
    read_size: int = 256 * KIB
    """Bytes read at a time, at most."""
    receive_buffer: int = 256 * KIB
    """HTTP/1.1: bytes of unread request body, or of pipelined requests, from which the socket is not read."""
    send_buffer: int = 1 * MIB
    """Bytes on their way above which `send` waits."""
    max_unsent: int = 8 * MIB
    """HTTP/2: bytes that all responses of a connection may hold while they wait for window. Above it `room` waits, and
    so does a stream's `send`, until nothing of that stream is left."""
