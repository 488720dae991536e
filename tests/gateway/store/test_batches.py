"""Cutting batches, and positions within them: number to identifier to timestamp and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.byte_layout import Layout, byte_length, event_of, to_bytes
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp
from penstock.model.record_encoding import RECORDS, encode_records
from penstock.model.records import (
    U64_MAX,
    Columns,
    Header,
    RecordBatch,
    RecordId,
    StreamPosition,
    WireBytes,
    id_at,
    metered_size,
    next_record_id,
)
from penstock.store.batches import (
    BatchRow,
    ByteSpan,
    all_have_bytes,
    batch_of_rows,
    index_of,
    index_of_id,
    join,
    located,
    seq_num_at,
)
from penstock_s2.codec.protobuf import read_batch_pieces

NEAR = st.integers(0, 6)


@st.composite
def stored(draw: st.DrawFn) -> RecordBatch:
    """A batch as the store has it: timestamps that never fall, the first record somewhere within its ms."""
    timestamps = sorted(draw(st.lists(st.one_of(NEAR, st.integers(U64_MAX - 2, U64_MAX)), min_size=1, max_size=12)))
    bodies = draw(st.lists(st.binary(max_size=4), min_size=len(timestamps), max_size=len(timestamps)))
    heads = draw(st.dictionaries(st.integers(0, len(bodies) - 1), st.just((Header(b"n", b"v"),)), max_size=2))
    first = draw(st.integers(0, 50))
    columns = Columns(range(first, first + len(bodies)), timestamps, bodies, heads)
    batch = RecordBatch(columns, first_id=RecordId(timestamps[0], draw(NEAR)), tail=StreamPosition(99, U64_MAX))
    batch.wire = WireBytes(RECORDS, (encode_records(columns),))
    return batch


LAYOUTS = st.sampled_from([Layout.PLAIN, Layout.ENVELOPE_HEADERS, Layout.ENVELOPE_EMPTY, Layout.RAW, Layout.SENT])


def span_of(batch: RecordBatch, layout: Layout) -> ByteSpan:
    return ByteSpan(100, 100 + byte_length(batch.columns, layout), layout)


@given(stored(), LAYOUTS)
def test_positions_round_trip(batch: RecordBatch, layout: Layout) -> None:
    span = span_of(batch, layout)
    timestamps = batch.columns.timestamps
    assert batch.first_id is not None
    last = None
    for index, found in enumerate(batch.record_ids()):
        assert found == id_at(timestamps, batch.first_id, index)
        assert last is None or found == next_record_id(last, timestamps[index])
        last = found
        position = located(batch, index, span)
        assert (position.seq_num, position.timestamp, position.record_id) == (
            batch.first_seq_num + index,
            timestamps[index],
            found,
        )
        assert index_of(FromRecordId(found), batch, span) == index
        assert index_of(FromSeqNum(position.seq_num), batch, span) == index
        assert index_of(FromTimestamp(position.timestamp), batch, span) == timestamps.index(position.timestamp)


@given(stored(), LAYOUTS)
def test_bytes_belong_to_records(batch: RecordBatch, layout: Layout) -> None:
    span = span_of(batch, layout)
    offset = span.first_offset
    without_bytes = 0
    for index, record in enumerate(batch.records()):
        event = event_of(record.headers, record.body, layout)
        assert located(batch, index, span).offset == offset
        assert index_of(FromByteOffset(offset), batch, span) == index - without_bytes
        assert index_of(FromByteOffset(offset - 1), batch, span) <= index - without_bytes
        for byte in range(offset, offset + len(event)):
            assert seq_num_at(byte, batch, span) == record.seq_num
        offset += len(event)
        without_bytes = 0 if event else without_bytes + 1
        if without_bytes and layout is not Layout.RAW:  # raw records are never empty
            assert not all_have_bytes(span, batch.metered)
    assert index_of(FromByteOffset(offset + 1), batch, span) == batch.count


@given(stored(), st.one_of(NEAR, st.integers(U64_MAX - 3, U64_MAX)), st.one_of(NEAR, st.just(U64_MAX)))
def test_searches_find_the_first_at_or_after(batch: RecordBatch, ms: int, seq: int) -> None:
    assert batch.first_id is not None
    wanted = RecordId(ms, seq)
    ids = list(batch.record_ids())
    first = next((index for index, found in enumerate(ids) if found >= wanted), batch.count)
    assert index_of_id(batch.columns.timestamps, batch.first_id, wanted) == first


@given(stored(), st.data())
def test_a_part_is_what_was_between(batch: RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.count - 1))
    stop = data.draw(st.integers(start + 1, batch.count))
    part = batch.part(start, stop)
    assert list(part.records()) == list(batch.records())[start:stop]
    assert list(part.record_ids()) == list(batch.record_ids())[start:stop]
    assert part.metered == metered_size(part.columns.bodies, part.columns.headers)
    assert part.tail == (batch.tail if stop == batch.count else None)
    assert (part is batch) == (part.count == batch.count)


@given(stored(), st.integers(0, 150))
def test_what_fits_is_the_longest_beginning(batch: RecordBatch, max_bytes: int) -> None:
    count = batch.fitting(max_bytes)
    assert count == 0 or batch.part(0, count).metered <= max_bytes
    assert count == batch.count or batch.part(0, count + 1).metered > max_bytes


@given(stored(), st.data())
def test_what_was_cut_can_be_joined(batch: RecordBatch, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, batch.count))
    parts = [batch.part(start, stop) for start, stop in ((0, at), (at, batch.count)) if start < stop]
    for part in parts:
        part.wire = WireBytes(RECORDS, (encode_records(part.columns),))
    if data.draw(st.booleans()):
        parts[0].wire = None
    joined = join(parts, batch.tail)
    assert list(joined.records()) == list(batch.records())
    assert list(joined.record_ids()) == list(batch.record_ids())
    assert (joined.count, joined.metered, joined.tail) == (batch.count, batch.metered, batch.tail)


@given(st.lists(st.tuples(LAYOUTS, st.lists(st.binary(max_size=4), min_size=1, max_size=3)), min_size=1, max_size=4))
def test_rows_of_all_kinds_are_one_batch(kinds: list[tuple[Layout, list[bytes]]]) -> None:
    """Rows that hold bytes have one timestamp each; their records are derived from the bytes."""
    rows, expected = [], []
    last = None
    for number, (layout, bodies) in enumerate(kinds):
        bodies = bodies[:1] if layout is Layout.RAW else bodies
        columns = Columns(range(len(expected), len(expected) + len(bodies)), [number // 2] * len(bodies), bodies)
        first_id = next_record_id(last, number // 2)
        payload = to_bytes(columns, layout) if layout.is_exact else encode_records(columns)
        rows.append(BatchRow(columns.seq_nums[-1], len(bodies), metered_size(bodies, {}), first_id, layout, payload))
        expected += [(number // 2, body) for body in bodies]
        last = RecordId(first_id.ms, first_id.seq + len(bodies) - 1)
    batch = batch_of_rows(rows, StreamPosition(9, 9))
    assert [(record.timestamp, record.body) for record in batch.records()] == expected
    assert [record.seq_num for record in batch.records()] == list(range(len(expected)))
    assert list(batch.record_ids())[-1] == last
    assert (batch.count, batch.metered) == (len(expected), sum(row.metered for row in rows))
    assert (batch.first_seq_num, batch.tail) == (0, (9, 9))


@pytest.mark.parametrize(("size", "pieces"), [(20_000, 3), (100, 1)])
def test_large_payloads_are_sent_as_they_are_stored(size: int, pieces: int) -> None:
    payloads = [encode_records(Columns([number], [7], [bytes(size)])) for number in range(1, 4)]
    rows = [
        BatchRow(number, 1, size + 8, RecordId(7, number - 1), Layout.PLAIN, payload)
        for number, payload in enumerate(payloads, 1)
    ]
    batch = batch_of_rows(rows)
    sent = read_batch_pieces(batch)
    assert len(sent) == pieces and b"".join(sent) == b"".join(payloads)
    assert batch.columns.bodies == [bytes(size)] * 3
