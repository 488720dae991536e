"""Connection to a segment client: a socket and a codec, with requests, replies and bounded waits."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog
import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.net.draining import Draining
from penstock.net.retries import retry_after
from penstock.observe.metrics.clients import count_error
from penstock.protocols.links import DuplexLink
from penstock_pravega.codec import BlockAppended, BlockData, Dialect, SegmentMessage, SegmentServer
from penstock_pravega.segment.front.replies import LOST, REPLIES, Replies, RequestFields
from penstock_pravega.segment.front.settings import SegmentSettings

__all__ = ["Request", "SegmentLink"]

T = TypeVar("T")

log = structlog.get_logger()

LINGER_SECONDS: Final = 0.3
"""Seconds for which a connection is still read after ending it: closing it with input unread would reset it, and could
destroy the last reply on its way. Not longer, since idle connections of Pravega's Python client never end by
themselves, and it retries a gateway that is away for more than about a second only after ten."""
LEAST_HOLD: Final = 0.1
MOST_HOLD: Final = 10.0
"""Bounds in seconds on holding a client whose server cannot be reached, before its request is given up and its
connection ended. There is no reply for that, and real clients reconnect at once, as often as they are refused, or after
pauses that grow to 10 s and continue when the server is back."""

Request = SegmentMessage | BlockAppended | BlockData


class SegmentLink(DuplexLink[Request]):
    """One connection. One task takes requests; any task may `reply`, which never blocks, and then wait for `room`."""

    __slots__ = ("_codec", "_held_until")

    def __init__(self, stream: trio.abc.Stream, settings: SegmentSettings, draining: Draining) -> None:
        self._codec = SegmentServer(settings.limits)
        super().__init__(
            stream,
            self._codec,
            draining,
            send_timeout=settings.send_timeout_seconds,
            idle_timeout=settings.idle_timeout_seconds,
        )
        self._held_until = -math.inf

    def hold(self, failure: Failure) -> None:
        """Take no more requests, and end the connection after a pause: there is no reply for the failure."""
        pause = min(max(retry_after(failure), LEAST_HOLD), MOST_HOLD)
        self._held_until = max(self._held_until, trio.current_time() + pause)
        self.end()

    # ---- replies -------------------------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect | None:
        """The client's dialect; None until it has sent something."""
        return self._codec.dialect

    @property
    def replies(self) -> Replies:
        """Replies in the client's dialect. The client must have sent something."""
        assert self._codec.dialect is not None, "the client has not sent anything yet"
        return REPLIES[self._codec.dialect]

    def reply(self, *messages: SegmentMessage) -> None:
        """Send replies. Raises LocalProtocolError for what cannot be encoded, and trio.BrokenResourceError."""
        self.send(*map(self._codec.send, messages))

    def refuse(self, failure: Failure, fields: RequestFields) -> None:
        """Reply that a request failed; if the dialect has no such reply, take no more requests."""
        count_error(failure.code)
        if failure.code is FailureCode.PERMISSION_DENIED:
            log.info("request_denied", segment=fields.segment, reason=failure.message)
        reply = self.replies.refused(failure, fields)
        if reply is not None:
            self.reply(reply)
            return
        log.info("request_refused", segment=fields.segment, code=failure.code.value, reason=failure.message)
        self.hold(failure)

    async def carried_out(self, attempt: Callable[[], Awaitable[T]], *, idempotent: bool = False) -> T:
        """Return the result of `attempt`, retrying for up to `MOST_HOLD` seconds while a server cannot be reached.

        Failures after which it may have been done are retried only if `idempotent`. Raises the last failure.
        """
        until = trio.current_time() + MOST_HOLD
        while True:
            try:
                return await attempt()
            except OperationFailed as error:
                failure = error.failure
                hold = max(retry_after(failure), LEAST_HOLD)
                useful = failure.code in LOST and (idempotent or not failure.side_effect_possible)
                if not useful or self.has_ended or trio.current_time() + hold > until:
                    raise
            with self._draining.interrupts():
                await trio.sleep(hold)

    async def close(self, linger: float = LINGER_SECONDS) -> None:
        """Close the connection in such a way that all replies arrive; see `MOST_HOLD`."""
        if not self._transport.finished:
            with self._draining.interrupts():
                await trio.sleep_until(self._held_until)
        await super().close(linger)

    async def cut(self) -> None:
        del self._codec
        await super().cut()
