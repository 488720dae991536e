"""Appends on their way: admitted, sequenced, committed, acknowledged.

The order in which appends to a stream are handed over is the order in which they are sequenced, whether they had
to wait for room or not, and whichever session they came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import trio

from penstock.store.admission import Admission
from penstock.store.append_changes import BatchesChange
from penstock.store.attributes import Attributes, Edits
from penstock.store.catalog import Catalog
from penstock.store.committer import Committer, Outcome, Ticket
from penstock.store.heads import Stream
from penstock.store.registry import unknown_stream
from penstock.store.sequencer import Sequenced, check_bytes, sequence, sequence_bytes, validate
from penstock.store.settings import Clock
from penstock.store.tail_cache import TailCaches
from penstock_codecs.byte_layout import Layout, Run, runs_of
from penstock_codecs.byte_operations import NO_ATTRIBUTE, AppendBytes
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.limits import KIB
from penstock_codecs.model import StreamPosition, StreamRef
from penstock_codecs.operations import Append, Appended
from penstock_codecs.streams import StreamConfig

__all__ = ["Appends", "StoreAppendSession"]

MAX_UNRECEIVED: Final = 4096
"""How many acknowledgements of one session may wait to be received before `send` waits too."""
SENDS_PER_PASS: Final = 64
"""After so many appends `send` lets other tasks run: each takes about 40 us, and 4,096 held up everybody for 160 ms."""
BYTES_PER_SEND: Final = 64 * KIB
"""What is in flight of an append counts as one append more for each so many bytes."""
_RECORD_BYTES: Final = 64
"""What a record takes in memory beside its metered bytes, about: it counts towards what is in flight."""


class _Chain:
    """What the appends of one session have in common: after the first failure none is applied."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class _Bytes(NamedTuple):
    """An append of bytes, and the records that they become."""

    append: AppendBytes
    runs: Sequence[Run]


class _Request:
    """One append, from being handed over until it is acknowledged."""

    __slots__ = ("_append", "_appends", "_chain", "_start", "_stream", "size", "ticket")

    def __init__(
        self,
        appends: Appends,
        append: Append | AppendBytes,
        stream: Stream | None,
        chain: _Chain,
        on_settled: Callable[[], object] | None = None,
    ) -> None:
        self._appends = appends
        # Until it is started: acknowledgements may wait to be received for long.
        self._append: Append | _Bytes | None
        if isinstance(append, Append):
            self._append, records, size = append, len(append.bodies), append.metered
        else:
            runs = runs_of(append.data, appends.envelopes)
            self._append, records, size = _Bytes(append, runs), sum(len(run.bodies) for run in runs), len(append.data)
        self._start: trio.Event | None = None  # made only where it must be waited for
        self._stream = stream
        self._chain = chain
        self.size = size + _RECORD_BYTES * records
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


class _AppendChange(BatchesChange):
    """A sequenced append on its way to the disk."""

    __slots__ = ("_appends", "_request")

    def __init__(
        self,
        appends: Appends,
        request: _Request,
        stream: Stream,
        sequenced: Sequenced,
        now: int,
        edits: Edits | None = None,
    ) -> None:
        super().__init__(appends.tail_caches, stream, sequenced, now, edits)
        self._appends = appends
        self._request = request

    def publish(self) -> None:
        parts, head = self.sequenced
        assert head.last_id is not None
        start = StreamPosition(parts[0].row.first_seq, parts[0].row.first_id.ms)
        end = StreamPosition(head.next_seq, head.last_id.ms)
        tail = self.stream.durable.tail
        self._request.ticket.resolve(Appended(start, end, tail, head.last_id, head.next_offset))
        super().publish()
        self._appends.admission.leave(self._request.size)
        if self.commands:
            self._appends.on_trim()

    def undo(self) -> None:
        super().undo()
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
        attributes: Attributes,
        clock: Clock,
        inflight_bytes: int,
        envelopes: Layout,
        on_trim: Callable[[], None],
    ) -> None:
        self.committer = committer
        self.tail_caches = tail_caches
        self.admission = Admission(inflight_bytes)
        self.envelopes = envelopes
        self.on_trim = on_trim
        self._catalog = catalog
        self._attributes = attributes
        self._clock = clock

    async def append(self, append: Append | AppendBytes) -> Appended:
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

    def sequence(self, request: _Request, append: Append | _Bytes, stream: Stream | None) -> None:
        """Decide an append. Raises OperationFailed."""
        if stream is not None and not stream.alive:
            raise unknown_stream(stream.ref)
        if isinstance(append, Append):
            change = self._records(request, append, stream)
        else:
            change = self._bytes(request, append, stream)
        self.committer.add(change)

    def _records(self, request: _Request, append: Append, stream: Stream | None) -> _AppendChange:
        commands = validate(append)
        if stream is None:
            stream, _ = self._catalog.find_or_create(
                append.stream, append.create_if_missing, "create_stream_on_append", append.create_config
            )
        now = self._clock()
        sequenced = sequence(append, commands, stream.head, stream.config, now, self.envelopes)
        return _AppendChange(self, request, stream, sequenced, now)

    def _bytes(self, request: _Request, work: _Bytes, stream: Stream | None) -> _AppendChange:
        append, runs = work
        if not runs:
            raise fail(FailureCode.INVALID, "an append of bytes has at least one")
        stream = stream or self._catalog.find(append.stream)
        writer = append.writer
        position = NO_ATTRIBUTE if writer is None else self._attributes.value(stream, writer.writer)
        check_bytes(append, stream.head, position)
        now = self._clock()
        sequenced = sequence_bytes(runs, stream.head, now)
        edits = None if writer is None else self._attributes.decide(stream, {writer.writer: writer.position})
        return _AppendChange(self, request, stream, sequenced, now, edits)

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

    async def send(self, append: Append | AppendBytes) -> None:
        """Hand over the next batch; see `AppendSession.send`."""
        if isinstance(append, AppendBytes) and append.match_offset is not None:
            raise fail(FailureCode.INVALID, "an append at an offset is not for a session, which could not tell of it")
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
            self._sends += 1 + request.size // BYTES_PER_SEND
            if self._sends < SENDS_PER_PASS:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                self._sends = 0
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
