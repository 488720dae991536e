"""Sessions of pipelined appends: of records, and of bytes for clients of the segment protocol."""

from __future__ import annotations

from collections import deque
from typing import Final
from uuid import UUID

import trio

from penstock.core.back import AppendSession
from penstock.core.native import NativeAck, NativeAppendSession
from penstock.model.byte_layout import MAX_BODY
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended
from penstock.model.records import StreamPosition, StreamRef
from penstock.routing.loss.bodies import to_bodies
from penstock_pravega.codec import join_events
from penstock_pravega.segment.back.administration import SegmentAdministration
from penstock_pravega.segment.back.in_flight import AppendInFlight, in_order
from penstock_pravega.segment.back.settings import SegmentBackSettings
from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.back.writers import StoreWriters

__all__ = ["ByteSession", "RecordSession", "ack_without_numbers", "data_of", "in_terms_of_records", "submit_bytes"]

_NOWHERE: Final = StreamPosition(0, 0)


def data_of(append: Append, settings: SegmentBackSettings) -> bytes:
    """Return an append's events.

    Raises NOT_REPRESENTABLE if the policy refuses a record, LIMIT_EXCEEDED for one that would not be read back as one
    record.
    """
    where = settings.upstream.where
    bodies = to_bodies(append.bodies, append.headers, settings.loss, where, keep_empty=settings.keep_empty)
    largest = max(map(len, bodies), default=0)
    if largest > MAX_BODY:
        raise fail(FailureCode.LIMIT_EXCEEDED, f"{where}: an event of {largest} bytes, a record has at most {MAX_BODY}")
    return join_events(bodies)


def in_terms_of_records(error: OperationFailed) -> OperationFailed:
    """Replace STALE_WRITER_POSITION, since clients do not know of the gateway's own writers, by UNAVAILABLE.

    The server has another number of such a writer if it was reset to an older state, or the segment was recreated. By
    its number, what was sent is not stored.
    """
    failure = error.failure
    if failure.code is not FailureCode.STALE_WRITER_POSITION:
        return error
    return fail(FailureCode.UNAVAILABLE, f"{failure.message}: the state of the server has changed")


def ack_without_numbers(end_offset: int | None) -> Appended:
    """Return an acknowledgement by a server without sequence numbers."""
    return Appended(_NOWHERE, _NOWHERE, _NOWHERE, offset=end_offset)


async def submit_bytes(writers: StoreWriters, stores: SegmentStores, operation: AppendBytes) -> AppendInFlight:
    """Submit bytes, as the client's own writer if it has one. Raises OperationFailed if they were not accepted."""
    segment = await stores.segment_of(operation.stream)
    position = operation.writer
    if not operation.data:
        raise fail(FailureCode.INVALID, "an append of no bytes")
    if position is None:
        return await writers.own(segment).submit(operation.data, 1, expected=operation.match_offset)
    writer = await writers.of(segment, UUID(bytes=position.writer))
    return await writer.submit(
        operation.data, 1, position=position.position, after=position.after, expected=operation.match_offset
    )


class _Session:
    """Base of both sessions: acknowledgements in the order of sending, and the end."""

    def __init__(self, administration: SegmentAdministration, stream: StreamRef) -> None:
        self._administration = administration
        self._stream = stream
        self._slots: deque[AppendInFlight] = deque()
        self._handing_over = 0
        self._closed = False
        self._failure: OperationFailed | None = None  # of an append that was not accepted
        self._changed = trio.Event()

    def close(self) -> None:
        """See `AppendSession.close`."""
        self._closed = True
        self._changed.set()

    @property
    def _over(self) -> bool:
        """True once nothing more that is sent will be applied."""
        return self._failure is not None or any(slot.failure is not None for slot in self._slots)

    def _add(self, slot: AppendInFlight) -> None:
        self._slots.append(slot)
        self._changed.set()

    def _refused(self, error: OperationFailed) -> None:
        self._failure = self._failure or error
        self._changed.set()

    async def _done(self) -> list[AppendInFlight]:
        """Return stored appends, at least one; none at the end. Raises OperationFailed."""
        while True:
            done = list(in_order(self._slots))
            if done:
                return done
            if self._slots:
                if (failure := self._slots[0].failure) is not None:
                    raise await self._administration.explained(self._stream, OperationFailed(failure))
                await self._slots[0].over.wait()
                continue
            if self._failure is not None:
                raise await self._administration.explained(self._stream, self._failure)
            if self._closed:
                await trio.lowlevel.checkpoint()
                return []
            self._changed = trio.Event()
            await self._changed.wait()


class RecordSession(_Session, NativeAppendSession):
    """A session that appends records as events."""

    def __init__(
        self, writers: StoreWriters, administration: SegmentAdministration, stream: StreamRef, segment: str
    ) -> None:
        super().__init__(administration, stream)
        self._writers = writers
        self._segment = segment

    async def send(self, append: Append) -> None:
        data = data_of(append, self._administration.settings)
        if self._over:
            await trio.lowlevel.checkpoint()
            return
        try:
            self._add(await self._writers.own(self._segment).submit(data, len(append.bodies)))
        except OperationFailed as error:
            self._refused(error)

    async def receive(self) -> list[NativeAck]:
        try:
            done = await self._done()
        except OperationFailed as error:
            raise in_terms_of_records(error) from None
        return [NativeAck(slot.count, end_offset=slot.end_offset, length=len(slot.data)) for slot in done]


class ByteSession(_Session, AppendSession):
    """`AppendSession` that takes only `AppendBytes`."""

    def __init__(
        self, writers: StoreWriters, stores: SegmentStores, administration: SegmentAdministration, stream: StreamRef
    ) -> None:
        super().__init__(administration, stream)
        self._writers = writers
        self._stores = stores

    async def send(self, append: Append | AppendBytes) -> None:
        if isinstance(append, Append):
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._stores.settings.upstream.where} is given bytes here")
        if append.match_offset is not None:
            raise fail(FailureCode.INVALID, "an append with a condition cannot be sent in a session")
        if self._over:
            await trio.lowlevel.checkpoint()
            return
        try:
            self._add(await submit_bytes(self._writers, self._stores, append))
        except OperationFailed as error:
            self._refused(error)

    async def receive(self) -> list[Appended]:
        return [ack_without_numbers(slot.end_offset) for slot in await self._done()]
