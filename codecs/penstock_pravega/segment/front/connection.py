"""One client's connection: requests in order, replies as they become ready.

Each read waits in a task of its own; appends are handed over and acknowledged later. Every other request is answered
before the next one is taken, so that pipelined requests are performed in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import structlog
import trio

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, OperationFailed, RemoteProtocolError
from penstock.model.features import Feature
from penstock.net.draining import Draining
from penstock.observe.metrics.clients import count_error
from penstock_pravega.codec import BlockAppended, BlockData, Dialect, SegmentMessage, draft, join_events, released
from penstock_pravega.codec.limits import SEGMENT_VERSIONS
from penstock_pravega.segment.delegation import TokenRejected
from penstock_pravega.segment.front.administration import ADMINISTRATION, RequestContext
from penstock_pravega.segment.front.checkpoint import APPENDS, RequestCheck
from penstock_pravega.segment.front.link import Request, SegmentLink
from penstock_pravega.segment.front.reads import ConnectionReads
from penstock_pravega.segment.front.replies import NO_OFFSET, NO_REQUEST_ID, RequestFields
from penstock_pravega.segment.front.settings import SegmentSettings
from penstock_pravega.segment.front.tables import TABLE_HANDLERS
from penstock_pravega.segment.front.writers import ConnectionAppends, FrontWriters

__all__ = ["ClientConnection"]

log = structlog.get_logger()

_HANDLERS: Final = {**ADMINISTRATION, **TABLE_HANDLERS}
_TOLD_BY: Final[Mapping[type[SegmentMessage], str]] = {
    released.CreateTransientSegment: "parent_segment",
    released.MergeSegments: "source",
    released.MergeSegmentsBatch: "target",
}
"""Field of a request that an error names as the segment, if not `segment`."""
_AT: Final[Mapping[type[SegmentMessage], str]] = {
    released.TruncateSegment: "truncation_offset",
    released.UpdateTableEntries: "table_segment_offset",
    released.RemoveTableKeys: "table_segment_offset",
}
"""Field of a request that an error gives as the offset; other requests have none."""
_GREETINGS: Final = frozenset({released.Hello, released.KeepAlive, draft.KeepAlive})
"""Messages that any client may send."""
_GREETINGS_AT_FIRST: Final = 5000
_GREETINGS_PER_SECOND: Final = 10
"""Allowed rate of greetings after the first ones; clients send one in 20 seconds."""
_GREETINGS_PER_TURN: Final = 16


class ClientConnection:
    """Connection of one client. `run` is called once and leaves nothing of the connection behind."""

    __slots__ = (
        "_appends",
        "_begun_at",
        "_checkpoint",
        "_desk",
        "_draining",
        "_greetings",
        "_link",
        "_on_dropped",
        "_reads",
        "_settings",
        "_writers",
    )

    def __init__(
        self,
        desk: RequestContext,
        writers: FrontWriters,
        link: SegmentLink,
        settings: SegmentSettings,
        draining: Draining,
        on_dropped: Callable[[Counter[Feature]], None],
    ) -> None:
        self._desk = desk
        self._writers = writers
        self._link = link
        self._greetings = 0
        self._begun_at = trio.current_time()
        self._settings = settings
        self._draining = draining
        self._on_dropped = on_dropped
        self._appends: ConnectionAppends
        self._reads: ConnectionReads
        self._checkpoint = RequestCheck()

    async def run(self) -> None:
        """Serve the connection from the first request to the last reply.

        Raises trio.BrokenResourceError if the connection is lost, and TooSlow if the client receives nothing for too
        long.
        """
        async with trio.open_nursery() as nursery:
            self._appends = ConnectionAppends(self._desk, self._writers, self._link, nursery)
            self._reads = ConnectionReads(
                self._desk, self._link, nursery, self._settings, self._draining, self._on_dropped
            )
            self._link.begin(nursery)
            try:
                if await self._take_requests():
                    self._reads.end()
                    await self._reads.settled()
                await self._appends.settled()
                await self._link.flush()
            finally:
                self._appends.end()
            nursery.cancel_scope.cancel()
        await self._link.close()

    async def _take_requests(self) -> bool:
        """Take requests until the end.

        Returns False if the client violated the protocol: then only owed replies to appends are sent.
        """
        try:
            while (request := await self._link.next_message(self._busy)) is not None:
                await self._admit(request)
                if not self._may(request):
                    continue
                take = self._takers.get(type(request), ClientConnection._carry_out)
                await take(self, request)
                await self._link.room()
        except RemoteProtocolError as error:
            if error.failure.code is not FailureCode.CLIENT_HANGUP:
                count_error(error.failure.code)
                log.info("protocol_error", code=error.failure.code.value, reason=error.failure.message)
            return False
        return True

    async def _admit(self, request: Request) -> None:
        """Wait until the client may make a request: the protocol has no reply for too many requests."""
        if type(request) in _GREETINGS:
            self._greetings += 1
            if self._greetings > _GREETINGS_AT_FIRST + (trio.current_time() - self._begun_at) * _GREETINGS_PER_SECOND:
                self._link.quota.limited("noise")
                self._link.quota.abused()
                raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, "too many messages without effect"))
            if self._greetings % _GREETINGS_PER_TURN == 0:
                await self._link.quota.rest_in_turn()
            return
        quota = self._link.quota
        wait = quota.request()
        while wait:
            await trio.sleep(wait)
            wait = quota.request()
        quota.admit()

    def _may(self, request: Any) -> bool:
        """Return whether the client's delegation token allows the request; if not, reply so.

        For a writer whose token has expired the connection ends too: its client then gets another token.
        """
        delegation = self._settings.delegation
        if delegation is None:
            return True
        try:
            self._checkpoint.check(delegation, request)
        except TokenRejected as rejected:
            log.info("token_rejected", request=type(request).__name__, reason=str(rejected))
            request_id = getattr(request, "request_id", None)
            if request_id is not None and self._link.dialect is Dialect.RELEASED:
                self._link.reply(released.AuthTokenCheckFailed(request_id, "", 1 if rejected.expired else 0))
            if request_id is None or type(request) in APPENDS or self._link.dialect is not Dialect.RELEASED:
                self._link.end()
            return False
        return True

    def _busy(self) -> bool:
        return self._reads.any or self._appends.any

    # ---- greetings -----------------------------------------------------------------------------------------------

    async def _hello(self, _: released.Hello) -> None:
        self._link.reply(released.Hello(*SEGMENT_VERSIONS))

    async def _keep_alive(self, request: released.KeepAlive | draft.KeepAlive) -> None:
        self._link.reply(request)

    async def _begin_block(self, _: draft.BeginAppendBlock) -> None:
        """Ignore the start of a block, whose content is stored as it arrives."""

    # ---- appends -------------------------------------------------------------------------------------------------

    async def _set_up(self, request: released.SetupAppend) -> None:
        await self._appends.set_up(request.writer_id, RequestFields(request.request_id, request.segment))

    async def _set_up_draft(self, request: draft.SetupAppend) -> None:
        await self._appends.set_up(request.connection_id, RequestFields(NO_REQUEST_ID, request.segment))

    async def _append(self, request: BlockAppended) -> None:
        await self._appends.append(request.writer_id, request.data, request.last_event_number, request.request_id)

    async def _append_piece(self, request: BlockData) -> None:
        """Append a piece of a block.

        A draft writer's position is its connection offset after the piece (readings 8 and 9).
        """
        data = request.data
        await self._appends.append(request.connection_id, data, request.offset + len(data), NO_REQUEST_ID)

    async def _end_block(self, request: draft.EndAppendBlock) -> None:
        """Have an empty block acknowledged; the pieces of others are."""
        if not request.block_length:
            await self._appends.append(request.connection_id, b"", request.connection_offset, NO_REQUEST_ID)

    async def _append_event_if(self, request: released.ConditionalAppend) -> None:
        data = join_events([request.event])
        await self._appends.append(
            request.writer_id, data, request.event_number, request.request_id, request.expected_offset
        )

    async def _append_if(self, request: released.ConditionalBlockEnd) -> None:
        await self._appends.append(
            request.writer_id, request.data, request.event_number, request.request_id, request.expected_offset
        )

    # ---- reads ---------------------------------------------------------------------------------------------------

    async def _read(self, request: released.ReadSegment) -> None:
        fields = RequestFields(request.request_id, request.segment, request.offset)
        await self._reads.start(fields, request.suggested_length)

    async def _read_draft(self, request: draft.ReadSegment) -> None:
        fields = RequestFields(NO_REQUEST_ID, request.segment, request.offset)
        await self._reads.start(fields, request.suggested_length)

    # ---- other requests ------------------------------------------------------------------------------------------

    async def _carry_out(self, request: Any) -> None:
        segment = getattr(request, _TOLD_BY.get(type(request), "segment"), "")
        fields = RequestFields(request.request_id, segment, getattr(request, _AT.get(type(request), ""), NO_OFFSET))
        try:
            self._link.reply(await self._link.carried_out(partial(_HANDLERS[type(request)], self._desk, request)))
        except OperationFailed as error:
            self._link.refuse(error.failure, fields)
        except LocalProtocolError as error:  # the reply is too large
            self._link.refuse(Failure(FailureCode.LIMIT_EXCEEDED, str(error)), fields)

    _takers: ClassVar[Mapping[type[Request], Callable[[ClientConnection, Any], Awaitable[None]]]] = {
        released.Hello: _hello,
        released.KeepAlive: _keep_alive,
        draft.KeepAlive: _keep_alive,
        released.SetupAppend: _set_up,
        draft.SetupAppend: _set_up_draft,
        BlockAppended: _append,
        released.ConditionalAppend: _append_event_if,
        released.ConditionalBlockEnd: _append_if,
        draft.BeginAppendBlock: _begin_block,
        BlockData: _append_piece,
        draft.EndAppendBlock: _end_block,
        released.ReadSegment: _read,
        draft.ReadSegment: _read_draft,
    }
