"""Appends on their way: admitted, sequenced, committed, acknowledged.

The order in which appends to a stream are handed over is the order in which they are sequenced, whether they had
to wait for room or not, and whichever session they came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from penstock.store.admission import Admission
from penstock.store.catalog import Catalog
from penstock.store.changes import head_statement
from penstock.store.committer import Change, Committer, Outcome, Statement, Ticket
from penstock.store.heads import Stream
from penstock.store.registry import unknown_stream
from penstock.store.sequencer import Sequenced, sequence, validate
from penstock.store.settings import Clock
from penstock.store.tail_cache import TailCaches
from penstock.store.u64 import to_sql
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.model import StreamPosition, StreamRef
from penstock_codecs.operations import Append, Appended
from penstock_codecs.streams import StreamConfig

__all__ = ["Appends", "StoreAppendSession"]

MAX_UNRECEIVED: Final = 4096
"""How many acknowledgements of one session may wait to be received before `send` waits too."""
SENDS_PER_PASS: Final = 64
"""After so many appends `send` lets other tasks run: each takes about 40 us, and 4,096 held up everybody for 160 ms."""
_RECORD_BYTES: Final = 64
"""What a record takes in memory beside its metered bytes, about: it counts towards what is in flight."""

_INSERT_BATCH: Final = """
INSERT INTO batches
  (stream, first_seq, last_seq, first_ts, first_id_seq, last_ts, last_id_seq, count, metered,
   first_offset, end_offset, layout, arrived_at, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class _Chain:
    """What the appends of one session have in common: after the first failure none is applied."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class _Request:
    """One append, from being handed over until it is acknowledged."""

    __slots__ = ("_append", "_appends", "_chain", "_start", "_stream", "size", "ticket")

    def __init__(
        self,
        appends: Appends,
        append: Append,
        stream: Stream | None,
        chain: _Chain,
        on_settled: Callable[[], object] | None = None,
    ) -> None:
        self._appends = appends
        self._append: Append | None = append  # until it is started: acknowledgements may wait to be received for long
        self._start: trio.Event | None = None  # made only where it must be waited for
        self._stream = stream
        self._chain = chain
        self.size = append.metered + _RECORD_BYTES * len(append.bodies)
        self.ticket: Ticket[Appended] = Ticket(on_settled)

    def start(self) -> bool:
        """Sequence it. See `Applicant`."""
        append, self._append = self._append, None
        if self._start is not None:
            self._start.set()
        if self._chain.broken or append is None:
            return False
        try:
            self._appends.sequence(self, append, self._stream)
        except OperationFailed as error:
            self.break_chain()
            outcome: Outcome[Appended] = Outcome(error.failure)
            outcome.ticket = self.ticket
            self._appends.committer.add(outcome)
            return False
        return True

    @property
    def started(self) -> bool:
        """Whether it waits for room no longer."""
        return self._append is None

    async def wait_started(self) -> None:
        """Wait for room."""
        self._start = trio.Event()
        await self._start.wait()

    def break_chain(self) -> None:
        """It has failed or is about to: nothing that was sent after it is applied."""
        self._chain.broken = True


class _AppendChange(Change):
    """A sequenced append on its way to the disk."""

    __slots__ = ("_appends", "_request", "_sequenced", "_stream")

    def __init__(
        self,
        appends: Appends,
        request: _Request,
        stream: Stream,
        sequenced: Sequenced,
        statements: list[Statement],
    ) -> None:
        super().__init__(statements, len(sequenced.row.payload))
        self._appends = appends
        self._request = request
        self._stream = stream
        self._sequenced = sequenced

    def commit(self) -> None:
        self._stream.durable = self._sequenced.head
        self._appends.tail_caches.push(self._stream.recent, self._sequenced.batch)

    def publish(self) -> None:
        stream, (batch, row, span, head) = self._stream, self._sequenced
        tail = batch.tail = stream.durable.tail
        assert head.last_id is not None
        start = StreamPosition(row.first_seq, row.first_id.ms)
        end = StreamPosition(head.next_seq, head.last_id.ms)
        self._request.ticket.resolve(Appended(start, end, tail, head.last_id, span.end_offset))
        stream.followers.unpark_all()
        self._appends.admission.leave(self._request.size)
        if len(self.statements) > 1:  # a fence or a trim
            self._appends.on_trim()

    def undo(self) -> None:
        self._stream.head = self._stream.durable
        self._request.break_chain()  # before the room of any other is given to those that wait behind this one

    def reject(self, failure: Failure) -> None:
        self._request.ticket.fail(failure)
        self._appends.admission.leave(self._request.size)


class Appends:
    """Takes appends, in order."""

    def __init__(
        self,
        catalog: Catalog,
        committer: Committer,
        tail_caches: TailCaches,
        clock: Clock,
        inflight_bytes: int,
        on_trim: Callable[[], None],
    ) -> None:
        self.committer = committer
        self.tail_caches = tail_caches
        self.admission = Admission(inflight_bytes)
        self.on_trim = on_trim
        self._catalog = catalog
        self._clock = clock

    async def append(self, append: Append) -> Appended:
        """Carry out one append; it is sequenced before the first checkpoint unless it must wait for room.

        Cancelled while it waits for room it is withdrawn; later it may become durable all the same.
        """
        request = _Request(self, append, None, _Chain())
        self.admission.enter(request)
        try:
            return await request.ticket.wait()
        except trio.Cancelled:
            self.withdraw(request)
            raise

    def withdraw(self, request: _Request) -> bool:
        """Take an append back unless it was sequenced; gives whether that was in time."""
        if request.started:
            return False
        self.admission.withdraw(request)
        return True

    def sequence(self, request: _Request, append: Append, stream: Stream | None) -> None:
        """Decide an append. Raises OperationFailed."""
        commands = validate(append)
        if stream is None:
            stream, _ = self._catalog.find_or_create(
                append.stream, append.create_if_missing, "create_stream_on_append", append.create_config
            )
        elif not stream.alive:
            raise unknown_stream(stream.ref)
        now = self._clock()
        before = stream.head
        sequenced = sequence(append, commands, before, stream.config, now)
        _, row, span, head = sequenced
        first, last = row.first_id, head.last_id
        assert last is not None
        values = (
            stream.id,
            to_sql(row.first_seq),
            to_sql(row.last_seq),
            to_sql(first.ms),
            to_sql(first.seq),
            to_sql(last.ms),
            to_sql(last.seq),
            row.records,
            row.metered,
            span.first_offset,
            span.end_offset,
            span.layout,
            now,
            row.payload,
        )
        statements: list[Statement] = [(_INSERT_BATCH, values)]
        if head.fencing_token != before.fencing_token or head.trim_point != before.trim_point:
            statements.append(head_statement(stream, head, now))
        stream.head = head
        self.committer.add(_AppendChange(self, request, stream, sequenced, statements))

    @asynccontextmanager
    async def session(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[StoreAppendSession]:
        """Pipelined appends to one stream; see `Back.append_session`."""
        try:
            stream, created = self._catalog.find_or_create(
                ref, create_if_missing, "create_stream_on_append", create_config
            )
        except OperationFailed as error:
            await self.committer.settle(error.failure)
            raise
        stream.users += 1
        try:
            if created is not None:
                await created.wait()
            yield StoreAppendSession(self, stream)
        finally:
            stream.users -= 1


class StoreAppendSession:
    """See `AppendSession`. Bound to the stream that it found, not to one that takes its name later."""

    def __init__(self, appends: Appends, stream: Stream) -> None:
        self._appends = appends
        self._stream = stream
        self._chain = _Chain()
        self._requests: deque[_Request] = deque()
        self._settled = trio.lowlevel.ParkingLot()  # wait here for a request to be settled, or for the end;
        self._received = trio.lowlevel.ParkingLot()  # and here for acknowledgements to be received
        self._sends = 0
        self._failure: Failure | None = None
        self._closed = False

    async def send(self, append: Append) -> None:
        """Hand over the next batch; see `AppendSession.send`."""
        while len(self._requests) >= MAX_UNRECEIVED and not self._chain.broken:
            await self._received.park()
        if self._chain.broken:
            await trio.lowlevel.checkpoint()
            return
        request = _Request(self._appends, append, self._stream, self._chain, self._settled.unpark_all)
        self._requests.append(request)
        self._appends.admission.enter(request)
        if request.started:
            # Nearly always; a pass through the scheduler for each would cost more than the append itself.
            self._sends += 1
            if self._sends % SENDS_PER_PASS:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
            return
        try:
            await request.wait_started()
        except trio.Cancelled:
            if self._appends.withdraw(request) and self._failure is None:  # then they are gone already
                self._requests.remove(request)
                self._settled.unpark_all()
            raise

    def close(self) -> None:
        """Nothing more will be sent; see `AppendSession.close`."""
        self._closed = True
        self._settled.unpark_all()

    async def receive(self) -> list[Appended]:
        """The acknowledgements that are ready; see `AppendSession.receive`."""
        await trio.lowlevel.checkpoint_if_cancelled()  # not once they are taken: they would be lost
        while True:
            if acknowledged := self._take_acknowledged():
                return acknowledged
            if self._requests and (failure := self._requests[0].ticket.failure) is not None:
                self._failure = failure
                self._requests.clear()
                self._received.unpark_all()
            if self._failure is not None:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._failure)
            if self._closed and not self._requests:
                await trio.lowlevel.checkpoint()
                return []
            await self._settled.park()

    def _take_acknowledged(self) -> list[Appended]:
        acknowledged = []
        while self._requests and (appended := self._requests[0].ticket.result) is not None:
            acknowledged.append(appended)
            self._requests.popleft()
        if acknowledged:
            self._received.unpark_all()
        return acknowledged
