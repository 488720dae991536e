"""One HTTP exchange as a front's handler sees it: the same for HTTP/1.1 and HTTP/2.

A handler is `async def handler(exchange: Exchange) -> None`. It runs in a task of its own and is cancelled when
the client goes away. It must answer: `respond` for a whole answer, or `start`, any number of `send`, `finish`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock_codecs.http import Buffer

__all__ = ["Exchange", "Handler", "HeaderList", "Request"]

HeaderList = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request.

    `path` is the raw path as sent (still percent-encoded), `query` the raw query without `?`. Header names are in
    lower case; values are decoded as latin-1. `authority` is the Host header or :authority, "" where there is none.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    authority: str
    http_version: str  # "1.0", "1.1" or "2"
    scheme: str  # "http" or "https"

    def header(self, name: str) -> str | None:
        """The value of header `name` (lower case); of several lines the first. None where it is absent."""
        return next((value for key, value in self.headers if key == name), None)

    def header_values(self, name: str) -> list[str]:
        """All comma-separated values of all lines of header `name`, stripped, in order."""
        lines = [value for key, value in self.headers if key == name]
        return [part for line in lines for item in line.split(",") if (part := item.strip())]


class Exchange(Protocol):
    """One request and its answer. `receive` and `send` may be used by two tasks at once (full duplex)."""

    @property
    def request(self) -> Request:
        """The head of the request."""

    async def receive(self) -> bytes:
        """The next piece of the request body; b"" at its end. Not calling it is the back-pressure: on HTTP/1.1 the
        socket is not read, on HTTP/2 the flow-control window is not replenished."""

    async def room(self, keep: bool = True) -> None:
        """Wait until the connection may hold more: to be called before a large piece (up to about 1 MiB) is fetched.

        A client of HTTP/2 may ask for very much at once and take none of it. Streams that have window come first;
        one that is given none for long is reset. With `keep`, room for one piece belongs to this exchange until its
        next `send`, `respond` or `finish`, or its next `room`; without, for one who then waits, maybe for long, it
        gives up what it kept, and waits only while half of the room is taken and it has itself something unsent.
        """

    async def respond(
        self, status: int, headers: HeaderList, body: bytes = b"", trailers: HeaderList | None = None
    ) -> None:
        """A whole answer; with content-length, unless there are `trailers` (also none: `()`), as with `finish`."""

    async def start(self, status: int, headers: HeaderList) -> None:
        """The head of a streamed answer; it is on its way to the client when this returns."""

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """More of a streamed body. Returns when it may be forgotten: waits for a slow client (bounded memory)."""

    async def written(self) -> None:
        """Wait until the kernel has all that was sent, over this exchange and others of its connection."""

    async def finish(self, trailers: HeaderList = ()) -> None:
        """The end of a streamed answer. What is left of the request body is discarded.

        `trailers` go out behind the body. HTTP/1.0 cannot carry them, nor can HTTP/1.1 behind a content-length or in
        answer to HEAD: that raises LocalProtocolError.
        """


Handler = Callable[[Exchange], Awaitable[None]]
