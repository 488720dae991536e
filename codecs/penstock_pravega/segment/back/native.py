"""`Native` interface to segment stores, as a server of records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import trio
from msgspec.structs import replace

from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.core.native import Bounds, Native, NativeAck, NativeAppendSession, Scanned
from penstock.model.byte_layout import MAX_BODY
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB
from penstock.model.operations import Append, Capability, ListStreams, Page
from penstock.model.records import StreamRef
from penstock.model.streams import StreamInfo
from penstock.routing.loss.bodies import to_records
from penstock.routing.loss.loss import Loss
from penstock_pravega.codec import Dialect, NoEvent, take_records
from penstock_pravega.segment.back.administration import SegmentAdministration
from penstock_pravega.segment.back.in_flight import raise_or
from penstock_pravega.segment.back.reader import SegmentBytes, StoreReader
from penstock_pravega.segment.back.sessions import RecordSession, data_of, in_terms_of_records
from penstock_pravega.segment.back.settings import SegmentBackSettings
from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.back.writers import StoreWriters

__all__ = ["SegmentNative"]

_LEAST_READ: Final = 64 * KIB
"""Least bytes to ask for in a read, even for a few records: the rest costs little."""


class SegmentNative(Native):
    """`penstock.core.native.Native` of segment stores. Each event is a record, with byte offsets as positions.

    An event whose body is larger than `byte_layout.MAX_BODY` becomes raw pieces of that size, counted from the event's
    first byte. A scan returns all pieces of an event and cannot begin inside one: `Scanned.inner` names these records.
    An acknowledgement lacks `end_offset` in the draft, and also if its batch was found to be stored after a lost
    connection and another writer appended as well, or if the server acknowledged several batches at once. All appends
    to a stream are made by one writer, in the order in which they are handed over.
    """

    def __init__(
        self, stores: SegmentStores, writers: StoreWriters, reader: StoreReader, administration: SegmentAdministration
    ) -> None:
        self._stores = stores
        self._settings: SegmentBackSettings = stores.settings
        self._writers = writers
        self._reader = reader
        self._administration = administration

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities by dialect and loss policy; see `Native.capabilities`. The draft has no conditions."""
        capabilities = {Capability.TRIM, Capability.FOLLOW, Capability.LOCATE}
        loss = self._settings.loss
        if self._settings.dialect is Dialect.RELEASED:
            capabilities.add(Capability.MATCH_SEQ_NUM)
        if loss.headers is Loss.ENVELOPE:
            capabilities.add(Capability.HEADERS)
        if loss.empty_body is Loss.ENVELOPE or self._settings.keep_empty:
            capabilities.add(Capability.EMPTY_BODIES)
        return frozenset(capabilities)

    @property
    def has_byte_offsets(self) -> bool:
        return True

    @property
    def delivery(self) -> Delivery:
        return self._settings.delivery

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def bounds(self, stream: StreamRef) -> Bounds:
        info = await self._administration.info(stream)
        return Bounds(info.start_offset, info.length, info.sealed)

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """Read records; see `Native.scan`. Raises NOT_REPRESENTABLE (details: offset) for bytes that are no events."""
        segment = await self._stores.segment_of(stream)
        try:
            return await self._scan(segment, stream, start.offset, (max_records, max_bytes), wait)
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                self._stores.forget_stream(stream)
            raise

    async def _scan(
        self, segment: str, stream: StreamRef, offset: int, bounds: tuple[int, int], wait: float
    ) -> Scanned:
        """Read until there is a whole record or the wait is over.

        A store's flags about the tail are not relied on while it gives bytes: Pravega may return fewer than it has and
        still say that it is at the tail. Only a read that found nothing is conclusive.
        """
        until = trio.current_time() + wait
        size = min(self._settings.read_bytes, max(bounds[1], _LEAST_READ))
        held = bytearray()
        missing = 0
        while True:
            patience = max(0.0, until - trio.current_time())
            segment_bytes = await self._read(segment, stream, offset + len(held), max(size, missing), patience)
            held += segment_bytes.data
            scanned, missing = self._records(stream, held, offset, bounds)
            assert scanned.offsets is not None, "segments have them"
            whole = scanned.offsets[-1] == offset + len(held)
            scanned = replace(
                scanned, at_tail=segment_bytes.at_tail and not segment_bytes.data, end=segment_bytes.end and whole
            )
            if scanned.bodies:
                return scanned
            if segment_bytes.end and not whole:
                raise self._no_events(stream, "the end of a sealed segment within an event", offset)
            if segment_bytes.end or not segment_bytes.data:
                return scanned

    async def _read(self, segment: str, stream: StreamRef, offset: int, size: int, wait: float) -> SegmentBytes:
        """Read bytes.

        Raises STREAM_NOT_FOUND if the segment is shorter than before, and so another one of the same name.
        """
        segment_bytes = await self._reader.read(segment, offset, size, wait)
        if not segment_bytes.data and not segment_bytes.end and segment_bytes.length is None:
            segment_bytes = await self._reader.read(segment, offset, size, 0.0)
        if segment_bytes.length is not None and segment_bytes.length < offset:
            reason = f"stream {stream} had bytes up to {offset} and ends at {segment_bytes.length}: it is another one"
            message = f"{self._settings.upstream.where}: {reason}"
            raise fail(FailureCode.STREAM_NOT_FOUND, message)
        return segment_bytes

    def _records(self, stream: StreamRef, held: bytearray, offset: int, bounds: tuple[int, int]) -> tuple[Scanned, int]:
        """Return the records in bytes from `offset` on, and the number of bytes that the next one lacks."""
        most = self._settings.max_event_bytes
        try:
            taken = take_records(held, offset, count=bounds[0], size=bounds[1], max_body=MAX_BODY, max_event=most)
        except NoEvent as error:
            raise self._no_events(stream, str(error), error.offset) from None
        bodies, headers = to_records(taken.bodies, self._settings.loss)
        return Scanned(bodies, headers, offsets=taken.offsets, inner=frozenset(taken.inner)), taken.missing

    def _no_events(self, stream: StreamRef, what: str, offset: int) -> OperationFailed:
        where = self._settings.upstream.where
        return fail(
            FailureCode.NOT_REPRESENTABLE,
            f"{where}: stream {stream} cannot be read as records: at offset {offset} is {what}. "
            "Read it over the segment protocol, or truncate it beyond that offset",
            offset=offset,
        )

    # ---- appending ---------------------------------------------------------------------------------------------------

    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        """Open a session; see `Native.append_session`. Entering raises STREAM_NOT_FOUND."""
        return self._session(stream)

    @asynccontextmanager
    async def _session(self, stream: StreamRef) -> AsyncIterator[NativeAppendSession]:
        segment = await self._stores.segment_of(stream)
        try:
            await self._writers.own(segment).ready()
        except OperationFailed as error:
            raise await self._administration.explained(stream, error) from None
        session = RecordSession(self._writers, self._administration, stream, segment)
        try:
            yield session
        finally:
            session.close()

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        """Append at an offset; see `Native.append_at`. OFFSET_MISMATCH has the end of the stream as detail `offset`."""
        if self._settings.dialect is Dialect.DRAFT:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._settings.upstream.where}: the draft has no conditions")
        data = data_of(append, self._settings)
        segment = await self._stores.segment_of(stream)
        try:
            writer = self._writers.own(segment)
            slot = await writer.submit(data, len(append.bodies), expected=at.offset)
            await slot.over.wait()
            raise_or(slot)
        except OperationFailed as error:
            raise in_terms_of_records(await self._administration.explained(stream, error)) from None
        return NativeAck(slot.count, end_offset=slot.end_offset, length=len(data))

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        """Trim a stream; see `Native.trim`. Never moves backwards: what is trimmed stays so."""
        await self._administration.truncate(stream, first_kept.offset)

    async def create(self, stream: StreamRef) -> bool:
        return await self._administration.create(stream)

    async def delete(self, stream: StreamRef) -> None:
        segment = await self._stores.segment_of(stream)
        await self._writers.over_so_far(segment)
        await self._administration.delete(stream)
        self._writers.forget(segment)

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """List streams by the name of their first segment; see `Native.list_streams`.

        Raises NOT_IMPLEMENTED without a controller.

        The time of creation is unknown: 0.
        """
        return await self._administration.list_streams(operation)
