"""Streams in memory behind the face of a `StreamClient`: with sequence numbers as places (as S2), or with byte offsets
(as segments)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from uuid import UUID

from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import Columns, Headers
from penstock_spark.clients import ReadPosition, ReadResult

__all__ = ["FakeClient", "FakeServer"]

_FRAME = 7
"""Records of one `ReadResult`."""


@dataclass
class _Stream:
    bodies: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    first: int = 0
    """Index of the first record that is kept; indexes are what S2 calls sequence numbers."""

    def offset(self, index: int) -> int:
        return sum(len(body) + 8 for body in self.bodies[:index])

    def index(self, offset: int) -> int:
        return bisect_left(range(len(self.bodies) + 1), offset, key=self.offset)


class FakeServer:
    """State shared by the clients of one test. `read`: number of records delivered."""

    def __init__(self, *, indexed: bool = True) -> None:
        self.indexed = indexed
        self.streams: dict[str, _Stream] = {}
        self.read = 0
        self.open = 0

    def append(
        self, stream: str, bodies: Sequence[bytes], timestamps: Sequence[int] | None = None, headers: Any = None
    ) -> None:
        """Records, made and stamped by their number where nothing is said; makes the stream."""
        found = self.streams.setdefault(stream, _Stream())
        at = len(found.bodies)
        found.headers |= {at + index: some for index, some in (headers or {}).items()}
        found.bodies += bodies
        found.timestamps += timestamps or range(1000 + at, 1000 + at + len(bodies))

    def trim(self, stream: str, first: int) -> None:
        """Let go of the records before an index."""
        self.streams[stream].first = first

    def connect(self) -> FakeClient:
        """Return a client."""
        self.open += 1
        return FakeClient(self)


class FakeClient:
    """See `StreamClient`."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.indexed = server.indexed

    def _stream(self, name: str) -> _Stream:
        if name not in self._server.streams:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{name} is not there")
        return self._server.streams[name]

    def _mark(self, found: _Stream, index: int, origin: int = 0) -> ReadPosition:
        return ReadPosition(index) if self.indexed else ReadPosition(index - origin, str(found.offset(index)))

    def _index(self, found: _Stream, mark: ReadPosition) -> int:
        return mark.seq_num if self.indexed else found.index(int(mark.place))

    def streams(self, prefix: str = "") -> Iterator[str]:
        """See `StreamClient`."""
        return iter(sorted(name for name in self._server.streams if name.startswith(prefix)))

    def require(self, stream: str) -> None:
        """See `StreamClient`: reads make no streams here."""

    def first(self, stream: str) -> ReadPosition:
        """See `StreamClient`."""
        found = self._stream(stream)
        return self._mark(found, found.first, found.first)

    def tail(self, stream: str, after: ReadPosition | None = None) -> ReadPosition:
        """See `StreamClient`."""
        found = self._stream(stream)
        return self.advance(stream, after or self.first(stream), len(found.bodies))

    def identity(self, stream: str, mark: ReadPosition, like: str = "") -> str:
        """See `StreamClient`."""
        found = self._stream(stream)
        index = self._index(found, mark) - 1
        if not found.first <= index < len(found.bodies):
            return ""
        said = b"%d %s" % (found.timestamps[index] if self.indexed else 0, found.bodies[index])
        return blake2b(said, digest_size=12).hexdigest()

    def last_timestamp(self, stream: str) -> int | None:
        """See `StreamClient`."""
        return (self._stream(stream).timestamps or [None])[-1]

    def at_timestamp(self, stream: str, timestamp: int) -> ReadPosition:
        """See `StreamClient`."""
        found = self._stream(stream)
        index = max(found.first, bisect_left(found.timestamps, timestamp))
        return self._mark(found, index, found.first)

    def advance(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        """See `StreamClient`."""
        found = self._stream(stream)
        index = self._index(found, start)
        if not self.indexed and index < found.first:
            raise self._trimmed(found, start, index)
        if not self.indexed and int(start.place) > found.offset(len(found.bodies)):
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, "ends before that")
        end = min(index + count, len(found.bodies))
        return self._mark(found, end, index - start.seq_num)

    def _trimmed(self, found: _Stream, start: ReadPosition, index: int) -> Exception:
        first = self._mark(found, found.first, index - start.seq_num)
        return fail(FailureCode.RANGE_NOT_SATISFIABLE, "trimmed", first=first)

    def read(self, stream: str, start: ReadPosition, end: ReadPosition) -> Iterator[ReadResult]:
        """See `StreamClient`."""
        found = self._stream(stream)
        index = self._index(found, start)
        origin = index - start.seq_num
        if index < found.first:
            raise self._trimmed(found, start, index)
        stop = origin + end.seq_num
        there = min(stop, len(found.bodies))
        while index < there:
            upto = min(index + _FRAME, there)
            headers = {at - index: some for at, some in found.headers.items() if index <= at < upto}
            timestamps = found.timestamps[index:upto] if self.indexed else ()
            columns = Columns(range(index - origin, upto - origin), timestamps, found.bodies[index:upto], headers)
            self._server.read += upto - index
            index = upto
            yield ReadResult(columns, self._mark(found, index, origin))
        if there < stop:
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, "beyond", tail=self._mark(found, there, origin))

    def appender(self, stream: str) -> Any:
        """See `StreamClient`."""
        raise AssertionError("the source appends nothing")

    def numbered_appender(self, stream: str, writer: UUID) -> Any:
        """See `StreamClient`."""
        raise AssertionError("the source appends nothing")

    def create(self, stream: str, *, endless: bool = False) -> bool:
        """See `StreamClient`."""
        raise AssertionError("the source makes nothing")

    def delete(self, stream: str) -> None:
        """See `StreamClient`."""
        raise AssertionError("the source deletes nothing")

    def trim(self, stream: str, first: ReadPosition) -> None:
        """See `StreamClient`."""
        raise AssertionError("the source trims nothing")

    def close(self) -> None:
        """See `StreamClient`."""
        self._server.open -= 1
