"""Merges: all bytes of some streams are appended to another, and those streams deleted, as one change.

Sources are sealed first, so that their bytes cannot grow while they are read. After that, sources may still be deleted
or truncated, and the target may change: both are checked when the merge is decided, which is synchronous, like every
decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import accumulate
from typing import Final

from penstock.core.encryption import missing_key
from penstock.model.attributes import updated
from penstock.model.byte_layout import Layout, Run, runs_of
from penstock.model.byte_operations import Attribute, Merge, Merged
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.store.admission import ByteBudget
from penstock.store.append_changes import BatchesChange
from penstock.store.attributes import StoreAttributes
from penstock.store.batches import bytes_of
from penstock.store.catalog import StoreCatalog
from penstock.store.changes import CombinedChange
from penstock.store.committer import CommitOutcome, Committer
from penstock.store.heads import StoredStream
from penstock.store.reader import ReaderThreads, row_from_sql
from penstock.store.registry import unknown_stream
from penstock.store.schema import ReaderConnection
from penstock.store.sequencer import sequence_bytes
from penstock.store.settings import Clock
from penstock.store.tail_cache import TailCaches

__all__ = ["StoreMerges"]

_ALL: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, encoding,
  payload, file, file_offset, file_bytes, checksum
FROM batches INDEXED BY batches_by_seq WHERE stream = ? ORDER BY last_seq
"""
_RECORD_BYTES: Final = 64
"""Approximate memory of a record besides its bytes, as for appends."""


class StoreMerges:
    """The merge operation."""

    def __init__(
        self,
        catalog: StoreCatalog,
        committer: Committer,
        reader: ReaderThreads,
        tail_caches: TailCaches,
        attributes: StoreAttributes,
        admission: ByteBudget,
        clock: Clock,
        envelopes: Layout,
        max_bytes: int,
    ) -> None:
        self._catalog = catalog
        self._committer = committer
        self._reader = reader
        self._tail_caches = tail_caches
        self._attributes = attributes
        self._admission = admission
        self._clock = clock
        self._envelopes = envelopes
        self._max_bytes = max_bytes

    async def merge(self, operation: Merge) -> Merged:
        """Carry out `Merge`. If it fails after a source was sealed, that source stays sealed."""
        with ExitStack() as held:
            try:
                target, *sources = (self._find(ref, held) for ref in (operation.target, *operation.sources))
                self._check(operation, target, sources)
            except OperationFailed as error:
                await self._committer.settle(error.failure)
                raise
            for source in sources:
                self._catalog.decide_seal(source)
            size = sum(source.head.next_offset + _RECORD_BYTES * source.head.next_seq for source in sources)
            async with self._admission.room(size):
                await self._committer.settle(None)  # after this, all bytes to be read are in the file
                runs = [await self._read(source) for source in sources]
                return await self._decide(operation, target, sources, runs)

    def _find(self, ref: StreamRef, held: ExitStack) -> StoredStream:
        """Find a stream and hold it: finding another one may drop from memory what has no holder."""
        stream = self._catalog.find(ref)
        held.enter_context(stream.held())
        return stream

    def _check(self, operation: Merge, target: StoredStream, sources: Sequence[StoredStream]) -> dict[Attribute, int]:
        """Check the conditions of a merge, first and again when it is decided; return the target's new attributes.

        Raises OperationFailed as `Merge` says.
        """
        for stream in (target, *sources):
            if not stream.alive:
                raise unknown_stream(stream.ref)
            if stream.head.cipher is not None:
                raise missing_key(stream.head.cipher, stream.ref)
        if len({target, *sources}) <= len(sources):
            raise fail(FailureCode.INVALID, "a stream cannot be merged with itself, nor twice")
        if target.head.sealed:
            raise fail(FailureCode.STREAM_SEALED, f"stream {target.ref} is sealed")
        total = sum(source.head.next_offset for source in sources)
        if total > self._max_bytes:
            raise fail(
                FailureCode.LIMIT_EXCEEDED,
                f"the streams to merge have {total} bytes, at most {self._max_bytes} are allowed",
            )
        for source in sources:
            if source.head.trim_point or source.head.truncated_at:
                raise fail(
                    FailureCode.INVALID, f"stream {source.ref} is truncated: only complete streams can be merged"
                )
        return self._updates(operation, target)

    def _updates(self, operation: Merge, target: StoredStream) -> dict[Attribute, int]:
        """Return the target's attributes after the merge. Raises OperationFailed(TRANSACTION_CONFLICT)."""
        values: dict[Attribute, int] = {}
        for update in operation.updates:
            attribute = update.attribute
            before = values[attribute] if attribute in values else self._attributes.value(target, attribute)
            values[attribute] = updated(update, before)
        return values

    async def _read(self, source: StoredStream) -> list[Run] | None:
        """Return the records that all bytes of a sealed stream become, or None if some bytes are missing."""
        return await self._reader.run(
            partial(_runs, stream=source.id, length=source.head.next_offset, envelopes=self._envelopes)
        )

    async def _decide(
        self, operation: Merge, target: StoredStream, sources: Sequence[StoredStream], runs: Sequence[list[Run] | None]
    ) -> Merged:
        """Decide the merge, and wait until it is durable. Raises OperationFailed."""
        try:
            values = self._check(operation, target, sources)
            if None in runs:
                raise fail(FailureCode.STORAGE, "bytes of the stream to merge are missing from the store")
            now = self._clock()
            before = target.head
            sequenced = sequence_bytes((run for some in runs if some for run in some), before, now)
            edits = self._attributes.decide(target, values)
        except OperationFailed as error:
            return await self._committer.settle(error.failure)
        lengths = accumulate((source.head.next_offset for source in sources), initial=before.next_offset)
        outcome = CommitOutcome(Merged(tuple(lengths)[1:]))
        appended = BatchesChange(self._tail_caches, target, sequenced, now, edits)
        deleted = [self._catalog.deletion(source) for source in sources]
        self._committer.add(CombinedChange([appended, *deleted, outcome]))
        return await outcome.ticket.wait()


def _runs(db: ReaderConnection, stream: int, length: int, envelopes: Layout) -> list[Run] | None:
    rows = db.execute(_ALL, (stream,))
    data = b"".join([bytes_of(row_from_sql(db, stream, row)) for row in rows])
    return runs_of(data, envelopes) if len(data) == length else None
