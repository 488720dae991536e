"""The pipeline's plug-in: a client that Spark reads with."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from numbered_lines.codec import LinesCodec
from penstock_codecs.codec import Pull, Role
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import Columns
from penstock_spark.clients.base import ReadPosition, ReadResult
from penstock_spark.clients.plugin import ClientPlugin, Scheme

if TYPE_CHECKING:
    from penstock_spark.clients.endpoint import Endpoint

__all__ = ["PLUGIN", "LinesStreams"]

_FAR: Final = 10**17
_MOST: Final = 1000


class LinesStreams:
    """See `penstock_spark.clients.base.StreamClient`; only what the source needs."""

    indexed = True

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def require(self, stream: str) -> None:
        pass

    def first(self, _stream: str) -> ReadPosition:
        return ReadPosition(0)

    def tail(self, stream: str, _after: ReadPosition | None = None) -> ReadPosition:
        return ReadPosition(self._get(stream, _FAR, 1)[1])

    def advance(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        return ReadPosition(min(self.tail(stream).seq_num, start.seq_num + count))

    def identity(self, _stream: str, _mark: ReadPosition, _like: str = "") -> str:
        return ""

    def read(self, stream: str, start: ReadPosition, end: ReadPosition) -> Iterator[ReadResult]:
        at = start.seq_num
        while at < end.seq_num:
            rows, after = self._get(stream, at, min(_MOST, end.seq_num - at))
            numbers = [number for number, _ in rows]
            yield ReadResult(Columns(numbers, (), [body for _, body in rows], {}), ReadPosition(after))
            at = after

    def close(self) -> None:
        pass

    def _get(self, stream: str, first: int, most: int) -> tuple[list[tuple[int, bytes]], int]:
        codec, rows = LinesCodec(Role.CLIENT), []
        with socket.create_connection((self._endpoint.host, self._endpoint.port)) as connection:
            connection.sendall(b"GET %s %d %d\n" % (stream.encode(), first, most))
            while True:
                event = codec.next_event()
                if isinstance(event, Pull):
                    codec.receive(connection.recv(65_536))
                elif event[0] == b"ROW":
                    rows.append((int(event[1]), event[2]))
                elif event[0] == b"END":
                    return rows, int(event[1])
                else:
                    raise fail(FailureCode.STREAM_NOT_FOUND, event[1].decode())


PLUGIN: Final = ClientPlugin(open=LinesStreams, schemes={"lines": Scheme(7700)}, lists=False, basins=False)
