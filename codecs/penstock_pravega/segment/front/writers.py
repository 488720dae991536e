"""The writers of one connection: their appends in order, pipelined, and acknowledgements (segment fact sheet, 1.4).

Appends go through an append session that lasts while any are in flight, so a silent writer costs a few hundred bytes. A
conditional append waits for those before it, and those behind it wait for it, because sessions have no conditional
appends.

After the first append that is not applied none of this writer is, until it is set up again: a later one would raise the
writer's position in the store above the missing one, which could then never be sent again.

Each append names the last number of this writer stored before it. A client whose connection was lost sets its writer up
on another and sends again what was not acknowledged, perhaps in other blocks. Setting it up waits for what is in flight
on the first connection, and takes the writer from it: appends that are received there later are refused. Those that
another process before the same store still processes may be stored after that; then appends from one of the two
connections are refused, else events would be stored twice.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
import structlog
import trio

from penstock.core.back import AppendSession, Back
from penstock.core.waiters import Waiters
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendBytes, GetAttribute, GetByteStreamInfo, WriterPosition
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import Appended
from penstock.model.records import StreamRef
from penstock.observe.metrics.clients import Pauses, count_error
from penstock_pravega.codec import Dialect
from penstock_pravega.codec.released import ConditionalCheckFailed
from penstock_pravega.segment.front.administration import RequestContext
from penstock_pravega.segment.front.link import SegmentLink
from penstock_pravega.segment.front.replies import Acknowledged, RequestFields, Unapplied
from penstock_pravega.segment.front.streams import FrontStreams

__all__ = ["BytesInFlight", "ClientWriter", "ConnectionAppends", "FrontWriters", "WriterContext"]

log = structlog.get_logger()

MOST_IN_FLIGHT: Final = 8 * MIB
"""Most bytes of one connection's unacknowledged appends; a single append may be larger."""
APPEND_COST: Final = 512
"""Approximate memory in bytes that an append in flight takes beside its data."""
_ORDINARY: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.STREAM_SEALED})
"""Failures too common to be logged."""
_TAKEN: Final = Failure(FailureCode.STALE_WRITER_POSITION, "the writer was set up on another connection")

FrontWriters = dict[tuple[StreamRef, UUID], "ClientWriter"]
"""The writers of all connections of a front, each where it was set up last."""


class BytesInFlight:
    """Bytes of one connection's appends in flight, with a bound."""

    def __init__(self, most: int = MOST_IN_FLIGHT) -> None:
        self._most = most
        self._room = Waiters()
        self._pauses = Pauses()
        self.size = 0

    async def enter(self, size: int) -> None:
        """Wait for room; a single append is always let in."""
        while self.size and self.size + size > self._most:
            with self._pauses.reading():
                await self._room.park()
        self.size += size

    def leave(self, size: int) -> None:
        """Release the bytes of settled appends."""
        self.size -= size
        self._room.unpark_all()


class WriterContext(msgspec.Struct, frozen=True):
    """Objects shared by the writers of a connection."""

    back: Back
    streams: FrontStreams
    link: SegmentLink
    nursery: trio.Nursery
    in_flight: BytesInFlight
    writers: FrontWriters


class _Sent(NamedTuple):
    """Append that was handed over to the back."""

    number: int
    request_id: int
    size: int


class ClientWriter:
    """Writer of one connection. One task hands appends over; `level` is the last position that was acknowledged."""

    def __init__(self, outlet: WriterContext, writer_id: UUID, segment: str, stream: StreamRef, level: int) -> None:
        self._outlet = outlet
        self._link = outlet.link
        self._id = writer_id
        self._segment = segment
        self._stream = stream
        self._level = level
        self._stored = level  # last number handed over to be stored; empty appends are not
        self._session: AppendSession | None = None
        self._sent: deque[_Sent] = deque()  # in the session, or about to be
        self._alone = False  # a conditional append is in flight
        self._idle = trio.lowlevel.ParkingLot()
        self._failure: Failure | None = None
        self._taken = False  # by another connection

    async def append(self, data: bytes, number: int, request_id: int, expected: int | None = None) -> None:
        """Take the next append; returns once its place in the stream is fixed, or earlier if it is conditional.

        `number`: the writer's position after it. `expected`: the length that the stream must have.
        """
        sent = _Sent(number, request_id, len(data) + APPEND_COST)
        await self._outlet.in_flight.enter(sent.size)
        conditional = expected is not None or not data
        if conditional or self._alone:
            await self.settled()
        if self._failure is not None or self._taken:
            self._refuse([sent], self._failure or _TAKEN)
        elif conditional:
            self._alone = True
            self._outlet.nursery.start_soon(self._append_alone, sent, data, expected)
        else:
            await self._send(sent, data)

    async def settled(self) -> None:
        """Wait until all appends taken so far are answered."""
        while self._sent or self._alone:
            await self._idle.park()

    async def take(self) -> None:
        """Refuse all appends from now on, and wait until those taken so far are answered: another connection has the
        writer."""
        self._taken = True
        await self.settled()

    def end(self) -> None:
        """End with the connection; what is in flight is not answered."""
        key = (self._stream, self._id)
        if self._outlet.writers.get(key) is self:
            del self._outlet.writers[key]
        self._sent.clear()
        self._alone = False
        self._idle.unpark_all()

    # ---- in a session --------------------------------------------------------------------------------------------

    async def _send(self, sent: _Sent, data: bytes) -> None:
        self._sent.append(sent)  # first, since a session ends once none is left
        if self._session is None:
            await self._outlet.nursery.start(self._run_session)
        if self._session is not None:
            position = self._position(sent)
            self._stored = sent.number
            await self._session.send(AppendBytes(self._stream, data, position))

    async def _run_session(self, task_status: trio.TaskStatus[None]) -> None:
        begun = False
        try:
            await self._check()
            async with self._outlet.back.append_session(self._stream, create_if_missing=False) as session:
                self._session, begun = session, True
                task_status.started()
                while self._sent:
                    await self._acknowledge(await session.receive())
                self._session = None
                session.close()
        except OperationFailed as error:
            self._session = None
            sent = list(self._sent)
            self._sent.clear()
            self._refuse(sent, error.failure)
            if not begun:
                task_status.started()

    async def _acknowledge(self, appended: list[Appended]) -> None:
        """Acknowledge all these appends with one reply."""
        done = list(islice(self._sent, len(appended)))
        self._say_appended(done[-1], appended[-1].offset)
        for _ in done:
            self._sent.popleft()
        if not self._sent:
            self._idle.unpark_all()
        await self._link.room()
        self._outlet.in_flight.leave(sum(sent.size for sent in done))

    async def _check(self) -> None:
        """Raise STREAM_NOT_FOUND if the stream was replaced since the writer was set up.

        Once the stream has appends of this writer, its position shows that instead.
        """
        if self._stored == NO_ATTRIBUTE:
            await self._outlet.streams.find(self._segment)

    # ---- one at a time -------------------------------------------------------------------------------------------

    async def _append_alone(self, sent: _Sent, data: bytes, expected: int | None) -> None:
        try:
            await self._check()
            if data:
                append = AppendBytes(self._stream, data, self._position(sent), expected)
                offset = (await self._outlet.back.perform(append)).offset
                self._stored = sent.number
            else:
                offset = await self._append_nothing(sent, expected)
            self._say_appended(sent, offset)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_MISMATCH:
                self._alone = False
                self._refuse([sent], error.failure)
                return
            self._link.reply(ConditionalCheckFailed(self._id, sent.number, sent.request_id))
        self._alone = False
        self._idle.unpark_all()
        await self._link.room()
        self._outlet.in_flight.leave(sent.size)

    async def _append_nothing(self, sent: _Sent, expected: int | None) -> int:
        """Check the conditions of an empty append, as byte streams may send it; there is nothing to store. An empty
        block of the draft ends at the offset where it begins.

        Returns the length.
        """
        info = await self._outlet.back.perform(GetByteStreamInfo(self._stream))
        if info.sealed:
            raise fail(FailureCode.STREAM_SEALED, f"stream {self._stream} is sealed")
        if sent.number < self._level + (self._link.dialect is Dialect.RELEASED):
            raise fail(FailureCode.STALE_WRITER_POSITION, f"position {sent.number} is not above {self._level}")
        if expected is not None and expected != info.length:
            raise fail(FailureCode.OFFSET_MISMATCH, f"the stream ends at {info.length}")
        return info.length

    # ---- replies -------------------------------------------------------------------------------------------------

    def _position(self, sent: _Sent) -> WriterPosition:
        return WriterPosition(self._id.bytes, sent.number, self._stored)

    def _say_appended(self, sent: _Sent, offset: int | None) -> None:
        previous, self._level = self._level, sent.number
        done = Acknowledged(self._id, sent.number, previous, sent.request_id, offset)
        self._link.reply(self._link.replies.data_appended(done))

    def _refuse(self, refused: list[_Sent], failure: Failure) -> None:
        """Refuse these appends and all later ones. Ends the connection if the dialect requires that."""
        again = self._failure is not None
        count_error(failure.code)
        self._failure = failure
        appends = [RequestFields(sent.request_id, self._segment, sent.number) for sent in refused]
        replies = self._link.replies.appends_refused(failure, Unapplied(self._id, appends, again))
        if replies is None:
            self._link.hold(failure)
        elif failure.code is FailureCode.STALE_WRITER_POSITION:
            self._link.end()
        self._link.reply(*replies or ())
        if not (again or failure.code in _ORDINARY):
            log.info("append_refused", stream=str(self._stream), code=failure.code.value, reason=failure.message)
        self._outlet.in_flight.leave(sum(sent.size for sent in refused))
        self._idle.unpark_all()


class ConnectionAppends:
    """Appends of one connection.

    The codec bounds the number of writers, and refuses appends by writers that are not set up.
    """

    __slots__ = ("_outlet", "_writers")

    def __init__(self, desk: RequestContext, writers: FrontWriters, link: SegmentLink, nursery: trio.Nursery) -> None:
        self._outlet = WriterContext(desk.back, desk.streams, link, nursery, BytesInFlight(), writers)
        self._writers: dict[UUID, ClientWriter] = {}

    async def set_up(self, writer_id: UUID, fields: RequestFields) -> None:
        """Set a writer up and reply with its last position.

        Waits until all that it sent before, on this connection or another, is answered.
        """
        before = self._writers.pop(writer_id, None)
        if before is not None:
            await before.settled()
            before.end()
        link = self._outlet.link
        try:
            stream, level = await link.carried_out(partial(self._look_up, writer_id, fields), idempotent=True)
        except OperationFailed as error:
            link.refuse(error.failure, fields)
            return
        writer = ClientWriter(self._outlet, writer_id, fields.segment, stream, level)
        self._writers[writer_id] = self._outlet.writers[stream, writer_id] = writer
        link.reply(link.replies.append_setup(fields, writer_id, level))

    async def _look_up(self, writer_id: UUID, fields: RequestFields) -> tuple[StreamRef, int]:
        stream = await self._outlet.streams.find(fields.segment)
        if (elsewhere := self._outlet.writers.get((stream, writer_id))) is not None:
            await elsewhere.take()
        return stream, await self._outlet.back.perform(GetAttribute(stream, writer_id.bytes))

    async def append(
        self, writer_id: UUID, data: bytes, number: int, request_id: int, expected: int | None = None
    ) -> None:
        """Take an append; see `ClientWriter.append`. End the connection if the writer's setup failed."""
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

    def end(self) -> None:
        """End all writers with the connection."""
        for writer in self._writers.values():
            writer.end()
