"""The resources that one HTTP connection uses, charged to its client's quota."""

from __future__ import annotations

from typing import Final

import trio

from penstock.model.limits import KIB
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import HeldBytes
from penstock.net.transport import Transport
from penstock.wire.http import HttpCodec

__all__ = ["ConnectionUsage", "TooNoisy"]

NOISE: Final = 2000
NOISE_PER_SECOND: Final = 100
NOISE_PER_REQUEST: Final = 16
BYTES_PER_NOISE: Final = 256
"""HTTP/2 frames without content (pings, settings, empty data, window for data that was not sent) that one connection
may send: initially, for each second, for each request (gRPC sends several), and one for so many bytes sent to it."""
LESS: Final = 10
"""Divisor of that allowance for a client that is slowed after an abuse."""
TIGHT_SEND: Final = 64 * KIB
"""Bytes that may be on their way to a client that is over its quota."""


class TooNoisy(Exception):
    """Raised when the client sends too many frames without content."""


class ConnectionUsage:
    """The usage of one connection, charged until `end`."""

    __slots__ = (
        "_bears",
        "_begun_at",
        "_codec",
        "_given",
        "_pending",
        "_received",
        "_requests",
        "_to_send",
        "_transport",
        "_unauthenticated_streams",
        "quota",
    )

    def __init__(self, transport: Transport, codec: HttpCodec, unauthenticated_streams: float) -> None:
        """Begin to charge. `unauthenticated_streams`: requests at once until one of the client is admitted."""
        self.quota = current_quota()
        self._unauthenticated_streams = unauthenticated_streams
        self._transport = transport
        self._codec = codec
        self._received = HeldBytes(self.quota)
        self._to_send = HeldBytes(self.quota)
        self._pending = self._given = self._requests = 0
        self._begun_at = trio.current_time()
        self._bears = NOISE // LESS if self.quota.slowed else NOISE

    def read(self, size: int, unread: int) -> float:
        """Record that `size` bytes were read and `unread` bytes of bodies are held. Return how long to pause reading,
        in seconds.

        Raises TooNoisy.
        """
        self._received.set(unread + self._codec.buffered)
        noise = self._codec.noise - self._bears - NOISE_PER_REQUEST * self._requests
        if noise > 0:
            seconds = trio.current_time() - self._begun_at
            if noise > seconds * NOISE_PER_SECOND + self._transport.written / BYTES_PER_NOISE:
                self.quota.limited("noise")
                raise TooNoisy("too many frames without effect")
        return self.quota.received(size)

    def written(self, parked: int) -> bool:
        """Record that output was written or added; `parked` bytes wait outside the codec. Return whether that is
        progress for tasks that wait to send.

        Otherwise a client of many streams without window could wake them all with each of its frames.
        """
        pending, given, held = self._transport.pending, self._codec.given, self._codec.held
        if pending + held + parked != self._to_send.size:
            self._to_send.set(pending + held + parked)
        moved = pending != self._pending or given != self._given
        self._pending, self._given = pending, given
        return moved

    def clogged(self, waiting: int, usual: int) -> bool:
        """Return whether `waiting` bytes exceed what may be on its way to the client: `usual`, less if the client is
        over its quota."""
        return waiting > 0 and waiting > (min(usual, TIGHT_SEND) if self.quota.crowded else usual)

    def begin(self, under_way: int) -> bool:
        """Count a request that begins beside `under_way` others. Return False if that is one too many."""
        if under_way >= self._unauthenticated_streams and not self.quota.authenticated:
            self.quota.limited("max_streams_before_auth")
            return False
        self.quota.busy = True
        self._requests += 1
        return True

    def rest(self, now: float) -> None:
        """Record that no request is in flight."""
        if self.quota.busy:
            self.quota.rest(now)

    def end(self) -> None:
        """Release all that is charged."""
        self._received.set(0)
        self._to_send.set(0)
        del self._codec
