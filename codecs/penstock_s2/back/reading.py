"""A read from an S2 server, over several connections in turn if necessary (S2 fact sheet, 5.4, 7)."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog
import trio

from penstock.core.back import Following, ReadSession
from penstock.model.failures import Failure, OperationFailed, RemoteProtocolError
from penstock.model.operations import FromSeqNum, Read
from penstock.model.records import RecordBatch, StreamPosition
from penstock.net.http.client.connection import HttpStream
from penstock.net.retries import RetryPolicy, retry_after, tried_again, worth_retrying
from penstock_s2.back.calls import S2Requests, encryption_key
from penstock_s2.back.identifying import Identifier
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sources import ReadRemainder, ReadSource, SourceEvent
from penstock_s2.back.unary import ServerStart, records_path, start_query, tail_in_failure
from penstock_s2.codec.json_config import encode_stream_config

__all__ = ["RemoteReadSession", "open_read"]

_log = structlog.get_logger()

_LEAST_PATIENCE: Final = 1.0
"""Least number of seconds to wait for data: a reader that returns after a long pause may find that some has come."""


@asynccontextmanager
async def open_read(
    calls: S2Requests,
    settings: S2BackSettings,
    read: Read,
    start: ServerStart,
    source: ReadSource,
    identifier: Identifier | None = None,
) -> AsyncIterator[RemoteReadSession]:
    """Open a read that begins at `start`. With `identifier`, batches carry the identifiers of their records.

    Raises OperationFailed if it cannot begin, which is tried once.
    """
    session = RemoteReadSession(calls, settings, read, start, source, identifier)
    try:
        await session.connect()
        yield session
    finally:
        await session.close()


class RemoteReadSession(ReadSession):
    """A read from an S2 server, which is begun again where its connection is lost."""

    def __init__(
        self,
        calls: S2Requests,
        settings: S2BackSettings,
        read: Read,
        start: ServerStart,
        source: ReadSource,
        identifier: Identifier | None,
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._read = read
        self._start = start
        self._source = source
        self._identifier = identifier
        # The next sequence number; None while only the server knows where the read begins.
        self._position = start.seq_num if isinstance(start, FromSeqNum) and not read.clamp else None
        self._left_count = math.inf if read.count is None else read.count
        self._left_bytes = math.inf if read.max_bytes is None else read.max_bytes
        self._waits = bool(read.wait) or (read.wait is None and not read.bounded)
        self._endless = read.wait is None and not read.bounded
        self._expires = math.inf
        self._tail = StreamPosition(0, 0)
        self._following = False
        self._caught_up = False  # and not yet reported
        self._catching_up = False  # the last batch had no tail: the server has more, and does not say how much
        self._begun = False
        self._ended = False
        self._held: RecordBatch | None = None
        # The connection, and the state of recovering from a lost one.
        self._stack: AsyncExitStack | None = None
        self._stream: HttpStream | None = None
        self._silent_since: float | None = None
        self._give_up_at: float | None = None
        self._again_at = -math.inf
        self._losses = 0
        first, most = settings.backoff_seconds
        self._pauses = RetryPolicy(first_seconds=first, most_seconds=most)

    # ---- interface -----------------------------------------------------------------------------------------------

    def behind(self) -> bool:
        if self._ended or not (self._left_count and self._left_bytes):
            return False
        return (
            self._held is not None
            or self._catching_up
            or (self._position is not None and self._position < self._tail.seq_num)
        )

    def tail(self) -> StreamPosition:
        return self._tail

    async def next(self) -> RecordBatch | Following | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._ended and self._left_count and self._left_bytes:
            if self._caught_up:
                self._caught_up, self._following = False, True
                self._arm()
                return Following(self._tail)
            if self._held is None and not await self._fetch():
                break
            if self._held is not None:
                delivered = await self._deliver(self._held)
                if delivered is not None:
                    return delivered
        self._ended = True
        return None

    async def close(self) -> None:
        """Close the connection."""
        if self._stack is not None:
            stack, self._stack, self._stream = self._stack, None, None
            await stack.aclose()

    # ---- events --------------------------------------------------------------------------------------------------

    async def _fetch(self) -> bool:
        """Wait for the next event and note it. Returns False at the end of the read."""
        if self._following:
            self._arm()
        event: object = SourceEvent.END
        with trio.CancelScope(deadline=self._expires):
            event = await self._event()
        if isinstance(event, RecordBatch):
            self._held = event
        elif isinstance(event, StreamPosition):
            self._saw_tail(event)
        elif event is SourceEvent.BEAT and self._waits and not self._following:
            self._caught_up, self._catching_up = True, False
        return event is not SourceEvent.END

    def _arm(self) -> None:
        if self._expires == math.inf and self._read.wait is not None:
            self._expires = trio.current_time() + self._read.wait

    def _saw_tail(self, tail: StreamPosition) -> None:
        """Note that the server has sent everything before `tail`."""
        self._tail = max(self._tail, tail)
        self._catching_up = False
        if self._position is None:
            self._position = tail.seq_num
        if self._waits and not self._following and tail.seq_num <= self._position:
            self._caught_up = True

    async def _deliver(self, batch: RecordBatch) -> RecordBatch | None:
        """Return the part of a batch to deliver, if any. May be cancelled and called again."""
        if self._identifier is not None:
            await self._identifier.identify(batch)
            first = self._identifier.first_wanted(batch)
        else:
            first = 0
        self._held = None
        stop = int(min(batch.count, first + self._left_count))
        wanted = batch.part(first, stop) if first < stop else None
        if wanted is not None and wanted.metered > self._left_bytes:
            fit = wanted.fitting(int(self._left_bytes))
            wanted = wanted.part(0, fit) if fit else None
            self._ended = True  # a record that does not fit ends the read
        self._passed(batch)
        if wanted is None:
            return None
        self._left_count -= wanted.count
        self._left_bytes -= wanted.metered
        self._expires = math.inf
        return wanted

    def _passed(self, batch: RecordBatch) -> None:
        """Advance past a batch."""
        self._position = batch.next_seq_num
        if batch.tail is None:
            self._following, self._catching_up = False, True
            self._tail = max(self._tail, StreamPosition(batch.next_seq_num, batch.columns.timestamps[-1]))
        else:
            self._saw_tail(batch.tail)

    async def _event(self) -> RecordBatch | StreamPosition | SourceEvent:
        """Return the next event, reconnecting as often as necessary. May be cancelled: nothing is lost."""
        broken = self._calls.broke
        while True:
            if self._stream is None:
                if not await self._reconnect():
                    return SourceEvent.END
                continue
            try:
                event = self._source.next_event()
                if event is SourceEvent.NEED_DATA:
                    data = await self._receive(self._stream)
                    broken = self._calls.broke if data else self._calls.lost
                    self._source.receive(data)
                    continue
            except OperationFailed as error:
                event = error.failure
            except RemoteProtocolError as error:
                event = broken(error.failure.message)
            if event is SourceEvent.END and self._endless:
                event = self._calls.lost("the server ended a read that follows the stream")
            if isinstance(event, Failure):
                await self._lost(event)
                continue
            self._give_up_at = None
            if isinstance(event, RecordBatch):
                self._losses = 0  # heartbeats alone do not prove progress
            assert isinstance(event, RecordBatch | StreamPosition) or event in (SourceEvent.END, SourceEvent.BEAT)
            return event

    async def _receive(self, stream: HttpStream) -> bytes | bytearray:
        """Receive more of the answer. Raises OperationFailed if the server is silent for `watchdog_seconds`."""
        now = trio.current_time()
        if self._silent_since is None:
            self._silent_since = now
        seconds = self._settings.watchdog_seconds
        with trio.CancelScope(deadline=max(self._silent_since + seconds, now + _LEAST_PATIENCE)):
            data = await stream.receive()
            self._silent_since = None
            return data
        raise stream.late(seconds, "frame of a read")

    # ---- connections ---------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Send the request for what is left of the read. Raises OperationFailed."""
        async with AsyncExitStack() as stack:
            read = self._read
            left = ReadRemainder(
                self._position if self._begun else None,
                None if read.count is None or self._filters else int(self._left_count),
                None if read.max_bytes is None or self._filters else int(self._left_bytes),
            )
            headers = [*self._source.begin(), *encryption_key()]
            if read.create_config is not None:
                headers = [*headers, ("s2-stream-config", encode_stream_config(read.create_config).decode())]
            stream = await stack.enter_async_context(
                self._calls.open("GET", records_path(read.stream), read.stream.basin, headers, self._query(left))
            )
            head = await stream.receive_head()
            if head.status != 200:
                raise OperationFailed(await self._calls.refusal(stream, head))
            self._calls.check_media(head, self._source.media)
            self._stream, self._stack = stream, stack.pop_all()
            self._silent_since = None
            self._begun = True

    @property
    def _filters(self) -> bool:
        """True while records are filtered out, so that the server must not count them towards the read's bounds."""
        return self._identifier is not None and self._identifier.filters

    def _query(self, remainder: ReadRemainder) -> str:
        read = self._read
        start = self._start if remainder.seq_num is None else FromSeqNum(remainder.seq_num)
        wanted: dict[str, object] = dict(start_query(start))
        if read.clamp:
            wanted["clamp"] = "true"
        for name, value in (("count", remainder.count), ("bytes", remainder.max_bytes), ("until", read.until)):
            if value is not None:
                wanted[name] = value
        if read.wait is not None:
            # The server takes whole seconds; this session ends the wait itself.
            wanted["wait"] = math.ceil(read.wait) + 1 if read.wait > 0 else 0
        return "&".join(f"{name}={value}" for name, value in wanted.items())

    async def _lost(self, failure: Failure) -> None:
        """Note a lost connection and schedule the next try. Raises OperationFailed if there is to be none."""
        await self.close()
        now = trio.current_time()
        if self._give_up_at is None:
            self._give_up_at = now + self._settings.recover_seconds
            _log.info("back_read_interrupted", stream=str(self._read.stream), reason=failure.message)
        if not worth_retrying(failure) or now >= self._give_up_at:
            raise OperationFailed(failure)
        self._losses += 1
        tried_again(self._calls.back)
        pause = self._pauses.pause(self._losses, random.random()) if self._losses > 1 else 0.0
        self._again_at = now + max(pause, retry_after(failure))

    async def _reconnect(self) -> bool:
        """Connect again. Returns False if everything had been read before the connection was lost."""
        await trio.sleep_until(self._again_at)
        try:
            await self.connect()
        except OperationFailed as error:
            tail = tail_in_failure(error)
            if tail is not None and tail.seq_num == self._position:
                return False
            await self._lost(error.failure)
        return True
