"""Connection to an S3P client."""

from __future__ import annotations

from typing import Final

import trio

from penstock.core.back import Following, ReadSession
from penstock.model.failures import RemoteProtocolError
from penstock.model.limits import KIB
from penstock.model.records import RecordBatch
from penstock.net.draining import Draining
from penstock.protocols.links import FrontLink
from penstock.wire.codec import Pull
from penstock_s3p.codec import AppendRecords, Command, Reply, S3PServer
from penstock_s3p.front.settings import S3PSettings

__all__ = ["S3PLink"]

FLUSH_FROM: Final = 16 * KIB
"""Bytes up to which replies are gathered while more commands are at hand."""


class S3PLink(FrontLink[Command]):
    """One client's connection, used by one task."""

    __slots__ = ("_ahead", "_codec")

    def __init__(self, stream: trio.abc.Stream, settings: S3PSettings, draining: Draining) -> None:
        self._codec = S3PServer(settings.limits)
        self._ahead: Command | None = None
        super().__init__(
            stream,
            self._codec,
            draining,
            send_timeout=settings.send_timeout_seconds,
            idle_timeout=settings.idle_timeout_seconds,
            gathers=FLUSH_FROM,
        )

    async def next_command(self) -> Command | None:
        """Return the next command, or None at the end. See `FrontLink.next_message`."""
        ahead, self._ahead = self._ahead, None
        return ahead or await self.next_message()

    def append_at_hand(self, name: bytes) -> AppendRecords | None:
        """Return the next command if it was received already and is an APPEND to this stream; else None."""
        if self._ahead is None:
            try:
                event = self._codec.next_event()
            except RemoteProtocolError:
                return None  # raised again by `next_command`
            if not isinstance(event, Pull):
                self._ahead = event
        if isinstance(self._ahead, AppendRecords) and self._ahead.name == name:
            ahead, self._ahead = self._ahead, None
            return ahead
        return None

    async def send(self, reply: Reply) -> None:
        """Reply to the oldest unanswered command. The reply may be buffered until `flush`."""
        await self.put(self._codec.send(reply))

    async def wait_for_next(self, session: ReadSession, deadline: float) -> RecordBatch | Following | None:
        """Return `session.next()`; None after `deadline`, or once the client has gone or the gateway drains."""
        return await self.while_connected(session.next, deadline - trio.current_time())
