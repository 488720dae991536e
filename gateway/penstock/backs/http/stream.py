"""One HTTP exchange as a client sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from penstock.inbox import Inbox
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.http import Body, Buffer, End, Headers, ResponseHead

if TYPE_CHECKING:
    from penstock.backs.http.connection import HttpClientConnection

__all__ = ["HttpStream"]

_SENDS_PER_CHECKPOINT: Final = 8
"""A fast server must not let its sender starve the others; a pass through the scheduler costs more than a send."""


class HttpStream:
    """A request under way and its answer, full duplex: one task may send while another receives.

    Methods raise OperationFailed: UNAVAILABLE where the server was lost or broke off, HOT_SERVER where it says that it
    did not process the request. Each may be cancelled and called again: nothing is lost.
    """

    __slots__ = (
        "_connection",
        "_failure",
        "_head",
        "_said_all",
        "_sends",
        "answered",
        "inbox",
        "opened",
        "stream_id",
        "trailers",
        "unprocessed",
    )

    def __init__(self, connection: HttpClientConnection, stream_id: int) -> None:
        self.stream_id = stream_id
        self.opened = trio.current_time()
        self.answered = False
        """Whether a head has come."""
        self.inbox = Inbox()
        """The answer's body; it may have ended before it is received to its end."""
        self.unprocessed = False
        """Whether the server said that it did not look at the request."""
        self.trailers: Headers = ()
        """Of the answer; there once it has ended."""
        self._connection = connection
        self._head: ResponseHead | None = None
        self._failure: Failure | None = None
        self._said_all = False
        self._sends = 0

    # ---- the connection's side -----------------------------------------------------------------------------------
    def feed_head(self, head: ResponseHead) -> None:
        """The head has come."""
        self._head = head
        self.answered = True
        self.inbox.wake()

    def feed_end(self, trailers: Headers) -> None:
        """The answer is complete."""
        self.trailers = trailers
        self.inbox.end()

    def fail(self, failure: Failure, unprocessed: bool = False) -> None:
        """The exchange is over before its time; what came before can still be received."""
        if self._failure is None and not self.inbox.ended:
            self._failure = failure
            self.unprocessed = unprocessed
            self.inbox.wake()

    @property
    def over(self) -> bool:
        """Whether nothing that is sent will be looked at any more."""
        return self.inbox.ended or self._failure is not None

    @property
    def complete(self) -> bool:
        """Whether both messages are, so that nothing need be broken off."""
        return self.inbox.ended and self._said_all

    # ---- the user's side -----------------------------------------------------------------------------------------
    async def send(self, pieces: Sequence[Buffer]) -> None:
        """More of the request's body; the pieces must not change any more.

        Waits for a slow server. Where it is cancelled then, the pieces go out all the same. After the end of the answer
        nobody looks at them: they are dropped.
        """
        self._raise_failure()
        if not self.over:
            self._connection.say(Body(self.stream_id, pieces))
        self._sends += 1
        if self._sends % _SENDS_PER_CHECKPOINT:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        await self._connection.wait_sent(self)
        self._raise_failure()

    async def finish(self, trailers: Headers = ()) -> None:
        """The request's body is complete; may be called more than once."""
        self._raise_failure()
        if not self._said_all and not self.over:
            self._said_all = True
            self._connection.say(End(self.stream_id, tuple(trailers)))
        await trio.lowlevel.checkpoint_if_cancelled()

    def begun(self) -> None:
        """The head goes out now, though the body is not there yet."""
        self._connection.say()

    def whole(self, *events: Body | End) -> None:
        """Say what is left of the request, together with its head."""
        self._said_all = True
        self._connection.say(*events)

    async def receive_head(self, seconds: float | None = None) -> ResponseHead:
        """The head of the answer, waiting up to `seconds`; None: what the upstream's settings say.

        Raises OperationFailed(UPSTREAM_TIMEOUT) where it did not come.
        """
        limit = self.request_seconds if seconds is None else seconds
        with trio.move_on_after(limit):
            while self._head is None:
                await self._wait()
            return self._head
        raise self.late(limit)

    @property
    def request_seconds(self) -> float:
        """How long the upstream's settings let an answer take."""
        return self._connection.upstream.settings.request_seconds

    def late(self, seconds: float) -> OperationFailed:
        """The failure of an exchange whose answer did not come in so long: UPSTREAM_TIMEOUT."""
        return self._connection.late(self, seconds)

    async def receive(self) -> bytes:
        """The next piece of the answer's body, all that is there; b"" at its end.

        Not calling it is the back-pressure. There is no deadline: the caller knows how long the server may be silent.
        """
        inbox = self.inbox
        while not inbox.unread:
            if inbox.ended:
                await trio.lowlevel.checkpoint_if_cancelled()
                return b""
            await self._wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        data = inbox.take()
        self._connection.consumed(self.stream_id, len(data))
        return data

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        """The answer's body as it comes, `least` bytes at least, and all that is there; fewer at its end and where the
        server is lost; none behind it. `least` must be below the settings' `receive_buffer` and `stream_window`."""
        inbox = self.inbox
        while inbox.unread < least and not inbox.ended:
            if self._failure is not None and inbox.unread:
                break
            await self._wait(least)
        await trio.lowlevel.checkpoint_if_cancelled()
        size, pieces = inbox.unread, inbox.take_all()
        self._connection.consumed(self.stream_id, size)
        return pieces

    async def _wait(self, least: int = 1) -> None:
        self._raise_failure()
        await self.inbox.wait(least)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OperationFailed(self._failure)
