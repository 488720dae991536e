"""Appends of one connection: its writers and what they send (segment fact sheet, 1.4)."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import structlog
import trio

from penstock.protocols.segment.front.administration import Desk
from penstock.protocols.segment.front.link import Link
from penstock.protocols.segment.front.replies import Asked
from penstock.protocols.segment.front.writers import InFlight, Outlet, Writer
from penstock_codecs.byte_operations import GetAttribute
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["Appends"]

log = structlog.get_logger()


class Appends:
    """Appends of one connection.

    The codec bounds the number of writers, and refuses appends by writers that are not set up.
    """

    def __init__(self, desk: Desk, link: Link, nursery: trio.Nursery) -> None:
        self._outlet = Outlet(desk.back, desk.streams, link, nursery, InFlight())
        self._writers: dict[UUID, Writer] = {}

    async def set_up(self, writer_id: UUID, asked: Asked) -> None:
        """Set a writer up and reply with its last position.

        Waits until all that it sent before on this connection is answered.
        """
        before = self._writers.pop(writer_id, None)
        if before is not None:
            await before.settled()
        link = self._outlet.link
        try:
            stream, level = await link.carried_out(partial(self._look_up, writer_id, asked), idempotent=True)
        except OperationFailed as error:
            link.refuse(error.failure, asked)
            return
        self._writers[writer_id] = Writer(self._outlet, writer_id, asked.segment, stream, level)
        link.say(link.replies.append_setup(asked, writer_id, level))

    async def _look_up(self, writer_id: UUID, asked: Asked) -> tuple[StreamRef, int]:
        stream = await self._outlet.streams.find(asked.segment)
        return stream, await self._outlet.back.perform(GetAttribute(stream, writer_id.bytes))

    async def append(
        self, writer_id: UUID, data: bytes, number: int, request_id: int, expected: int | None = None
    ) -> None:
        """Take an append; see `Writer.append`. End the connection if the writer's setup failed."""
        writer = self._writers.get(writer_id)
        if writer is None:
            log.info("append_refused", writer=str(writer_id), reason="its SetupAppend failed")
            self._outlet.link.end()
        else:
            await writer.append(data, number, request_id, expected)

    @property
    def any(self) -> bool:
        """True while appends are in flight."""
        return self._outlet.in_flight.size > 0

    async def settled(self) -> None:
        """Wait until all appends taken so far are answered."""
        for writer in self._writers.values():
            await writer.settled()
