"""Properties that several targets check, and the pieces into which they cut their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, TypeVar
from zlib import crc32

from penstock.model.failures import RemoteProtocolError
from penstock.wire import conformance
from penstock.wire.codec import Codec, Pull

__all__ = ["chosen", "cuts", "keeps_the_laws", "pull"]

T = TypeVar("T")

MOST_PIECES: Final = 64
"""Inputs of more bytes than this are cut into pieces of several bytes: each piece costs some microseconds."""


def chosen(options: Sequence[T], data: bytes) -> tuple[T, bytes]:
    """Return the option that the first byte selects, and the other bytes."""
    return options[data[0] % len(options) if data else 0], data[1:]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the bytes in small pieces, and in a few of other sizes. The same bytes are always cut in the same way."""
    step = len(data) // MOST_PIECES + 1
    yield conformance.pieces_of(data, range(0, len(data), step))
    chance = Random(crc32(data))
    yield conformance.pieces_of(data, [chance.randrange(len(data) + 1) for _ in range(4)])


def keeps_the_laws(make: Callable[[], Codec[Any, Any]], data: bytes, limit: int) -> None:
    """Check the laws that every codec keeps (`penstock.wire.conformance`); `limit`: the most bytes that it holds."""
    whole = conformance.no_surprise(make, data)
    for pieces in cuts(data):
        cut = conformance.trace(make, pieces, limit=limit + max(map(len, pieces), default=0))
        assert cut == whole, f"law 1: whole gave {whole}, {pieces} gave {cut}"
    part = conformance.trace(make, [data[: len(data) // 2]], eof=False)[0]
    assert whole[0][: len(part)] == part, f"law 4: {part} is not a prefix of {whole}"


def pull(codec: Codec[Any, Any], data: bytes = b"") -> list[Any]:
    """Return the events that the bytes give, up to the first fault."""
    events: list[Any] = []
    if data:
        codec.receive(data)
    try:
        while not isinstance(event := codec.next_event(), Pull):
            events.append(event)
    except RemoteProtocolError:
        pass
    return events
