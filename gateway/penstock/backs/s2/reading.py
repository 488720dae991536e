"""A read under way on an S2 server: over one connection after the other, where that must be (S2 fact sheet, 5.4, 7)."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog
import trio

from penstock.backs.base import Following
from penstock.backs.http.stream import HttpStream
from penstock.backs.retries import RetryPolicy, retry_after, tried_again
from penstock.backs.s2.calls import Calls, refusal
from penstock.backs.s2.identifying import Identifier
from penstock.backs.s2.settings import S2BackSettings
from penstock.backs.s2.sources import Left, Mark, Source
from penstock.backs.s2.unary import ServerStart, records_path, start_query, tail_of
from penstock.store.batches import fitting
from penstock_codecs.failures import Failure, OperationFailed, RemoteProtocolError
from penstock_codecs.model import RecordBatch, StreamPosition
from penstock_codecs.operations import FromSeqNum, Read
from penstock_codecs.s2.json_config import encode_stream_config

__all__ = ["RemoteReadSession", "reading"]

_log = structlog.get_logger()

_LEAST_PATIENCE: Final = 1.0
"""Who comes back to a read that was silent for long may find that there is something now."""


@asynccontextmanager
async def reading(
    calls: Calls,
    settings: S2BackSettings,
    read: Read,
    start: ServerStart,
    source: Source,
    identifier: Identifier | None = None,
) -> AsyncIterator[RemoteReadSession]:
    """The read, which begins at `start`. With `identifier` batches know the identifiers of their records.

    Raises OperationFailed where it cannot begin, which is tried once.
    """
    session = RemoteReadSession(calls, settings, read, start, source, identifier)
    try:
        await session.connect()
        yield session
    finally:
        await session.close()


class RemoteReadSession:
    """See `ReadSession`."""

    def __init__(
        self,
        calls: Calls,
        settings: S2BackSettings,
        read: Read,
        start: ServerStart,
        source: Source,
        identifier: Identifier | None,
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._read = read
        self._start = start
        self._source = source
        self._identifier = identifier
        # What comes next. Not known where the server is to say where the read begins.
        self._position = start.seq_num if isinstance(start, FromSeqNum) and not read.clamp else None
        self._left_count = math.inf if read.count is None else read.count
        self._left_bytes = math.inf if read.max_bytes is None else read.max_bytes
        self._waits = bool(read.wait) or (read.wait is None and not read.bounded)
        self._endless = read.wait is None and not read.bounded
        self._expires = math.inf
        self._tail = StreamPosition(0, 0)
        self._following = False
        self._caught_up = False  # and that is still to be said
        self._begun = False
        self._ended = False
        self._held: RecordBatch | None = None
        # The connection, and what there is to be known of a lost one.
        self._stack: AsyncExitStack | None = None
        self._stream: HttpStream | None = None
        self._silent_since: float | None = None
        self._give_up_at: float | None = None
        self._again_at = -math.inf
        self._losses = 0
        first, most = settings.backoff_seconds
        self._pauses = RetryPolicy(first_seconds=first, most_seconds=most)

    # ---- what readers ask ----------------------------------------------------------------------------------------

    def behind(self) -> bool:
        """See `ReadSession.behind`."""
        if self._ended or not (self._left_count and self._left_bytes):
            return False
        return self._held is not None or (self._position is not None and self._position < self._tail.seq_num)

    def tail(self) -> StreamPosition:
        """See `ReadSession.tail`."""
        return self._tail

    async def next(self) -> RecordBatch | Following | None:
        """See `ReadSession.next`."""
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
        """Nobody reads any more."""
        if self._stack is not None:
            stack, self._stack, self._stream = self._stack, None, None
            await stack.aclose()

    # ---- what comes ----------------------------------------------------------------------------------------------

    async def _fetch(self) -> bool:
        """Wait for something to come; False at the end."""
        if self._following:
            self._arm()
        event: object = Mark.END
        with trio.CancelScope(deadline=self._expires):
            event = await self._event()
        if isinstance(event, RecordBatch):
            self._held = event
        elif isinstance(event, StreamPosition):
            self._saw_tail(event)
        elif event is Mark.BEAT and self._waits and not self._following:
            self._caught_up = True
        return event is not Mark.END

    def _arm(self) -> None:
        if self._expires == math.inf and self._read.wait is not None:
            self._expires = trio.current_time() + self._read.wait

    def _saw_tail(self, tail: StreamPosition) -> None:
        """The server has sent all up to here."""
        self._tail = max(self._tail, tail)
        if self._position is None:
            self._position = tail.seq_num
        if self._waits and not self._following and tail.seq_num <= self._position:
            self._caught_up = True

    async def _deliver(self, batch: RecordBatch) -> RecordBatch | None:
        """What may be delivered of a batch. Cancelled, it can be called again."""
        if self._identifier is not None:
            await self._identifier.identify(batch)
            first = self._identifier.first_wanted(batch)
        else:
            first = 0
        self._held = None
        stop = int(min(batch.count, first + self._left_count))
        wanted = batch.part(first, stop) if first < stop else None
        if wanted is not None and wanted.metered > self._left_bytes:
            fit = fitting(wanted, int(self._left_bytes))
            wanted = wanted.part(0, fit) if fit else None
            self._ended = True  # what does not fit ends the read
        self._passed(batch)
        if wanted is None:
            return None
        self._left_count -= wanted.count
        self._left_bytes -= wanted.metered
        self._expires = math.inf
        return wanted

    def _passed(self, batch: RecordBatch) -> None:
        """All of it has been read."""
        self._position = batch.next_seq_num
        if batch.tail is None:
            self._following = False
            self._tail = max(self._tail, StreamPosition(batch.next_seq_num, batch.columns.timestamps[-1]))
        else:
            self._saw_tail(batch.tail)

    async def _event(self) -> RecordBatch | StreamPosition | Mark:
        """The next event that matters, over as many connections as it takes. May be cancelled: nothing is lost."""
        while True:
            if self._stream is None:
                if not await self._reconnect():
                    return Mark.END
                continue
            try:
                event = self._source.next_event()
                if event is Mark.NEED_DATA:
                    self._source.receive(await self._receive(self._stream))
                    continue
            except OperationFailed as error:
                event = error.failure
            except RemoteProtocolError as error:
                event = self._calls.lost(error.failure.message)
            if event is Mark.END and self._endless:
                event = self._calls.lost("the server ended a read that follows")
            if isinstance(event, Failure):
                await self._lost(event)
                continue
            self._give_up_at = None
            if isinstance(event, RecordBatch):
                self._losses = 0  # a server that only beats, and ends, is not asked again without a pause
            assert isinstance(event, RecordBatch | StreamPosition) or event in (Mark.END, Mark.BEAT)
            return event

    async def _receive(self, stream: HttpStream) -> bytes | bytearray:
        """More of the answer. Raises OperationFailed where the server is silent for too long."""
        now = trio.current_time()
        if self._silent_since is None:
            self._silent_since = now
        seconds = self._settings.watchdog_seconds
        with trio.CancelScope(deadline=max(self._silent_since + seconds, now + _LEAST_PATIENCE)):
            data = await stream.receive()
            self._silent_since = None
            return data
        raise OperationFailed(self._calls.late("frame of a read", seconds))

    # ---- connections ---------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Ask the server. Raises OperationFailed."""
        async with AsyncExitStack() as stack:
            read = self._read
            left = Left(
                self._position if self._begun else None,
                None if read.count is None or self._filters else int(self._left_count),
                None if read.max_bytes is None or self._filters else int(self._left_bytes),
            )
            asked, headers = self._source.begin(left)
            if read.create_config is not None:
                headers = [*headers, ("s2-stream-config", encode_stream_config(read.create_config).decode())]
            stream = await stack.enter_async_context(
                self._calls.open("GET", records_path(read.stream), read.stream.basin, headers, self._query(asked))
            )
            head = await stream.receive_head()
            if head.status != 200:
                later = next((value for name, value in head.headers if name == "retry-after-ms"), None)
                raise OperationFailed(await refusal(stream, head.status, later))
            self._stream, self._stack = stream, stack.pop_all()
            self._silent_since = None
            self._begun = True

    @property
    def _filters(self) -> bool:
        """Whether records are passed over, which the server must not count."""
        return self._identifier is not None and self._identifier.filters

    def _query(self, asked: Left) -> str:
        read = self._read
        start = self._start if asked.seq_num is None else FromSeqNum(asked.seq_num)
        wanted: dict[str, object] = dict(start_query(start))
        if read.clamp:
            wanted["clamp"] = "true"
        for name, value in (("count", asked.count), ("bytes", asked.max_bytes), ("until", read.until)):
            if value is not None:
                wanted[name] = value
        if read.wait is not None:
            # The server counts whole seconds; the end of the wait is decided here.
            wanted["wait"] = math.ceil(read.wait) + 1 if read.wait > 0 else 0
        return "&".join(f"{name}={value}" for name, value in wanted.items())

    async def _lost(self, failure: Failure) -> None:
        """Take note, and decide when to try again. Raises OperationFailed where that is in vain."""
        await self.close()
        now = trio.current_time()
        if self._give_up_at is None:
            self._give_up_at = now + self._settings.recover_seconds
            _log.info("back_read_interrupted", stream=str(self._read.stream), reason=failure.message)
        if not failure.retryable or now >= self._give_up_at:
            raise OperationFailed(failure)
        self._losses += 1
        tried_again(self._calls.back)
        pause = self._pauses.pause(self._losses, random.random()) if self._losses > 1 else 0.0
        self._again_at = now + max(pause, retry_after(failure))

    async def _reconnect(self) -> bool:
        """Try to go on; False where all had been read before the connection was lost."""
        await trio.sleep_until(self._again_at)
        try:
            await self.connect()
        except OperationFailed as error:
            tail = tail_of(error)
            if tail is not None and tail.seq_num == self._position:
                return False
            await self._lost(error.failure)
        return True
