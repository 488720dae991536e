"""One HTTP exchange as a front's handler sees it, the same for HTTP/1.1 and HTTP/2.

A handler is `async def handler(exchange: Exchange) -> None`. It runs in its own task and is cancelled when the client
goes away. It must respond: with `respond` for a whole response, or with `start`, any number of `send`, and `finish`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.wire.http import Buffer

__all__ = ["Exchange", "Handler", "HeaderList", "Refetch", "Request"]

HeaderList = Iterable[tuple[str, str]]
Refetch = Callable[[], Awaitable[Sequence[Buffer]]]
"""Fetches what was given to `Exchange.send` again: the same bytes, in any pieces. Raises OperationFailed if they are
gone."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request.

    `path` is the raw path as sent (still percent-encoded), `query` the raw query without `?`. Header names are in lower
    case; values are decoded as latin-1. `authority` is the Host header or :authority, "" if there is none.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    authority: str
    http_version: str  # "1.0", "1.1" or "2"
    scheme: str  # "http" or "https"
    _first: dict[str, str] = field(init=False, repr=False, compare=False)  # value of each header's first line

    def __post_init__(self) -> None:
        object.__setattr__(self, "_first", dict(reversed(self.headers)))

    def header(self, name: str) -> str | None:
        """Return the value of header `name` (lower case), the first if it is repeated, or None."""
        return self._first.get(name)

    def header_values(self, name: str) -> list[str]:
        """Return all comma-separated values of all lines of header `name`, stripped, in order."""
        lines = [value for key, value in self.headers if key == name]
        return [part for line in lines for item in line.split(",") if (part := item.strip())]


class Exchange(Protocol):
    """One request and its response. `receive` and `send` may be used by two tasks at once (full duplex)."""

    @property
    def request(self) -> Request:
        """The head of the request."""

    async def receive(self) -> bytes:
        """Return the next piece of the request body; b"" at its end. Not calling it applies back-pressure: on HTTP/1.1
        the socket is not read, on HTTP/2 the flow-control window is not replenished."""

    @property
    def arrived(self) -> bool:
        """True once the whole request body has come: `receive` need not wait for the client."""

    @property
    def ended(self) -> bool:
        """True once `receive` has returned the whole request body: it would return b""."""

    def refuse_body(self) -> None:
        """Take no more of the request, which comes too slowly: once it is answered, its connection ends, or on HTTP/2
        its stream is reset. Otherwise a client would be waited for once more, to send what is dropped."""

    async def room(self, keep: bool = True) -> None:
        """Wait until the connection may hold more: to be called before a large piece (up to about 1 MiB) is fetched.

        A client of HTTP/2 may request much at once and read none of it. Streams whose flow-control window is open go
        first; one whose window stays closed for long is reset. With `keep`, room for one piece is reserved for this
        exchange until its next `send`, `respond`, `finish` or `room`. Without, for a handler that then waits, maybe for
        long, its reservation is released, and it waits only while half of the room is taken and it has unsent data
        itself.
        """

    def spare(self) -> int:
        """Return how many bytes `send` may be given besides the piece for which there is room; 0 while others wait."""

    async def respond(
        self,
        status: int,
        headers: HeaderList,
        body: bytes = b"",
        trailers: HeaderList | None = None,
        refetch: Refetch | None = None,
    ) -> None:
        """Send a whole response, with content-length unless there are `trailers` (even an empty sequence), as for
        `finish`. `refetch`: as for `send`."""

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of a streamed response; it is on its way to the client when this returns."""

    async def send(self, pieces: Sequence[Buffer], refetch: Refetch | None = None) -> None:
        """Send more of a streamed body. Returns when the pieces need not be kept: it waits for a slow client (bounded
        memory).

        With `refetch`, `pieces` is a list, which may be emptied. What a closed flow-control window keeps back is then
        dropped if others need the memory, and fetched again when the window opens; the stream is reset if that is
        impossible. So the caller keeps no reference to what the pieces were made of.
        """

    def send_now(self, piece: bytes) -> bool:
        """Send a small piece of a streamed body without waiting. Returns False, and sends nothing, if that is
        impossible: the client is slow, or has gone. May be called by any task while none of the handler's sends."""

    async def written(self) -> None:
        """Wait until the kernel has taken all that was sent, by this exchange and others of its connection."""

    async def finish(self, trailers: HeaderList = ()) -> None:
        """End a streamed response. The rest of the request body is discarded.

        `trailers` follow the body. HTTP/1.0 cannot carry them, nor can HTTP/1.1 after a content-length or in response
        to HEAD: that raises LocalProtocolError.
        """


Handler = Callable[[Exchange], Awaitable[None]]
