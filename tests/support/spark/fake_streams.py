"""Streams in memory behind the face of a `StreamClient`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from penstock.model.failures import FailureCode, fail
from penstock.model.records import Columns, Headers, RecordBatch

__all__ = ["FakeClient", "FakeServer"]

_FRAME = 7
"""Records of one batch."""


@dataclass
class _Stream:
    bodies: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    first: int = 0
    """Number of the first record that is kept."""


class FakeServer:
    """State shared by the clients of one test."""

    def __init__(self) -> None:
        self.streams: dict[str, _Stream] = {}
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
        """Let go of the records before this number."""
        self.streams[stream].first = first

    def connect(self) -> FakeClient:
        """Return a client."""
        self.open += 1
        return FakeClient(self)


class FakeClient:
    """See `StreamClient`; what the source needs of it."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def _stream(self, name: str) -> _Stream:
        if name not in self._server.streams:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{name} is not there")
        return self._server.streams[name]

    def streams(self, prefix: str = "") -> Iterator[str]:
        """See `StreamClient`."""
        return iter(sorted(name for name in self._server.streams if name.startswith(prefix)))

    def require(self, stream: str) -> None:
        """See `StreamClient`: reads make no streams here."""

    def first(self, stream: str) -> int:
        """See `StreamClient`."""
        return self._stream(stream).first

    def tail(self, stream: str) -> int:
        """See `StreamClient`."""
        return len(self._stream(stream).bodies)

    def identity(self, stream: str, position: int) -> str:
        """See `StreamClient`."""
        found = self._stream(stream)
        index = position - 1
        if not found.first <= index < len(found.bodies):
            return ""
        return blake2b(b"%d %s" % (found.timestamps[index], found.bodies[index]), digest_size=12).hexdigest()

    def at_timestamp(self, stream: str, timestamp: int) -> int:
        """See `StreamClient`."""
        found = self._stream(stream)
        return max(found.first, bisect_left(found.timestamps, timestamp))

    def read(self, stream: str, start: int, end: int) -> Iterator[RecordBatch]:
        """See `StreamClient`."""
        found = self._stream(stream)
        if start < found.first:
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, "trimmed", first=found.first)
        there = min(end, len(found.bodies))
        while start < there:
            upto = min(start + _FRAME, there)
            headers = {at - start: some for at, some in found.headers.items() if start <= at < upto}
            numbers = range(start, upto)
            yield RecordBatch(Columns(numbers, found.timestamps[start:upto], found.bodies[start:upto], headers))
            start = upto
        if there < end:
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, "beyond", tail=there)

    def close(self) -> None:
        """See `StreamClient`."""
        self._server.open -= 1
