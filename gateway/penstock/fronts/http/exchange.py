"""One exchange of an HTTP connection, as its handler sees it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

import trio

from penstock.fronts.exchange import HeaderList, Request
from penstock.inbox import Inbox
from penstock.metrics.clients import count_response
from penstock.observe.tracing import REQUEST
from penstock_codecs.http import Body, Buffer, Continue, End, RequestHead, ResponseHead, body_forbidden

if TYPE_CHECKING:
    from penstock.fronts.http.connection import HttpServerConnection

__all__ = ["HttpExchange"]

_SENDS_PER_CHECKPOINT: Final = 8
"""A fast client must not let its handler starve the others; a pass through the scheduler costs more than a send."""

_date: tuple[int, str] = (0, "")


def _now() -> str:
    """The value of the Date header (RFC 9110, 6.6.1), made once a second."""
    global _date
    second = int(time.time())
    if _date[0] != second:
        _date = (second, formatdate(second, usegmt=True))
    return _date[1]


def _answered(status: int) -> None:
    count_response(status)
    request = REQUEST.get()
    if request is not None:
        request.note({"http.response.status_code": status})


class HttpExchange:
    """See `penstock.fronts.exchange.Exchange`. `scope` is cancelled when the client goes away."""

    __slots__ = (
        "_connection",
        "_sends",
        "_waits",
        "finished",
        "inbox",
        "request",
        "scope",
        "started",
        "stream_id",
    )

    def __init__(self, connection: HttpServerConnection, head: RequestHead) -> None:
        path, _, query = head.target.partition("?")
        self.request = Request(head.method, path, query, tuple(head.headers), head.authority, head.version, head.scheme)
        self.stream_id = head.stream_id
        self.scope = trio.CancelScope()
        self.started = False
        self.finished = False
        self.inbox = Inbox()
        """The request's body."""
        self._connection = connection
        self._waits = head.expects_continue
        self._sends = 0

    # ---- the handler's side --------------------------------------------------------------------------------------
    async def receive(self) -> bytes:
        """The next piece of the request body; b"" at its end."""
        self._let_continue()
        inbox = self.inbox
        while not inbox.unread:
            if inbox.ended:
                return b""
            await inbox.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        data = inbox.take()
        self._connection.consumed(self.stream_id, len(data))
        return data

    async def room(self, keep: bool = True) -> None:
        """Wait until the connection may hold more."""
        await self._connection.wait_for_room(self.stream_id, keep)

    async def respond(
        self, status: int, headers: HeaderList, body: bytes = b"", trailers: HeaderList | None = None
    ) -> None:
        """A whole answer; one write where it is small."""
        _answered(status)
        fields = self._fields(headers)
        measured = trailers is None and status not in (204, 304) and status >= 200
        if measured and not any(name == "content-length" for name, _ in fields):
            fields.append(("content-length", str(len(body))))
        parts = [] if body_forbidden(self.request.method, status) or not body else [body]
        end = End(self.stream_id, tuple(trailers or ()))
        if parts or end.trailers:
            self._connection.say(ResponseHead(self.stream_id, status, fields), Body(self.stream_id, parts), end)
        else:
            self._connection.say(ResponseHead(self.stream_id, status, fields, end=True))
        self.started = self.finished = True
        self._connection.leave_room(self.stream_id)
        await self._connection.wait_sent(self.stream_id, finish=True)

    async def start(self, status: int, headers: HeaderList) -> None:
        """The head of a streamed answer; it is on its way to the client when this returns."""
        _answered(status)
        if status < 300:  # full duplex: the body is wanted, and cannot be asked for after the head
            self._let_continue()
        self._connection.say(ResponseHead(self.stream_id, status, self._fields(headers)))
        self.started = True
        await trio.lowlevel.checkpoint_if_cancelled()

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """More of a streamed body. Waits for a slow client."""
        self._connection.say(Body(self.stream_id, pieces))
        self._connection.leave_room(self.stream_id)
        self._sends += 1
        if self._sends % _SENDS_PER_CHECKPOINT:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        await self._connection.wait_sent(self.stream_id)

    async def written(self) -> None:
        """Wait until the kernel has all that was sent."""
        await self._connection.wait_written(self.stream_id)

    async def finish(self, trailers: HeaderList = ()) -> None:
        """The end of a streamed answer."""
        self._connection.say(End(self.stream_id, tuple(trailers)))
        self.finished = True
        self._connection.leave_room(self.stream_id)
        await self._connection.wait_sent(self.stream_id, finish=True)

    def _let_continue(self) -> None:
        """Ask for the body of a client that waits to be asked (RFC 9110, 10.1.1)."""
        if self._waits:
            self._waits = False
            if not (self.started or self.inbox.unread):
                self._connection.say(Continue(self.stream_id))

    def _fields(self, headers: HeaderList) -> list[tuple[str, str]]:
        return [("date", _now()), *headers]
