"""An append decided ahead, by somebody who believes that he knows the stream's head.

Whoever hands an append over (a worker, `penstock.workers`) decides it on the head as it knows that, payload and all;
the store looks whether that is still the head, and otherwise decides anew. So what is dear about an append, its
encoding, is done by whoever has the time for it, and sequencing stays in one place.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.store.batches import Row, Span, decode
from penstock.store.heads import StreamHead
from penstock.store.sequencer import Part, Sequenced, check_conditions, check_sealed, sequence, validate
from penstock_codecs.byte_layout import Layout
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import RecordBatch, RecordId, StreamRef, Wire
from penstock_codecs.operations import Append
from penstock_codecs.s2.protobuf import S2_RECORDS
from penstock_codecs.streams import StreamConfig

__all__ = ["Foreseen", "Known", "again", "confirmed", "foresee"]


class Known(NamedTuple):
    """What of a stream an append without timestamps depends on, apart from its conditions: the number, identifier and
    byte that come next, and the timestamping of its resolved configuration."""

    next_seq: int
    last_id: RecordId | None
    next_offset: int
    config: StreamConfig

    @classmethod
    def of(cls, head: StreamHead, config: StreamConfig) -> Known:
        """Of a head; `config` is resolved."""
        return cls(head.next_seq, head.last_id, head.next_offset, config)


class Foreseen(NamedTuple):
    """An append as it will be if the stream's tail is where its records begin: after `before`, at byte `offset`.

    `payload`: the records as S2 has them (`S2_RECORDS`), numbered. They have no timestamps of the client's and hold no
    commands. `timestamping`: that of the configuration it was decided by. `size`: the room that it takes in flight.
    """

    size: int
    payload: bytes
    records: int
    metered: int
    layout: int
    offset: int
    end_offset: int
    first_seq: int
    before: RecordId | None
    first_id: RecordId
    last_id: RecordId
    arrived_at: int
    timestamping: tuple[object, object]
    match_seq_num: int | None
    fencing_token: str | None


def _timestamping(config: StreamConfig) -> tuple[object, object]:
    mode = config.timestamping_mode
    return None if mode is None else mode.value, config.timestamping_uncapped


def foresee(append: Append, known: Known, now: int, envelopes: Layout, size: int) -> tuple[Foreseen, Known] | None:
    """Decide an append on what is known, and what is known after it; None for one that only the store can decide."""
    if append.timestamps is not None or append.exact_timestamp is not None:
        return None
    before = known.last_id
    head = StreamHead(known.config, next_seq=known.next_seq, last_id=before, next_offset=known.next_offset)
    try:
        if validate(append):
            return None
        unconditional = Append(append.stream, append.bodies, append.metered, append.headers)
        (part,), after = sequence(unconditional, (), head, known.config, now, envelopes)
    except OperationFailed:
        return None  # the store will say so itself, if it is so
    row, span = part.row, part.span
    foreseen = Foreseen(
        size,
        row.payload,
        row.records,
        row.metered,
        int(row.layout),
        span.first_offset,
        span.end_offset,
        row.first_seq,
        before,
        row.first_id,
        part.last_id,
        now,
        _timestamping(known.config),
        append.match_seq_num,
        append.fencing_token,
    )
    return foreseen, known._replace(next_seq=after.next_seq, last_id=after.last_id, next_offset=after.next_offset)


def confirmed(foreseen: Foreseen, head: StreamHead, config: StreamConfig) -> Sequenced | None:
    """What was foreseen, where it was foreseen rightly; else None.

    Raises OperationFailed as `sequence` does for a stream that is sealed and for conditions that do not hold.
    """
    check_sealed(head)
    check_conditions(foreseen.match_seq_num, foreseen.fencing_token, head)
    rightly = (
        foreseen.first_seq == head.next_seq
        and foreseen.before == head.last_id
        and foreseen.offset == head.next_offset
        and foreseen.timestamping == _timestamping(config)
    )
    if not rightly:
        return None
    layout, first_id, last_id = Layout(foreseen.layout), foreseen.first_id, foreseen.last_id
    next_seq = foreseen.first_seq + foreseen.records
    batch = RecordBatch.from_wire(
        Wire(S2_RECORDS, foreseen.payload),
        decode,
        count=foreseen.records,
        first_seq_num=foreseen.first_seq,
        metered=foreseen.metered,
        first_id=first_id,
    )
    row = Row(next_seq - 1, foreseen.records, foreseen.metered, first_id, layout, foreseen.payload)
    part = Part(batch, row, Span(foreseen.offset, foreseen.end_offset, layout), last_id)
    after = head._replace(
        next_seq=next_seq, last_id=last_id, next_offset=foreseen.end_offset, last_modified=foreseen.arrived_at
    )
    return Sequenced((part,), after)


def again(foreseen: Foreseen, stream: StreamRef) -> Append:
    """The append that was foreseen wrongly, to be decided anew. Raises OperationFailed(STORAGE) for broken bytes."""
    columns = decode(foreseen.payload)
    return Append(
        stream,
        columns.bodies,
        foreseen.metered,
        columns.headers,
        match_seq_num=foreseen.match_seq_num,
        fencing_token=foreseen.fencing_token,
    )
