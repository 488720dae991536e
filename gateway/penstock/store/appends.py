"""Appends to the store: sequenced in order, committed, acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain

from penstock.core.encryption import EncryptionKey, missing_key
from penstock.core.identity import CLIENT
from penstock.store.admission import ByteBudget
from penstock.store.append_changes import BatchesChange
from penstock.store.append_sessions import (
    RECORD_OVERHEAD_BYTES,
    AppendChain,
    BytesAndRuns,
    KeyedAppend,
    StoreAppend,
    StoreAppendSession,
    Work,
    append_alone,
)
from penstock.store.attributes import Edits, StoreAttributes
from penstock.store.catalog import StoreCatalog
from penstock.store.committer import CommitOutcome, Committer, Ticket
from penstock.store.encryption import record_cipher
from penstock.store.heads import StoredStream
from penstock.store.key_checks import KeyChecks
from penstock.store.registry import unknown_stream
from penstock.store.sequencer import (
    Sequenced,
    SequencedBatch,
    check_bytes,
    check_sealed,
    check_writer,
    keep_event_times,
    parts_of,
    sequence,
    sequence_bytes,
    validate,
)
from penstock.store.settings import Clock
from penstock.store.tail_cache import TailCaches
from penstock.store.usage import Usage
from penstock_codecs.byte_layout import Layout, runs_of
from penstock_codecs.byte_operations import NO_ATTRIBUTE, AppendAs, AppendBytes, WriterPosition
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.model import BatchPart, StreamPosition, StreamRef
from penstock_codecs.operations import Append, Appended
from penstock_codecs.streams import StreamConfig

__all__ = ["StoreAppends"]


class _AppendChange(BatchesChange):
    """The change of one sequenced append."""

    __slots__ = ("_appends", "_request", "_restamped")

    def __init__(
        self,
        appends: StoreAppends,
        request: StoreAppend,
        stream: StoredStream,
        sequenced: Sequenced,
        now: int,
        edits: Edits | None = None,
        restamped: int | None = None,
    ) -> None:
        super().__init__(appends.tail_caches, stream, sequenced, now, edits)
        self._appends = appends
        self._request = request
        self._restamped = restamped

    def publish(self) -> None:
        parts, head = self.sequenced
        assert head.last_id is not None
        start = StreamPosition(parts[0].row.first_seq, parts[0].row.first_id.ms)
        end = StreamPosition(head.next_seq, head.last_id.ms)
        tail = self.stream.durable.tail
        self._request.ticket.resolve(Appended(start, end, tail, head.last_id, head.next_offset, self._restamped))
        super().publish()
        self._appends.admission.leave(self._request.size)
        stream, metered = self.stream, parts[0].row.metered if len(parts) == 1 else sum(p.row.metered for p in parts)
        storage_class = stream.durable.config.storage_class or ""
        self._appends.usage.appended(stream.basin.name, storage_class, metered, head.last_modified)
        if self.commands:
            self._appends.on_trim()

    def undo(self) -> None:
        super().undo()
        self._request.break_chain()  # before any room is given back, which would start later appends of the chain

    def reject(self, failure: Failure) -> None:
        self._request.ticket.fail(failure)
        self._appends.admission.leave(self._request.size)


class StoreAppends:
    """Takes appends in order."""

    def __init__(
        self,
        catalog: StoreCatalog,
        committer: Committer,
        tail_caches: TailCaches,
        attributes: StoreAttributes,
        key_checks: KeyChecks,
        clock: Clock,
        inflight_bytes: int,
        envelopes: Layout,
        on_trim: Callable[[], None],
        usage: Usage,
    ) -> None:
        self.committer = committer
        self.tail_caches = tail_caches
        self.admission = ByteBudget(inflight_bytes)
        self.envelopes = envelopes
        self.on_trim = on_trim
        self.usage = usage
        self._catalog = catalog
        self._attributes = attributes
        self._key_checks = key_checks
        self._clock = clock

    async def append(self, append: Append | AppendBytes) -> Appended:
        """Carry out one append; see `append_alone`."""
        return await append_alone(self, append)

    def requested(
        self,
        append: Append | AppendBytes | KeyedAppend,
        target: StoredStream | None,
        chain: AppendChain,
        ticket: Ticket[Appended],
    ) -> StoreAppend:
        """Return the request for an append that is about to be handed over; without a target it looks up its stream."""
        work: Work
        if isinstance(append, Append):
            work, size = append, append.metered + RECORD_OVERHEAD_BYTES * len(append.bodies)
        elif isinstance(append, KeyedAppend):
            work, size = append, append.append.metered + RECORD_OVERHEAD_BYTES * len(append.append.bodies)
        else:
            runs = runs_of(append.data, self.envelopes)
            work = BytesAndRuns(append, runs)
            size = len(append.data) + RECORD_OVERHEAD_BYTES * sum(len(run.bodies) for run in runs)
        return StoreAppend(self, work, size, target, chain, ticket)

    def sequence(self, request: StoreAppend, work: Work, target: StoredStream | None) -> None:
        """Decide an append that has room. When it is durable, its ticket is settled and its room is given back.

        Raises OperationFailed.
        """
        if target is not None and not target.alive:
            raise unknown_stream(target.ref)
        if isinstance(work, Append):
            change = self._records(request, work, None, target)
        elif isinstance(work, KeyedAppend):
            change = self._records(request, *work, target)
        else:
            change = self._bytes(request, work, target)
        self.committer.add(change)

    def refuse(self, request: StoreAppend, failure: Failure) -> None:
        """Fail the request's ticket, once all decisions that the failure depends on are durable."""
        outcome: CommitOutcome[Appended] = CommitOutcome(failure)
        outcome.ticket = request.ticket
        self.committer.add(outcome)

    def _records(
        self,
        request: StoreAppend,
        append: Append,
        key: EncryptionKey | None,
        stream: StoredStream | None,
    ) -> _AppendChange:
        commands = validate(append)
        if stream is None:
            stream, _ = self._catalog.find_or_create(
                append.stream, append.create_if_missing, "create_stream_on_append", append.create_config
            )
        parts: Sequence[BatchPart] = ()
        head, cipher = stream.head, record_cipher(stream, key)
        now = self._clock()
        if append.event_times:
            append = keep_event_times(append, head, stream.config, now)
        if cipher is not None:
            head = head._replace(key_check=self._key_checks.value(stream, cipher))
            parts = parts_of(append)
            append = cipher.sealed(append, head.next_seq)
        writer = append.writer if isinstance(append, AppendAs) else None
        if writer is not None:
            check_sealed(head)
            check_writer(writer, self._attributes.value(stream, writer.writer))
        sequenced = sequence(append, commands, head, stream.config, now, self.envelopes, parts)
        edits = None if writer is None else self._edits(stream, writer)
        restamped = _restamped(append, sequenced.parts)
        return _AppendChange(self, request, stream, sequenced, now, edits, restamped)

    def _edits(self, stream: StoredStream, writer: WriterPosition) -> Edits:
        return self._attributes.decide(stream, {writer.writer: writer.position})

    def _bytes(self, request: StoreAppend, work: BytesAndRuns, stream: StoredStream | None) -> _AppendChange:
        append, runs = work
        if not runs:
            raise fail(FailureCode.INVALID, "an append of bytes has at least one")
        stream = stream or self._catalog.find(append.stream)
        if stream.head.cipher is not None:
            raise missing_key(stream.head.cipher, stream.ref)
        writer = append.writer
        position = NO_ATTRIBUTE if writer is None else self._attributes.value(stream, writer.writer)
        check_bytes(append, stream.head, position)
        now = self._clock()
        sequenced = sequence_bytes(runs, stream.head, now)
        edits = None if writer is None else self._edits(stream, writer)
        return _AppendChange(self, request, stream, sequenced, now, edits)

    @asynccontextmanager
    async def place(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool, key: EncryptionKey | None
    ) -> AsyncIterator[StoredStream]:
        """Find or create the stream that a session is bound to, and hold it until the block ends. `key`: the one that
        the client presented.

        Raises OperationFailed.
        """
        try:
            stream, created = self._catalog.find_or_create(
                ref, create_if_missing, "create_stream_on_append", create_config
            )
            cipher = record_cipher(stream, key)
            if cipher is not None:
                self._key_checks.value(stream, cipher)
        except OperationFailed as error:
            await self.committer.settle(error.failure)
            raise
        with stream.held():
            if created is not None:
                await created.wait()
            yield stream

    @asynccontextmanager
    async def session(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[StoreAppendSession]:
        """Open a session of pipelined appends to one stream; see `Back.append_session`."""
        key = CLIENT.get().encryption_key
        async with self.place(ref, create_config, create_if_missing, key) as stream:
            yield StoreAppendSession(self, stream, None if stream.head.cipher is None else key)


def _restamped(append: Append, parts: Sequence[SequencedBatch]) -> int:
    """Return how many records have another timestamp than their client gave."""
    if append.timestamps is None:
        return 0
    timestamps = chain.from_iterable([part.batch.columns.timestamps for part in parts])
    return sum(given not in (None, stored) for given, stored in zip(append.timestamps, timestamps, strict=True))
