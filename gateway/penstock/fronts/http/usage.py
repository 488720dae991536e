"""What one HTTP connection uses of what its client may use."""

from __future__ import annotations

from typing import Final

import trio

from penstock.limits import Holding, current_seat
from penstock.wire import Wire
from penstock_codecs.http import HttpCodec
from penstock_codecs.limits import KIB

__all__ = ["TooNoisy", "Usage"]

NOISE: Final = 2000
NOISE_PER_SECOND: Final = 100
NOISE_PER_REQUEST: Final = 16
BYTES_PER_NOISE: Final = 256
"""HTTP/2 frames that say nothing (pings, settings, empty data, window for what was not sent) which one connection may
send: at first, for each second, for each request (gRPC sends several), and one for so many bytes that it was sent."""
LESS: Final = 10
"""What part of that is borne of a client that has abused others a while ago."""
TIGHT_SEND: Final = 64 * KIB
"""What may be on its way to a client for whom there is no more room."""


class TooNoisy(Exception):
    """The client sends too many frames that say nothing."""


class Usage:
    """Of one connection. What it holds is charged until `end`."""

    def __init__(self, wire: Wire, codec: HttpCodec, strangers_streams: float) -> None:
        """`strangers_streams`: most requests at once before the client was let do something."""
        self.seat = current_seat()
        self._strangers_streams = strangers_streams
        self._wire = wire
        self._codec = codec
        self._received = Holding(self.seat)
        self._to_send = Holding(self.seat)
        self._pending = self._given = self._requests = 0
        self._begun_at = trio.current_time()
        self._bears = NOISE // LESS if self.seat.slowed else NOISE

    def read(self, size: int, unread: int) -> float:
        """So many bytes were read, and so much body is held; for how many seconds no more may be read.

        Raises TooNoisy.
        """
        self._received.set(unread + self._codec.buffered)
        noise = self._codec.noise - self._bears - NOISE_PER_REQUEST * self._requests
        if noise > 0:
            seconds = trio.current_time() - self._begun_at
            if noise > seconds * NOISE_PER_SECOND + self._wire.written / BYTES_PER_NOISE:
                self.seat.limited("noise")
                raise TooNoisy("too many frames that say nothing")
        return self.seat.received(size)

    def written(self) -> bool:
        """Something was written, or there is more to write; whether that is anything to those who wait to send.

        A client of many streams without window could else wake them all by each of its frames.
        """
        pending, given, held = self._wire.pending, self._codec.given, self._codec.held
        if pending + held != self._to_send.size:
            self._to_send.set(pending + held)
        moved = pending != self._pending or given != self._given
        self._pending, self._given = pending, given
        return moved

    def clogged(self, waiting: int, usual: int) -> bool:
        """Whether more waits than may be on its way to the client, which is as `usual` where there is room."""
        return waiting > 0 and waiting > (min(usual, TIGHT_SEND) if self.seat.crowded else usual)

    def begin(self, under_way: int) -> bool:
        """A request begins beside those that are under way; False where that is one too many."""
        if under_way >= self._strangers_streams and not self.seat.known:
            self.seat.limited("max_streams_before_auth")
            return False
        self.seat.busy = True
        self._requests += 1
        return True

    def rest(self) -> None:
        """No request is under way."""
        if self.seat.busy:
            self.seat.rest()

    def end(self) -> None:
        """Nothing is held any more."""
        self._received.set(0)
        self._to_send.set(0)
        del self._codec
