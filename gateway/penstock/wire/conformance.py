"""The laws that every codec keeps, as functions, so that third-party codecs can be tested, too.

Each law takes `make`, which returns a fresh codec, and raises AssertionError naming the law and the offending input. A
codec's *trace* over some input is the events that it delivered, in order, and how it ended. The laws:

1. **Cut anywhere**: the trace of a conversation does not depend on how its bytes were cut into pieces.
2. **No surprise**: whatever the bytes, a codec delivers events, asks for more, pauses, or raises
   RemoteProtocolError; it does nothing else, and after an error it only repeats that error.
3. **Bounded**: it never holds more than its limit, and a length that a peer merely announces costs nothing.
4. **Prefix**: a truncated conversation delivers a prefix of the events of the whole one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.model.failures import RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Codec

__all__ = ["Trace", "bounded", "cut_anywhere", "no_surprise", "pieces_of", "prefix", "trace"]

Make = Callable[[], Codec[Any, Any]]
Trace = tuple[tuple[str, ...], str]


def pieces_of(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return `data` cut at the given offsets (any order, repeats allowed)."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def trace(make: Make, pieces: Sequence[bytes], *, limit: int | None = None, eof: bool = True) -> Trace:
    """Feed the pieces to a fresh codec, pulling all events after each; return the events and how it ended."""
    codec = make()
    events: list[str] = []
    ending = "open"
    for piece in [*pieces, b""] if eof else pieces:
        if not piece and not eof:
            continue
        codec.receive(piece)
        ending = _pull_all(codec, events)
        if limit is not None:
            assert codec.buffered <= limit, f"law 3: holds {codec.buffered} bytes, limit {limit}"
        if ending.startswith("error"):
            break
    return tuple(events), ending


def _pull_all(codec: Codec[Any, Any], events: list[str]) -> str:
    while True:
        try:
            event = codec.next_event()
        except RemoteProtocolError as error:
            _repeats(codec, error)
            return f"error {error.failure}"
        if event is NEED_DATA or event is PAUSED:
            return str(event)
        events.append(repr(event))


def _repeats(codec: Codec[Any, Any], first: RemoteProtocolError) -> None:
    try:
        event = codec.next_event()
    except RemoteProtocolError as again:
        assert again.failure == first.failure, f"law 2: another error after an error: {again} after {first}"
    else:
        raise AssertionError(f"law 2: went on after an error: {event!r} after {first}")


def cut_anywhere(make: Make, data: bytes, cuts: Iterable[int]) -> None:
    """Check law 1 for one way of cutting."""
    whole, cut = trace(make, [data]), trace(make, pieces_of(data, cuts))
    assert whole == cut, f"law 1: whole gave {whole}, cut gave {cut}, for {data!r}"


def no_surprise(make: Make, data: bytes) -> Trace:
    """Check law 2 for any bytes; return the trace."""
    try:
        return trace(make, [data])
    except (AssertionError, RemoteProtocolError):
        raise
    except Exception as error:
        raise AssertionError(f"law 2: {error!r} came out for {data!r}") from error


def bounded(make: Make, data: bytes, limit: int, piece: int = 4096) -> None:
    """Check law 3 for any bytes, fed piece by piece."""
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    trace(make, pieces, limit=limit, eof=False)


def prefix(make: Make, data: bytes, length: int) -> None:
    """Check law 4 for one truncation."""
    whole, part = trace(make, [data], eof=False)[0], trace(make, [data[:length]], eof=False)[0]
    assert whole[: len(part)] == part, f"law 4: {part} is not a prefix of {whole}"
