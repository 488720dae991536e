"""Reads of segments' bytes, with bounded waits. A server parks a read at the tail until bytes come.

All readers that wait at the same offset share one parked read. It cannot be cancelled, so it stays parked when all have
left, and the next reader finds it. In the draft it is given up together with its connection.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec
import trio

from penstock.model.byte_operations import ByteStreamInfo
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.net.retries import worth_retrying
from penstock_pravega.codec import Dialect, SegmentMessage, draft, released
from penstock_pravega.segment.back.pool import ConnectionUse
from penstock_pravega.segment.back.stores import SegmentStores

__all__ = ["SegmentBytes", "StoreReader"]

_MOST_PARKED: Final = 10_000
"""Most reads that are parked at once; about 2 KiB each."""
_MOST_KNOWN: Final = 10_000
"""Most segments whose length is remembered."""
_FOREVER: Final = 365 * 24 * 3600.0
_SHORTEST_PARK: Final = 1.0
"""Seconds within which an empty answer to a read at the tail means that the server does not park it: pause for as long
before asking again."""
_PAUSE: Final = 0.2
"""Seconds between attempts of a parked read whose connection was lost."""


class SegmentBytes(msgspec.Struct, frozen=True):
    """Bytes from the requested offset.

    `at_tail`: no more now. `end`: no more ever. `length`: the segment's, if it was requested.
    """

    data: bytes
    at_tail: bool
    end: bool
    length: int | None = None


class _Parked:
    """Read that waits at the tail, and the number of readers that wait for it."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.found: SegmentBytes | None = None
        self.failure: Failure | None = None
        self.waiting = 0
        self.scope = trio.CancelScope()


class StoreReader:
    """Reader of the segments of one back."""

    def __init__(self, stores: SegmentStores) -> None:
        self._stores = stores
        self._draft = stores.settings.dialect is Dialect.DRAFT
        self._parked: dict[tuple[str, int], _Parked] = {}
        self._known: OrderedDict[str, int] = OrderedDict()  # lower bounds of segments' lengths

    async def info(self, segment: str) -> ByteStreamInfo:
        """Return offsets and state of a segment. Raises STREAM_NOT_FOUND."""
        reply = await self._stores.ask(
            segment,
            lambda request_id, token: released.GetStreamSegmentInfo(request_id, segment, token),
            idempotent=True,
        )
        if not reply.exists or reply.is_deleted:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"segment {segment} is not there")
        self._learn(segment, reply.write_offset)
        return ByteStreamInfo(reply.start_offset, reply.write_offset, reply.is_sealed, reply.last_modified)

    def forget(self, segment: str) -> None:
        """Forget the length of a deleted segment."""
        self._known.pop(segment, None)

    async def read(self, segment: str, offset: int, size: int, wait: float) -> SegmentBytes:
        """Return at most `size` bytes from `offset` on, waiting up to `wait` seconds for the first.

        Raises OperationFailed: STREAM_NOT_FOUND, OFFSET_TRUNCATED, INVALID for an offset beyond a sealed segment's end.
        """
        if offset < self._known.get(segment, 0):
            segment_bytes = await self._read_now(segment, offset, size)
            if segment_bytes is not None:
                return segment_bytes
        if wait > 0:
            return await self._wait(segment, offset, size, wait)
        return await self._look(segment, offset, size)

    async def _look(self, segment: str, offset: int, size: int) -> SegmentBytes:
        """Read without waiting. A read at the tail would be parked, so request the length first."""
        info = await self.info(segment)
        self._check_start(segment, offset, info)
        if offset < info.length:
            segment_bytes = await self._read_now(segment, offset, size)
            if segment_bytes is not None:
                return segment_bytes
        if info.sealed and offset > info.length:
            raise fail(FailureCode.INVALID, f"segment {segment} is sealed and ends at {info.length}, not at {offset}")
        return SegmentBytes(b"", at_tail=True, end=info.sealed, length=info.length)

    def _check_start(self, segment: str, offset: int, info: ByteStreamInfo) -> None:
        start = info.start_offset
        if offset < start:
            raise fail(FailureCode.OFFSET_TRUNCATED, f"segment {segment} begins at offset {start}", offset=start)

    async def _read_now(self, segment: str, offset: int, size: int) -> SegmentBytes | None:
        """Read bytes that should exist; None if they do not, because the segment is another of the same name."""
        try:
            make = _request(self._draft, segment, offset, size)
            if self._draft:
                reply = await self._stores.ask_once(segment, make)
            else:
                reply = await self._stores.ask(segment, make, idempotent=True)
        except OperationFailed as error:
            self._known.pop(segment, None)
            await self._check_draft(segment, offset, error.failure)
            if error.failure.code is FailureCode.STREAM_SEALED or error.failure.code is FailureCode.UPSTREAM_TIMEOUT:
                return None
            raise
        segment_bytes = self._found(reply, segment, offset)
        return segment_bytes if segment_bytes.data or segment_bytes.end else None

    async def _check_draft(self, segment: str, offset: int, failure: Failure) -> None:
        """Raise OFFSET_TRUNCATED if that is why a read was refused; in the draft a refusal closes the connection."""
        if self._draft and failure.code is FailureCode.UNAVAILABLE:
            self._check_start(segment, offset, await self.info(segment))

    def _found(self, reply: Any, segment: str, offset: int) -> SegmentBytes:
        """Convert a reply. Raises UPSTREAM_FAULT for bytes from another offset."""
        if reply.offset != offset:
            where = self._stores.settings.upstream.where
            message = f"{where}: a read of segment {segment} from {offset} returned bytes from {reply.offset}"
            raise fail(FailureCode.UPSTREAM_FAULT, message)
        if isinstance(reply, draft.SegmentRead):
            at_tail, end = reply.flags.at_tail, reply.flags.at_end
        else:
            at_tail, end = reply.at_tail, reply.end_of_segment
        self._learn(segment, offset + len(reply.data))
        return SegmentBytes(reply.data, at_tail, end)

    def _learn(self, segment: str, length: int) -> None:
        known = self._known.pop(segment, 0)
        self._known[segment] = max(known, length)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    # ---- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, segment: str, offset: int, size: int, wait: float) -> SegmentBytes:
        parked = self._parked.get((segment, offset))
        if parked is None:
            parked = self._park(segment, offset, size)
        parked.waiting += 1
        try:
            with trio.move_on_after(wait):
                await parked.over.wait()
        finally:
            parked.waiting -= 1
            if self._draft and not parked.waiting:
                self._parked.pop((segment, offset), None)
                parked.scope.cancel()
        if parked.failure is not None:
            raise OperationFailed(parked.failure)
        if parked.found is None:
            return SegmentBytes(b"", at_tail=True, end=False)
        segment_bytes = parked.found
        if len(segment_bytes.data) > size:
            return SegmentBytes(segment_bytes.data[:size], at_tail=False, end=False)
        return segment_bytes

    def _park(self, segment: str, offset: int, size: int) -> _Parked:
        if len(self._parked) >= _MOST_PARKED:
            left = next((key for key, parked in self._parked.items() if not parked.waiting), None)
            if left is None:
                raise fail(FailureCode.HOT_SERVER, f"{_MOST_PARKED} reads wait at the tails of segments already")
            self._parked.pop(left).scope.cancel()
        parked = self._parked[segment, offset] = _Parked()
        self._stores.nursery.start_soon(self._run, segment, offset, size, parked)
        return parked

    async def _run(self, segment: str, offset: int, size: int, parked: _Parked) -> None:
        """Run a parked read until it finds bytes or the end. A lost connection is retried while readers wait."""
        try:
            with parked.scope:
                parked.found = await self._parked_read(segment, offset, size, parked)
        except OperationFailed as error:
            parked.failure = error.failure
        finally:
            if self._parked.get((segment, offset)) is parked:
                del self._parked[segment, offset]
            parked.over.set()

    async def _parked_read(self, segment: str, offset: int, size: int, parked: _Parked) -> SegmentBytes | None:
        make = _request(self._draft, segment, offset, size)
        trouble: float | None = None
        while True:
            asked_at = trio.current_time()
            try:
                reply = await self._stores.ask_once(segment, make, ConnectionUse.PARKED, _FOREVER)
            except OperationFailed as error:
                if error.failure.code is FailureCode.STREAM_SEALED:  # sealed while it waited
                    return await self._look(segment, offset, size)
                await self._check_draft(segment, offset, error.failure)
                now = trio.current_time()
                trouble = now if trouble is None or error.failure.code is FailureCode.UNAVAILABLE else trouble
                patient = now - trouble < self._stores.settings.recover_seconds
                if not worth_retrying(error.failure) or not (patient and parked.waiting):
                    raise
                await trio.sleep(_PAUSE)
                continue
            trouble = None
            segment_bytes = self._found(reply, segment, offset)
            if segment_bytes.data or segment_bytes.end:
                return segment_bytes
            if not parked.waiting:
                return None
            if trio.current_time() - asked_at < _SHORTEST_PARK:
                await trio.sleep(_SHORTEST_PARK)


def _request(is_draft: bool, segment: str, offset: int, size: int) -> Any:
    def make(request_id: int, token: str) -> SegmentMessage:
        if is_draft:
            return draft.ReadSegment(segment, offset, size)
        return released.ReadSegment(segment, offset, size, token, request_id)

    return make
