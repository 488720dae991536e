"""Records of one length, decoded as a table, beside the protobuf library's reading of the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.record_bytes import LengthCache, sequenced_records, uniform_records
from penstock.model.records import U64_MAX, Columns
from penstock_proto import s2_pb2

WIDTHS = [1, 2, 100, 127, 128, 129, 16000, 16383, 16384, 2**21 - 5, 2**21, 2**35, 2**63, U64_MAX - 100, U64_MAX - 8]
WIDTHS += [3 * 2**14 - 20, 5 * 2**21 - 20, 2**35 + 2**28 - 20]  # more than two bytes of the varints change
"""Sequence numbers near which varints become wider, or end."""
TIMES = [1, 127, 128, 2**14, 2**21 - 1, 1_700_000_000_000, 2**56 - 1, 2**63, U64_MAX]

first_numbers = st.sampled_from(WIDTHS) | st.integers(0, U64_MAX - 100)


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    """Records of one length with consecutive numbers, some of which share a timestamp."""
    count, size = draw(st.integers(8, 64)), draw(st.integers(1, 300))
    first = min(draw(first_numbers), U64_MAX - count)
    runs = draw(st.lists(st.sampled_from(TIMES) | st.integers(1, U64_MAX), min_size=1, max_size=4).map(sorted))
    timestamps = [runs[index * len(runs) // count] for index in range(count)]
    filling = draw(st.binary(min_size=size, max_size=size))
    bodies = [bytes((index,)) + filling[1:] for index in range(count)]
    return Columns(range(first, first + count), timestamps, bodies)


def encoded(columns: Columns) -> bytes:
    return sequenced_records(columns.seq_nums, columns.timestamps, columns.bodies, columns.headers)


def by_library(data: bytes) -> list[tuple[int, int, bytes]]:
    batch = s2_pb2.ReadBatch.FromString(data)
    assert not batch.HasField("tail") and not any(record.headers for record in batch.records)
    return [(record.seq_num, record.timestamp, record.body) for record in batch.records]


def rows(columns: Columns) -> list[tuple[int, int, bytes]]:
    assert not columns.headers
    return list(zip(columns.seq_nums, columns.timestamps, columns.bodies, strict=True))


@given(tables())
def test_a_table_is_read_as_the_library_reads_it(columns: Columns) -> None:
    found = uniform_records(encoded(columns))
    if found is not None:
        assert rows(found) == rows(columns) == by_library(encoded(columns))


def test_batches_of_one_length_are_tables() -> None:
    bodies = [b"%0100d" % index for index in range(1000)]
    for timestamps in ([1_700_000_000_000] * 1000, [1_700_000_000_000 + index // 100 for index in range(1000)]):
        columns = Columns(range(5000, 6000), timestamps, bodies)
        found = uniform_records(encoded(columns))
        assert found == columns


@pytest.mark.parametrize("first", [128, 20_000, 3 * 2**14 - 500, 5 * 2**21 - 999, 2**35 - 1000, U64_MAX - 1000])
def test_large_batches_are_tables_wherever_their_numbers_lie(first: int) -> None:
    columns = Columns(range(first, first + 1000), [7] * 1000, [b"%04d" % index for index in range(1000)])
    assert uniform_records(encoded(columns)) == columns


def test_other_batches_are_left_to_the_library() -> None:
    bodies = [b"%0100d" % index for index in range(20)]
    others = [
        Columns(range(20), [1] * 20, bodies),  # its first number is 0, which is left out
        Columns(range(120, 140), [1] * 20, bodies),  # varints of two widths
        Columns(range(1, 21), list(range(1, 21)), bodies),  # a timestamp for each
        Columns(range(1, 21), [1] * 20, [*bodies[1:], b""]),
        Columns(range(1, 6), [1] * 5, bodies[:5]),
        Columns([1, *range(3, 22)], [1] * 20, bodies),
        Columns(range(1, 21), [0] * 20, bodies),
        Columns(range(200, 1201), [1] * 1001, bodies[:1] * 1001),  # more records than a batch has
    ]
    for columns in others:
        assert uniform_records(encoded(columns)) is None
    good = encoded(Columns(range(1, 21), [1] * 20, bodies))
    assert uniform_records(good) is not None
    assert uniform_records(good + b"\x12\x02\x08\x01") is None  # a tail
    assert uniform_records(good[:-1]) is None
    assert uniform_records(b"") is None


@given(tables(), st.data())
def test_no_change_of_a_byte_goes_unseen(columns: Columns, data: st.DataObject) -> None:
    """The reader refuses a changed table, or reads it as the library does."""
    wire = bytearray(encoded(columns))
    stride = len(wire) // len(columns.bodies)
    for _ in range(data.draw(st.integers(1, 3))):
        record = data.draw(st.integers(0, len(columns.bodies) - 1))
        at = record * stride + data.draw(st.integers(0, min(stride, 30) - 1))
        if at < len(wire):
            wire[at] = data.draw(st.integers(0, 255) | st.sampled_from([wire[at] ^ 1, wire[at] ^ 128, 0x1A, 0x22]))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(wire)))
        if data.draw(st.booleans()):
            del wire[at : at + data.draw(st.integers(1, stride))]
        else:
            wire[at:at] = data.draw(st.binary(min_size=1, max_size=3))
    found = uniform_records(bytes(wire))
    if found is not None:
        assert rows(found) == by_library(bytes(wire))


def test_what_is_remembered_for_lengths_is_bounded() -> None:
    made: list[int] = []
    cache = LengthCache(made.append)
    for length in [*range(4096), *range(4096)]:
        assert cache[length] is None
    assert made == list(range(4096))
    for length in range(4096, 9000):
        assert cache[length] is None and len(cache) <= 4096


def test_a_number_longer_than_ten_bytes_is_left_to_the_library() -> None:
    good = encoded(Columns(range(1, 21), [U64_MAX] * 20, [bytes(100)] * 20))
    assert uniform_records(good) is not None
    assert uniform_records(good.replace(b"\xff" * 9 + b"\x01", b"\xff" * 10)) is None


@pytest.mark.parametrize("first", [5, 300])
def test_no_value_of_a_byte_goes_unseen(first: int) -> None:
    """Each value of each byte of the first and last records, and of those whose timestamp is another."""
    columns = Columns(range(first, first + 24), [130] * 12 + [1000] * 12, [b"%04d" % index for index in range(24)])
    good = encoded(columns)
    stride = len(good) // 24
    found = uniform_records(good)
    assert found is not None and rows(found) == rows(columns)
    for record in (0, 1, 12, 23):
        for at in range(record * stride, (record + 1) * stride):
            for value in range(256):
                wire = good[:at] + bytes((value,)) + good[at + 1 :]
                found = uniform_records(wire)
                assert found is None or rows(found) == by_library(wire), (record, at, value)


@pytest.mark.parametrize("first", [0, 1, 100, 120, 2**14 - 5, 2**21 - 5, U64_MAX - 9])
@pytest.mark.parametrize("timestamps", [[0] * 10, [7] * 10, list(range(122, 132)), list(range(2**14 - 4, 2**14 + 6))])
def test_records_are_the_librarys_bytes_where_numbers_become_wider(first: int, timestamps: list[int]) -> None:
    columns = Columns(range(first, first + 10), timestamps, [b"x" * index for index in range(10)])
    batch = s2_pb2.ReadBatch()
    for seq_num, timestamp, body in rows(columns):
        batch.records.add(seq_num=seq_num, timestamp=timestamp, body=body)
    assert encoded(columns) == batch.SerializeToString()
