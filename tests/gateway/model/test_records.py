"""Batches of records: their parts, identifiers and sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.record_bytes import sequenced_records
from penstock.model.record_encoding import decode_records
from penstock.model.records import (
    U64_MAX,
    Columns,
    Header,
    JoinedBatch,
    Record,
    RecordBatch,
    RecordId,
    StreamPosition,
    WireBytes,
    equal_runs,
    is_command,
    long_runs,
    metered_size,
    next_record_id,
)

HEADERS = (Header(b"name", b"value"), Header(b"", b""))


@st.composite
def batches(draw: st.DrawFn) -> RecordBatch:
    """Batches whose first timestamp may have had records before; some records have headers."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 7]), min_size=1, max_size=12))
    timestamps = [1000 + sum(steps[1 : index + 1]) for index in range(len(steps))]
    bodies = [b"x" * index for index in range(len(steps))]
    headers = dict.fromkeys(draw(st.sets(st.integers(0, len(steps) - 1))), HEADERS)
    columns = Columns(range(5, 5 + len(steps)), timestamps, bodies, headers)
    first_id = RecordId(1000, draw(st.integers(0, 3)))
    return RecordBatch(columns, first_id=first_id, tail=StreamPosition(5 + len(steps), timestamps[-1]))


@given(batches(), st.data())
def test_a_part_has_the_records_of_the_whole(batch: RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.count - 1))
    stop = data.draw(st.integers(start + 1, batch.count))
    part = batch.part(start, stop)
    assert list(part.records()) == list(batch.records())[start:stop]
    assert list(part.record_ids()) == list(batch.record_ids())[start:stop]
    assert (part.first_seq_num, part.next_seq_num, len(part)) == (5 + start, 5 + stop, stop - start)
    assert part.metered == sum(8 + len(one.body) + (13 if one.headers else 0) for one in part.records())
    assert part.tail == (batch.tail if stop == batch.count else None)


@given(st.lists(batches(), min_size=1, max_size=4), st.booleans(), st.data())
def test_a_part_of_joined_batches_keeps_their_bytes(
    some: list[RecordBatch], together: bool, data: st.DataObject
) -> None:
    """A part that begins or ends within one of them has columns."""
    seams, payloads, joined = [5], [], []
    for batch in some:
        columns = batch.columns
        seq_nums = range(seams[-1], seams[-1] + batch.count)
        payloads.append(sequenced_records(seq_nums, columns.timestamps, columns.bodies, columns.headers))
        assert batch.first_id is not None
        first_id = RecordId(batch.first_id.ms, batch.first_id.seq + 100 * len(joined))
        joined.append(JoinedBatch(batch.count, batch.metered, len(payloads[-1]), first_id))
        seams.append(seams[-1] + batch.count)
    wire = WireBytes("test", (b"".join(payloads),) if together else tuple(payloads))
    decoded: list[bytes] = []

    def decode(data: bytes, _: RecordId | None) -> Columns:
        decoded.append(data)
        return decode_records(data)

    whole = RecordBatch.from_wire(
        wire,
        decode,
        count=seams[-1] - 5,
        first_seq_num=5,
        metered=sum(batch.metered for batch in some),
        first_id=joined[0].first_id,
        tail=StreamPosition(seams[-1], 0),
        joined=joined,
    )
    start = data.draw(st.integers(0, whole.count - 1))
    stop = data.draw(st.integers(start + 1, whole.count))
    if data.draw(st.booleans(), "read before"):
        assert len(whole.columns.bodies) == whole.count
    part = whole.part(start, stop)
    assert (part.wire is not None) == (5 + start in seams and 5 + stop in seams)
    for begin in (0, part.count // 2):  # the second part is taken from what has been decoded
        inner = part.part(begin, part.count)
        first = inner.first_seq_num - 5
        assert list(inner.records()) == list(decode_whole(wire))[first : first + inner.count]
        assert inner.metered == metered_size(inner.columns.bodies, inner.columns.headers)
        assert inner.tail == (whole.tail if stop == whole.count else None)
    assert decoded.count(wire.data) <= 1
    if wire.data in decoded:
        assert decoded == [wire.data], "what was decoded is not decoded again"
    if part.wire is not None:
        [first_id] = [one.first_id for one, seam in zip(joined, seams, strict=False) if seam == 5 + start]
        assert part.first_id == first_id


def decode_whole(wire: WireBytes) -> Iterator[Record]:
    return RecordBatch(decode_records(wire.data)).records()


def test_the_part_that_is_all_of_a_batch_is_the_batch() -> None:
    batch = RecordBatch(Columns(range(2), [1, 1], [b"a", b"b"]), first_id=RecordId(1, 0))
    assert batch.part(0, 2) is batch
    assert [list(batch.part(index, index + 1).record_ids()) for index in range(2)] == [[(1, 0)], [(1, 1)]]


@given(batches())
def test_identifiers_follow_each_other(batch: RecordBatch) -> None:
    last: RecordId | None = None
    for record, record_id in zip(batch.records(), batch.record_ids(), strict=True):
        wanted = batch.first_id if last is None else next_record_id(last, record.timestamp)
        assert record_id == wanted
        last = record_id


def test_a_batch_of_unknown_identifiers_has_none() -> None:
    batch = RecordBatch(Columns(range(1), [1], [b""]))
    with pytest.raises(ValueError, match="no identifier for its first record"):
        next(batch.record_ids())
    assert batch.part(0, 1).first_id is None


def test_a_record_behind_an_earlier_time_counts_on() -> None:
    assert next_record_id(None, 0) == RecordId(0, 0)
    assert next_record_id(RecordId(5, 2), 5) == next_record_id(RecordId(5, 2), 4) == RecordId(5, 3)
    assert next_record_id(RecordId(5, 2), 6) == RecordId(6, 0)


@given(st.lists(st.integers(0, 4)).map(sorted))
def test_runs_of_equal_timestamps(timestamps: list[int]) -> None:
    runs = list(equal_runs(timestamps))
    assert [timestamps[start] for start, _ in runs] == sorted(set(timestamps))
    assert [timestamp for start, stop in runs for timestamp in [timestamps[start]] * (stop - start)] == timestamps


@given(st.lists(st.integers(0, 4), max_size=80), st.booleans())
def test_long_runs_have_one_timestamp_each(timestamps: list[int], ordered: bool) -> None:
    if ordered:
        timestamps = sorted(timestamps)
    runs = long_runs(timestamps)
    if runs is not None:
        assert [timestamps[start] for start, stop in runs for _ in range(start, stop)] == timestamps
    if ordered:
        assert (runs is not None) == (len(timestamps) >= 8 * len(set(timestamps)))


@pytest.mark.parametrize(
    ("text", "record_id"),
    [
        (b"1-2", RecordId(1, 2)),
        (b"0-0", RecordId(0, 0)),
        (b"%d-%d" % (U64_MAX, U64_MAX), RecordId(U64_MAX, U64_MAX)),
        (b"0" * 30 + b"1-" + b"0" * 30, RecordId(1, 0)),
        *((bad, None) for bad in (b"", b"1", b"-", b"1-", b"-1", b"1-2-3", b"+1-2", b"1-2\n", b"1_0-2")),
        (b"%d-0" % (U64_MAX + 1), None),
        (b"0-%d" % (U64_MAX + 1), None),
    ],
)
def test_identifiers_as_text(text: bytes, record_id: RecordId | None) -> None:
    assert RecordId.parse(text) == record_id


def test_sizes_and_commands() -> None:
    assert metered_size([b"abc", b""], {1: HEADERS}) == 8 + 3 + 8 + 2 * 2 + 9
    assert is_command((Header(b"", b"trim"),))
    assert not any(map(is_command, [(), HEADERS, HEADERS[:1], (Header(b"", b""), Header(b"", b""))]))
