"""Segment stores as a server of records, in their own terms."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from penstock.backs.delivery import Delivery
from penstock.backs.native import Bounds, NativeAck, NativeAppendSession, Scanned
from penstock.backs.segment.settings import SegmentBackSettings
from penstock.positions.marks import Mark
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Capability, ListStreams, Page
from penstock_codecs.streams import StreamInfo

__all__ = ["SegmentNative"]


class SegmentNative:
    """See `penstock.backs.native.Native`. Each event is a record, and offsets are what it knows.

    An event whose body is larger than `byte_layout.MAX_BODY` becomes raw pieces of that size, counted from the event's
    first byte. A scan gives all pieces of an event, and none can begin inside: `Scanned.inner` names these records.
    An acknowledgement lacks `end_offset` where its batch was found to be stored after a lost connection and somebody
    else appended as well, or where the server acknowledged several batches at once.
    """

    def __init__(self, settings: SegmentBackSettings) -> None:
        self._settings = settings

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Native.capabilities`."""
        raise NotImplementedError

    @property
    def delivery(self) -> Delivery:
        """See `Native.delivery`."""
        return self._settings.delivery

    async def bounds(self, stream: StreamRef) -> Bounds:
        """See `Native.bounds`."""
        raise NotImplementedError

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """See `Native.scan`. NOT_REPRESENTABLE (details: offset) for bytes that are no events."""
        raise NotImplementedError

    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        """See `Native.append_session`."""
        raise NotImplementedError

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        """See `Native.append_at`."""
        raise NotImplementedError

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        """See `Native.trim`."""
        raise NotImplementedError

    async def create(self, stream: StreamRef) -> bool:
        """See `Native.create`."""
        raise NotImplementedError

    async def delete(self, stream: StreamRef) -> None:
        """See `Native.delete`."""
        raise NotImplementedError

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """See `Native.list_streams`."""
        raise NotImplementedError
