"""The content of streams as records: what a client makes of the bodies of responses.

The protocol has messages on streams of JSON, and bytes without boundaries on all others. A reader turns the bodies of
consecutive responses into records. It is given them in pieces of any size, so a response need not fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.model.failures import Failure, FailureCode, RemoteProtocolError
from penstock.model.records import Headers

__all__ = ["ContentReader", "StreamContent", "TakenRecords", "broken"]


class TakenRecords(NamedTuple):
    """Consecutive records. `lengths`: how far each moves the position on: its bytes, or 1 for a JSON message."""

    bodies: list[bytes]
    headers: Mapping[int, Headers]
    lengths: list[int]


class StreamContent(Protocol):
    """A kind of content that consists of records. `step`: a distance between positions, about 1 MiB of content."""

    step: int

    def encode(self, bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> bytes:
        """Return records in a form that `join` takes. Raises NOT_REPRESENTABLE, naming the first that cannot be
        encoded."""

    def join(self, parts: Sequence[bytes]) -> bytes:
        """Return the body of a POST from what `encode` returned for one batch or several; at least one record."""

    def reader(self) -> ContentReader:
        """Return a reader that begins where a record does."""

    def comparable(self, body: bytes) -> bytes:
        """Return a body in a form that is the same before and after a server has stored it."""


class ContentReader(Protocol):
    """A reader of one stream's content, in order."""

    def receive(self, data: bytes) -> None:
        """Take bytes of a response's body. Raises RemoteProtocolError."""

    def end_response(self) -> None:
        """Note that the response is complete. Raises RemoteProtocolError if its content must go on."""

    def take(self, max_records: int, max_bytes: int) -> TakenRecords:
        """Return the next whole records that were received, at most so many; the first may exceed `max_bytes`. Raises
        RemoteProtocolError."""

    def skip(self, most: int) -> int:
        """Drop the next whole records, up to `most` positions further; return how many positions. Raises
        RemoteProtocolError if a record goes beyond."""

    @property
    def buffered(self) -> int:
        """Bytes received that no `take` has returned."""


def broken(reason: str) -> RemoteProtocolError:
    """Return the error for content that breaks the protocol."""
    return RemoteProtocolError(Failure(FailureCode.BAD_FORMAT, reason))
