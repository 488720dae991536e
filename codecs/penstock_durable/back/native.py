"""`Native` interface to a server of Durable Streams."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import accumulate
from typing import Final

import trio

from penstock.backends.background import background
from penstock.core.back import Back
from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.core.native import Bounds, Native, NativeAck, NativeAppendSession, Scanned
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Capability, ListStreams, Page
from penstock.model.records import StreamRef
from penstock.model.streams import StreamInfo
from penstock.net.http.client.client import HttpClient
from penstock.net.http.client.settings import HttpClientSettings
from penstock.net.retries import RetryPolicy, retrying
from penstock.net.upstream import Upstream
from penstock_durable.back.beginning import Beginning, find_beginning
from penstock_durable.back.cursor import ContentCursor
from penstock_durable.back.offsets import KnownOffset, OffsetTable
from penstock_durable.back.requests import DurableRequests
from penstock_durable.back.session import DurableAppendSession
from penstock_durable.back.settings import DurableBackSettings
from penstock_durable.back.streams import ServerStream, ServerStreams
from penstock_durable.codec import BEGINNING, TakenRecords

__all__ = ["CAPABILITIES", "DurableNative", "open_durable"]

CAPABILITIES: Final = frozenset({Capability.HEADERS, Capability.EMPTY_BODIES, Capability.FOLLOW})
"""Capabilities of a back that does not drop headers; headers and empty bodies only on streams of records."""
_ENDLESS: Final = 1_000_000


class DurableNative(Native):
    """`penstock.core.native.Native` of a server of Durable Streams. Made by `open_durable`.

    Offsets of marks are positions in the stream's content: bytes, or messages of a stream of JSON. The protocol has no
    trims, no conditions on a position, and no lists of streams.
    """

    def __init__(self, requests: DurableRequests, streams: ServerStreams, settings: DurableBackSettings) -> None:
        self._requests = requests
        self._streams = streams
        self._settings = settings
        self._back = requests.upstream.name
        self._patient = RetryPolicy(attempts=_ENDLESS, total_seconds=settings.recover_seconds)
        self._cursors: OrderedDict[tuple[StreamRef, int], ContentCursor] = OrderedDict()

    @property
    def capabilities(self) -> frozenset[Capability]:
        return CAPABILITIES - {Capability.HEADERS} if self._settings.drop_headers else CAPABILITIES

    @property
    def delivery(self) -> Delivery:
        return self._settings.delivery

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def bounds(self, stream: StreamRef) -> Bounds:
        """Return the end of a stream, if its position is known; see `Native.bounds`."""
        look = partial(self._streams.look, stream)
        stream_state, response = await retrying(
            look, RetryPolicy(attempts=2), idempotent=True, back=self._requests.upstream.name
        )
        newest = stream_state.offsets.newest
        end = newest.position if newest.offset == response.next_offset else None
        return Bounds(end_offset=end, sealed=response.closed)

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """Read records; see `Native.scan`.

        OFFSET_TRUNCATED has the first position that is left on the server. If it cannot be counted within the bounds of
        `find_beginning`, it has the first one with a known offset, and records before it may be left.
        """
        attempt = partial(self._scan, stream, start.offset, max_records, max_bytes, trio.current_time() + wait)
        return await retrying(attempt, self._patient, idempotent=True, back=self._back)

    async def _scan(self, ref: StreamRef, start: int, max_records: int, max_bytes: int, until: float) -> Scanned:
        stream = await self._streams.find(ref)
        cursor = self._cursors.pop((ref, start), None)
        if cursor is not None and cursor.stream is not stream:  # an earlier stream of that name
            await cursor.close()
            cursor = None
        try:
            if cursor is None:
                start_offset = stream.offsets.before(start)
                if start_offset.offset == BEGINNING:
                    await self._check_beginning(stream)
                cursor = self._cursor(stream, start_offset)
                await cursor.skip_to(start)
            taken = await cursor.take(max_records, max_bytes, max(until - trio.current_time(), 0.0))
        except BaseException as error:
            if cursor is not None:
                await cursor.close()
            if not isinstance(error, OperationFailed):
                raise
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise await self._explained(stream, error) from None
        else:
            await self._keep(cursor)
            return _scanned(start, taken, cursor.is_caught_up, not taken.bodies and cursor.closed)
        try:
            taken = await self._take_left(stream, start, max_records, max_bytes)
        except OperationFailed as error:
            raise await self._explained(stream, error) from None
        return _scanned(start, taken)

    def _cursor(self, stream: ServerStream, start: KnownOffset, *, notes: bool = True) -> ContentCursor:
        return ContentCursor(self._requests, stream, start, self._settings.poll_seconds, notes=notes)

    async def _keep(self, cursor: ContentCursor) -> None:
        """Keep a cursor for a scan that goes on where it is."""
        place = cursor.stream.ref, cursor.position
        earlier = self._cursors.pop(place, None)
        self._cursors[place] = cursor
        if earlier is not None:
            await earlier.close()
        while len(self._cursors) > self._settings.open_reads:
            await self._cursors.popitem(last=False)[1].close()

    async def _explained(self, stream: ServerStream, error: OperationFailed) -> OperationFailed:
        """Return the error for clients.

        STREAM_NOT_FOUND also for a stream that was replaced by one without the offset.
        """
        code = error.failure.code
        if code is FailureCode.STREAM_NOT_FOUND:
            await self._streams.forget(stream.ref)
        if code is FailureCode.UPSTREAM_FAULT and (await self._streams.look(stream.ref))[0] is not stream:
            return fail(FailureCode.STREAM_NOT_FOUND, f"there is another stream {stream.ref} now")
        return error

    async def _check_beginning(self, stream: ServerStream) -> None:
        """Raise OFFSET_TRUNCATED if a beginning is gone whose offset is not known: the server does not say it."""
        known_offsets = stream.offsets.behind(0)
        left = await self._left(stream, known_offsets) if known_offsets else None
        if left is not None and left.position:
            raise fail(FailureCode.OFFSET_TRUNCATED, f"stream {stream.ref} was cut by its server", offset=left.position)

    async def _left(self, stream: ServerStream, known_offsets: Sequence[KnownOffset]) -> Beginning | None:
        counted = self._cursor(stream, KnownOffset(0, BEGINNING), notes=False)
        return await find_beginning(counted, known_offsets, partial(self._cursor, stream))

    async def _take_left(self, stream: ServerStream, start: int, max_records: int, max_bytes: int) -> TakenRecords:
        """Take records of a stream whose server has removed the offset from which `start` is reached.

        Raises OFFSET_TRUNCATED as `scan`, if `start` is gone too, and STREAM_NOT_FOUND if no known offset is left.
        """
        known_offsets = await self._known_left(stream, start)
        try:
            left = await self._left(stream, known_offsets)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise
            reason = f"{self._requests.upstream.where}: the beginning of stream {stream.ref} is being removed"
            raise fail(FailureCode.UNAVAILABLE, reason) from None  # so it is read again
        first = known_offsets[0].position if left is None else left.position
        if left is None or start < first:
            reason = f"stream {stream.ref} was cut by its server; position {first} is left"
            raise fail(FailureCode.OFFSET_TRUNCATED, reason, offset=first)
        with self._requests.checked():
            return left.take(stream.content, start, max_records, max_bytes)

    async def _known_left(self, stream: ServerStream, start: int) -> Sequence[KnownOffset]:
        """Return the known offsets beyond a position that are left, in order."""
        known_offsets = stream.offsets.behind(stream.offsets.before(start).position)
        for index, known_offset in enumerate(known_offsets):
            probe = self._cursor(stream, known_offset)
            try:
                await probe.take(1, 1, 0.0)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                    raise
            else:
                return known_offsets[index:]
            finally:
                await probe.close()
        raise fail(FailureCode.STREAM_NOT_FOUND, f"no offset of stream {stream.ref} is left on its server")

    # ---- appending ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def append_session(self, stream: StreamRef) -> AsyncIterator[NativeAppendSession]:
        """Open a session; see `Native.append_session`. Entering raises STREAM_NOT_FOUND."""
        yield DurableAppendSession((await self._streams.find(stream)).writer)

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:  # noqa: ARG002
        """Raise NOT_IMPLEMENTED: `stream-seq` orders only writers that use it."""
        raise self._lacks(stream, "no conditional appends")

    def comparable(self, stream: StreamRef, body: bytes) -> bytes:
        """Return a JSON message in one spelling; which its server may have changed. See `Native.comparable`."""
        return self._streams.comparable(stream, body)

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:  # noqa: ARG002
        """Raise NOT_IMPLEMENTED: the protocol has no trims."""
        raise self._lacks(stream, "no trims")

    async def create(self, stream: StreamRef) -> bool:
        """Create a stream of `create_type`; see `Native.create`."""
        try:
            create = partial(self._requests.create, stream, self._settings.create_type)
            response = await retrying(create, self._patient, back=self._back)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        if response is None:
            return False
        await self._streams.created(stream, response.next_offset)
        return True

    async def delete(self, stream: StreamRef) -> None:
        delete = partial(self._requests.delete, stream)
        await retrying(delete, self._patient, back=self._back)
        await self._streams.forget(stream)

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """Raise NOT_IMPLEMENTED: the protocol cannot list streams."""
        message = f"{self._requests.upstream.where}: Durable Streams cannot list streams, as of basin {operation.basin}"
        raise fail(FailureCode.NOT_IMPLEMENTED, message)

    def _lacks(self, stream: StreamRef, what: str) -> OperationFailed:
        return fail(FailureCode.NOT_IMPLEMENTED, f"Durable Streams, which stream {stream} is behind, has {what}")

    async def close(self) -> None:
        """Close all reads."""
        while self._cursors:
            await self._cursors.popitem()[1].close()


def _scanned(start: int, taken: TakenRecords, at_tail: bool = False, end: bool = False) -> Scanned:
    offsets = list(accumulate(taken.lengths, initial=start))
    return Scanned(taken.bodies, taken.headers, offsets=offsets, at_tail=at_tail, end=end)


@asynccontextmanager
async def open_durable(
    upstream: Upstream, state: Back, settings: DurableBackSettings | None = None
) -> AsyncIterator[DurableNative]:
    """Open the server until the block ends. `state`: the embedded store, for the table of offsets."""
    chosen = settings or DurableBackSettings()
    async with HttpClient(upstream, HttpClientSettings(version=chosen.http)) as http, background() as nursery:
        requests = DurableRequests(http, chosen.names)
        streams = ServerStreams(requests, OffsetTable(state, upstream.settings.name), chosen, nursery)
        native = DurableNative(requests, streams, chosen)
        try:
            yield native
        finally:
            await native.close()
