"""Appends to the store, from being handed over until they are acknowledged.

Appends to a stream are sequenced in the order in which they are handed over, whether they had to wait for room or not,
over all sessions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Final

import trio

from penstock.core.encryption import EncryptionKey, missing_key
from penstock.core.identity import CLIENT
from penstock.model.byte_layout import Layout, Run, runs_of
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendAs, AppendBytes, WriterPosition
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended
from penstock.model.records import BatchPart, StreamPosition, StreamRef
from penstock.model.streams import StreamConfig
from penstock.store.admission import ByteBudget
from penstock.store.append_changes import BatchesChange
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

__all__ = ["RECORD_OVERHEAD_BYTES", "AppendChain", "StoreAppend", "StoreAppends"]

RECORD_OVERHEAD_BYTES: Final = 64
"""Approximate memory of a record besides its metered bytes; it counts as bytes in flight."""


class AppendChain:
    """The appends of one session: after the first failure none is applied."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class StoreAppend:
    """One append, from being handed over until it is acknowledged.

    `target`: its stream; None: the one of its name when it starts. `key`: the one that its client presented. `size`:
    bytes of the budget that it takes.
    """

    __slots__ = ("_append", "_appends", "_chain", "_key", "_runs", "_start", "_target", "size", "ticket")

    def __init__(
        self,
        appends: StoreAppends,
        append: Append | AppendBytes,
        target: StoredStream | None,
        key: EncryptionKey | None,
        chain: AppendChain,
        ticket: Ticket[Appended],
    ) -> None:
        self._appends = appends
        self._append: Append | AppendBytes | None = append
        self._target = target
        self._key = key
        self._chain = chain
        self._start: trio.Event | None = None  # made only if it must wait
        self.ticket = ticket
        self._runs: Sequence[Run] = ()
        if isinstance(append, Append):
            self.size = append.metered + RECORD_OVERHEAD_BYTES * len(append.bodies)
        else:
            self._runs = runs_of(append.data, appends.envelopes)
            self.size = len(append.data) + RECORD_OVERHEAD_BYTES * sum(len(run.bodies) for run in self._runs)

    def start(self) -> bool:
        """Sequence the append; see `Applicant.start`."""
        append, runs, key = self._append, self._runs, self._key
        self._append, self._runs, self._key = None, (), None  # an acknowledgement may wait long to be received
        if self._start is not None:
            self._start.set()
        if self._chain.broken or append is None:
            return False
        try:
            if isinstance(append, Append):
                self._appends.decide_records(self, append, self._target, key)
            else:
                self._appends.decide_bytes(self, append, runs, self._target)
        except OperationFailed as error:
            self.break_chain()
            self._appends.refuse(self, error.failure)
            return False
        return True

    @property
    def started(self) -> bool:
        """True if it no longer waits for room."""
        return self._append is None

    async def wait_started(self) -> None:
        """Wait until it has been started."""
        self._start = trio.Event()
        await self._start.wait()

    def break_chain(self) -> None:
        """Break the chain: no append that was sent after this one is applied."""
        self._chain.broken = True

    def withdraw(self) -> bool:
        """Withdraw the append unless it was started. Return whether it was withdrawn."""
        if self.started:
            return False
        self._appends.admission.withdraw(self)
        return True


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
        """Carry out one append; it is sequenced before the first checkpoint unless it must wait for room.

        Cancelling withdraws an append that waits for room; a later one may still become durable.
        """
        request = StoreAppend(self, append, None, CLIENT.get().encryption_key, AppendChain(), Ticket())
        self.admission.enter(request)
        try:
            return await request.ticket.wait()
        except trio.Cancelled:
            request.withdraw()
            raise

    def refuse(self, request: StoreAppend, failure: Failure) -> None:
        """Fail the request's ticket, once all decisions that the failure depends on are durable."""
        outcome: CommitOutcome[Appended] = CommitOutcome(failure)
        outcome.ticket = request.ticket
        self.committer.add(outcome)

    def decide_records(
        self, request: StoreAppend, append: Append, stream: StoredStream | None, key: EncryptionKey | None
    ) -> None:
        """Decide an append of records that has room. When it is durable, its ticket is settled and its room is given
        back. `stream`: None to find the one of its name. Raises OperationFailed."""
        _check_alive(stream)
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
        self.committer.add(_AppendChange(self, request, stream, sequenced, now, edits, restamped))

    def _edits(self, stream: StoredStream, writer: WriterPosition) -> Edits:
        return self._attributes.decide(stream, {writer.writer: writer.position})

    def decide_bytes(
        self, request: StoreAppend, append: AppendBytes, runs: Sequence[Run], stream: StoredStream | None
    ) -> None:
        """Decide an append of bytes, as `decide_records` does."""
        _check_alive(stream)
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
        self.committer.add(_AppendChange(self, request, stream, sequenced, now, edits))

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


def _check_alive(stream: StoredStream | None) -> None:
    """Raise STREAM_NOT_FOUND if this stream was deleted."""
    if stream is not None and not stream.alive:
        raise unknown_stream(stream.ref)


def _restamped(append: Append, parts: Sequence[SequencedBatch]) -> int:
    """Return how many records have another timestamp than their client gave."""
    if append.timestamps is None:
        return 0
    timestamps = chain.from_iterable([part.batch.columns.timestamps for part in parts])
    return sum(requested not in (None, stored) for requested, stored in zip(append.timestamps, timestamps, strict=True))
