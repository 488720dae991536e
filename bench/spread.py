"""Connections that append single records to many streams in turn, per protocol."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import wire
from lanes import S3P, Lane, Redis, S2SOverHttp2

__all__ = ["SPREAD"]


class _Spread(Lane):
    """Appends one record to each stream in turn, over and over."""

    def __init__(self, port: int, streams: Sequence[str], body: bytes) -> None:
        self._streams = streams
        super().__init__(port, streams[0], body, 1)
        self.blocks = itertools.cycle(self.appends(body))

    def appends(self, body: bytes) -> list[bytes]:
        """The bytes of one append to each stream."""
        raise NotImplementedError


class SpreadS3P(_Spread, S3P):
    def appends(self, body: bytes) -> list[bytes]:
        return [wire.resp(b"APPEND", stream.encode(), (), [body]) for stream in self._streams]


class SpreadRedis(_Spread, Redis):
    def appends(self, body: bytes) -> list[bytes]:
        return [wire.xadd(stream, body, 1) for stream in self._streams]


class SpreadS2S(_Spread, S2SOverHttp2):
    """A session for each stream, all on one connection.

    Only the connection's window is kept account of: what a session has in flight is far below its own.
    """

    def open(self) -> None:
        super().open()
        del self._windows[1]

    def streams(self) -> Sequence[str]:
        return self._streams

    def appends(self, body: bytes) -> list[bytes]:
        frame = wire.append_frame(body, 1)
        return [wire.h2_frame(0x0, 0, 2 * index + 1, frame) for index in range(len(self._streams))]


SPREAD: dict[str, type[_Spread]] = {"S2S h2": SpreadS2S, "S3P": SpreadS3P, "redis": SpreadRedis}
