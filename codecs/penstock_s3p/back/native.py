"""`Native` interface to an S3P server (S3P 0.2.0, section 8)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final

import trio

from penstock.core.delivery import Delivery
from penstock.core.marks import Mark
from penstock.core.native import Bounds, Native, NativeAck, NativeAppendSession, Scanned
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB
from penstock.model.operations import Append, Capability, ListStreams, Page
from penstock.model.records import NO_HEADERS, RecordId, StreamRef
from penstock.model.streams import StreamInfo
from penstock.net.retries import RetryPolicy, retrying
from penstock.net.upstream import Upstream
from penstock.routing.loss.loss import Loss
from penstock_s3p.back.appending import append_session
from penstock_s3p.back.bodies import from_bodies
from penstock_s3p.back.connection import ReplyTooLarge, S3PConnection, S3PPool
from penstock_s3p.back.settings import S3PBackSettings
from penstock_s3p.codec import Command, Create, Delete, ReadRecords, Records, Reply, TrimRecords

__all__ = ["S3PNative", "open_s3p"]

_FAR: Final = RecordId((1 << 63) - 1, 0)
"""An identifier beyond all records. The reference server fails on larger ones (S3P fact sheet, section 2)."""
_SIZES_KEPT: Final = 1000
_FIRST_COUNT: Final = 100
_SHORTEST_BLOCK: Final = 0.1
"""Least seconds between two READs that found nothing, for servers that answer before the requested wait is over."""
_FEW_BYTES: Final = 16 * KIB
"""Bytes below any server's bound on its replies."""
_ENDLESS: Final = 1_000_000


class S3PNative(Native):
    """`penstock.core.native.Native` of an S3P server. Made by `open_s3p`.

    Commands that fail with their connection are retried on another if that does no harm; appends, as `delivery`
    promises. Records have the server's timestamps; clients' are not sent, except S3P's own (option ID).
    """

    def __init__(self, pool: S3PPool, settings: S3PBackSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._patient = RetryPolicy(attempts=_ENDLESS, total_seconds=settings.recover_seconds)
        self._sizes: OrderedDict[StreamRef, int] = OrderedDict()  # average record size of the last READ

    @property
    def capabilities(self) -> frozenset[Capability]:
        loss = self._settings.loss
        enveloped = {Capability.HEADERS: loss.headers, Capability.EMPTY_BODIES: loss.empty_body}
        kept = {capability for capability, what in enveloped.items() if what is Loss.ENVELOPE}
        return frozenset({Capability.RECORD_IDS, Capability.TRIM, Capability.FOLLOW, *kept})

    @property
    def delivery(self) -> Delivery:
        return self._settings.delivery

    # ---- commands ------------------------------------------------------------------------------------------------

    async def _call(self, command: Command, seconds: float = 0.0) -> Reply:
        """Make one call; the server may wait `seconds` beyond the time for a reply."""
        async with self._pool.use() as connection:
            return await connection.call(command, self._pool.upstream.settings.request_seconds + seconds)

    async def _retrying(
        self, attempt: Callable[[], Awaitable[Reply]], policy: RetryPolicy, *, idempotent: bool = True
    ) -> Reply:
        return await retrying(attempt, policy, idempotent=idempotent, back=self._pool.upstream.settings.name)

    def _name(self, stream: StreamRef) -> bytes:
        return self._settings.names.from_stream(stream)

    async def bounds(self, stream: StreamRef) -> Bounds:
        """Check that a stream exists; see `Native.bounds`. S3P tells no bounds."""
        command = ReadRecords(self._name(stream), 1, 0, _FAR)
        await self._retrying(partial(self._call, command), RetryPolicy(attempts=2))
        return Bounds()

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """Read records; see `Native.scan`. The tail is known to be reached only when nothing was found.

        A READ may give more than `max_bytes`, because S3P bounds the count of records. The count is estimated from the
        size of the previous records.
        """
        deadline = trio.current_time() + wait
        while True:
            left = max(deadline - trio.current_time(), 0.0)
            block_ms = min(int(left * 1000), self._settings.limits.max_block_ms)
            count = min(max_records, self._count(stream, max_bytes))
            asked_at = trio.current_time()
            records = await self._read(ReadRecords(self._name(stream), count, block_ms, start.record_id))
            if records.bodies or left * 1000 < 1:
                break
            now = trio.current_time()
            await trio.sleep(min(max(asked_at + _SHORTEST_BLOCK - now, 0.0), max(deadline - now, 0.0)))
        if records.bodies and (records.timestamps[0], records.seqs[0]) < start.record_id:
            where = self._pool.upstream.settings.where
            message = f"{where}: a READ from {start.record_id} returned earlier records"
            raise fail(FailureCode.UPSTREAM_FAULT, message)
        if records.bodies:
            self._sizes[stream] = 1 + sum(map(len, records.bodies)) // len(records.bodies)
            self._sizes.move_to_end(stream)
            while len(self._sizes) > _SIZES_KEPT:
                self._sizes.popitem(last=False)
        few = 2 * len(records.bodies) <= count and sum(map(len, records.bodies)) < _FEW_BYTES
        bodies, headers = from_bodies(records.bodies, self._settings.loss)
        timestamps, places = list(records.timestamps), list(records.seqs)
        return Scanned(bodies, headers or NO_HEADERS, timestamps, places, at_tail=not bodies, few=few)

    def _count(self, stream: StreamRef, max_bytes: int) -> int:
        size = self._sizes.get(stream)
        wanted = _FIRST_COUNT if size is None else max_bytes // size
        return min(max(wanted, 1), self._settings.limits.max_count)

    async def _read(self, command: ReadRecords) -> Records:
        limits = self._settings.limits
        try:
            reply = await self._retrying(partial(self._call, command, command.block_ms / 1000), self._patient)
        except ReplyTooLarge:
            certain = max(self._settings.max_reply_bytes // limits.max_record_bytes, 1)
            if (command.count or 0) <= certain:
                raise
            command.count = certain
            return await self._read(command)
        assert isinstance(reply, Records), "the codec lets nothing else pass"
        return reply

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:  # noqa: ARG002
        """Raise NOT_IMPLEMENTED: S3P has no conditional appends."""
        raise fail(FailureCode.NOT_IMPLEMENTED, f"S3P, which stream {stream} is behind, has no conditional appends")

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        ms, place = first_kept.record_id
        if self._settings.trim_keeps_last and place:
            place -= 1
        command = TrimRecords(self._name(stream), RecordId(ms, place))
        await self._retrying(partial(self._call, command), self._patient)

    async def create(self, stream: StreamRef) -> bool:
        try:
            await self._retrying(partial(self._call, Create(self._name(stream))), self._patient, idempotent=False)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        return True

    async def delete(self, stream: StreamRef) -> None:
        await self._retrying(partial(self._call, Delete(self._name(stream))), self._patient, idempotent=False)

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """Raise NOT_IMPLEMENTED: S3P cannot list streams."""
        where = self._pool.upstream.settings.where
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: S3P cannot list streams, as of basin {operation.basin}")

    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        """Open a session; see `Native.append_session`. It has its own connection while appends are in flight."""
        return append_session(self._pool, self._settings, self._name(stream))


@asynccontextmanager
async def open_s3p(upstream: Upstream, settings: S3PBackSettings | None = None) -> AsyncIterator[S3PNative]:
    """Open the server until the block ends; its connections are closed with it. None is made before it is needed."""
    chosen = settings or S3PBackSettings()
    pool = S3PPool(upstream, lambda stream, to: S3PConnection(stream, to, chosen.limits, chosen.max_reply_bytes))
    try:
        yield S3PNative(pool, chosen)
    finally:
        with trio.CancelScope(shield=True):
            await pool.close()
