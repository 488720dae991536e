"""The change that adds sequenced batches to a stream."""

from __future__ import annotations

from typing import Final

from penstock.model.record_encoding import RECORDS
from penstock.store.attributes import Edits
from penstock.store.changes import head_statement
from penstock.store.committer import Change, Statement
from penstock.store.heads import StoredStream
from penstock.store.payload_files import BatchParameters
from penstock.store.sequencer import Sequenced, SequencedBatch
from penstock.store.tail_cache import TailCaches
from penstock.store.u64 import to_sql

__all__ = ["BatchesChange"]

_INSERT_BATCH: Final = """
INSERT INTO batches
  (stream, first_seq, last_seq, first_ts, first_id_seq, last_ts, last_id_seq, count, metered,
   first_offset, end_offset, layout, arrived_at, payload, encoding,
   file, file_offset, file_bytes, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class BatchesChange(Change):
    """The batches that one append or merge adds to a stream; they become durable and visible together.

    The stream's head moves when this is constructed. `edits`: attributes that change with it. `commands`: whether it
    has command records that changed the head.
    """

    __slots__ = ("_edits", "_tail_caches", "commands", "sequenced", "stream")

    def __init__(
        self, tail_caches: TailCaches, stream: StoredStream, sequenced: Sequenced, now: int, edits: Edits | None = None
    ) -> None:
        before, head = stream.head, sequenced.head
        statements: list[Statement] = []
        size = 0
        for part in sequenced.parts:
            statements.append(_insertion(stream.id, part, now))
            size += len(part.row.payload)
        self.commands = head.fencing_token != before.fencing_token or head.trim_point != before.trim_point
        if self.commands or head.key_check is not before.key_check:
            statements.append(head_statement(stream, head, now))
        if edits is not None:
            statements += edits.statements
        super().__init__(statements, size)
        self.stream = stream
        self.sequenced = sequenced
        self._tail_caches = tail_caches
        self._edits = edits
        stream.head = head

    def commit(self) -> None:
        stream, (parts, head) = self.stream, self.sequenced
        stream.durable = head
        for part in parts:
            self._tail_caches.push(stream.recent, part.batch, part.span)
        if self._edits is not None:
            self._edits.commit()

    def publish(self) -> None:
        tail = self.stream.durable.tail
        for part in self.sequenced.parts:
            part.batch.tail = tail
        self.stream.followers.unpark_all()

    def undo(self) -> None:
        self.stream.head = self.stream.durable
        if self._edits is not None:
            self._edits.undo()


def _insertion(stream: int, part: SequencedBatch, now: int) -> Statement:
    _, row, span, last = part
    first = row.first_id
    parameters = (
        stream,
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
        int(span.layout),  # for any type but int, sqlite3 searches for an adapter: 3 us
        now,
        row.payload,
        None if row.encoding == RECORDS else row.encoding,
        None,
        None,
        None,
        None,
    )
    return _INSERT_BATCH, BatchParameters(parameters)
