"""The appends of one connection: who is set up, and what each writer sends (segment fact sheet, 1.4)."""

from __future__ import annotations

from uuid import UUID

import structlog
import trio

from penstock.backs.base import Back
from penstock.fronts.segment.link import Link
from penstock.fronts.segment.replies import Asked
from penstock.fronts.segment.settings import SegmentSettings
from penstock.fronts.segment.writers import InFlight, Outlet, Writer
from penstock_codecs.byte_operations import GetAttribute
from penstock_codecs.failures import OperationFailed

__all__ = ["Appends"]

log = structlog.get_logger()


class Appends:
    """See the module. The codec knows that nobody appends who did not ask for it, and bounds how many do."""

    def __init__(self, back: Back, link: Link, nursery: trio.Nursery, settings: SegmentSettings) -> None:
        self._outlet = Outlet(back, link, nursery, InFlight())
        self._names = settings.names
        self._writers: dict[UUID, Writer] = {}

    async def set_up(self, writer_id: UUID, asked: Asked) -> None:
        """Answer with the writer's last position, once all that it sent before on this connection is answered."""
        before = self._writers.pop(writer_id, None)
        if before is not None:
            await before.settled()
        link = self._outlet.link
        try:
            stream = self._names.to_stream(asked.segment)
            level = await self._outlet.back.perform(GetAttribute(stream, writer_id.bytes))
        except OperationFailed as error:
            link.refuse(error.failure, asked)
            return
        self._writers[writer_id] = Writer(self._outlet, writer_id, asked.segment, stream, level)
        link.say(link.replies.append_setup(asked, writer_id, level))

    async def append(
        self, writer_id: UUID, data: bytes, number: int, request_id: int, expected: int | None = None
    ) -> None:
        """Take an append; see `Writer.append`. Of a writer whose setup failed it ends the connection."""
        writer = self._writers.get(writer_id)
        if writer is None:
            log.info("append_refused", writer=str(writer_id), reason="its SetupAppend failed")
            self._outlet.link.end()
        else:
            await writer.append(data, number, request_id, expected)

    @property
    def any(self) -> bool:
        """Whether appends are in flight."""
        return self._outlet.in_flight.size > 0

    async def settled(self) -> None:
        """Wait until all that was taken is answered."""
        for writer in self._writers.values():
            await writer.settled()
