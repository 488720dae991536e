"""S3P commands and replies: the codec's events, and the items that spell them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from penstock.model.failures import RemoteProtocolError, printable
from penstock.wire.codec import Codec, Pull
from penstock.wire.listing import Line, Listing, Reading, Undecodable, size
from penstock_s3p.codec.conversation import S3PClient, S3PServer

__all__ = ["LISTING"]

_HEARERS: Final[dict[str, Callable[[], Codec[Any, Any]]]] = {
    "client": S3PServer,
    "server": lambda: S3PClient(observer=True),
}
"""Codecs that decode the bytes of each side."""


def _lines(data: bytes, make: Callable[[], Codec[Any, Any]]) -> Iterator[Line]:
    codec = make()
    codec.receive(data)
    codec.receive(b"")
    at = 0
    try:
        while not isinstance(event := codec.next_event(), Pull):
            yield Line(at, 0, type(event).__name__)
            at = yield from _items(data, at)
    except RemoteProtocolError as error:
        raise Undecodable(error.failure.message, at) from None
    if at < len(data):
        raise Undecodable(f"{size(len(data) - at)} after an error that ends the connection", at)


def _items(data: bytes, at: int) -> Generator[Line, None, int]:
    """Yield the items of a message that the codec has decoded; return the offset of its end."""
    missing = [1]  # items still missing, of the message and of each open array
    while missing:
        if not missing[-1]:
            missing.pop()
            continue
        missing[-1] -= 1
        depth, start = len(missing), at
        end = data.index(b"\r\n", at)
        kind, rest = data[at : at + 1], data[at + 1 : end]
        at = end + 2
        if kind == b"*":
            yield Line(start, depth, f"array of {int(rest)}")
            missing.append(int(rest))
        elif kind == b"$":
            yield Line(start, depth, f"'{printable(data[at : at + int(rest)])}' ({size(int(rest))})")
            at += int(rest) + 2
        else:
            yield Line(start, depth, f"{kind.decode()} '{printable(rest)}'")
    return at


def _readings(side: str, _dialect: str) -> list[Reading]:
    def of(make: Callable[[], Codec[Any, Any]]) -> Reading:
        return lambda data: _lines(data, make)

    return [of(make) for name, make in _HEARERS.items() if side in ("auto", name)]


LISTING: Final = Listing(("0.2.0",), _readings)
