"""The number of records in a batch, however it is cut, against the protobuf library."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example, given
from hypothesis import strategies as st

from penstock_proto import s2_pb2
from penstock_s2.codec import record_count
from penstock_s2.codec.record_count import count_records


def batch(
    first: int, bodies: list[bytes], *, headers: bool = False, tail: bool = False, skipped: bool = False
) -> bytes:
    """Return an encoded batch; `skipped`: a sequence number in the middle is missing."""
    made = s2_pb2.ReadBatch(tail=s2_pb2.StreamPosition(seq_num=1 << 40, timestamp=7)) if tail else s2_pb2.ReadBatch()
    for index, body in enumerate(bodies):
        number = first + index + (skipped and index > len(bodies) // 2)
        record = made.records.add(seq_num=number, timestamp=1795364690000, body=body)
        if headers:
            record.headers.add(name=b"name", value=b"value")
    return made.SerializeToString()


def cut(data: bytes, places: list[int]) -> list[memoryview]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [memoryview(data[a:b]) for a, b in itertools.pairwise(at)]


uniform = st.builds(
    lambda size, count: [bytes([index % 251]) * size for index in range(count)], st.integers(0, 300), st.integers(0, 60)
)
varied = st.lists(st.binary(max_size=40) | st.sampled_from([b"x" * 130, b"\x0a\x83\x01\x08" * 40, b"y" * 17000]))


@given(
    st.sampled_from([0, 1, 100, 127, 1000, 1 << 21, 1 << 33]),
    uniform | varied,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0), max_size=6),
)
def test_the_library_counts_as_many(
    first: int, bodies: list[bytes], headers: bool, tail: bool, skipped: bool, places: list[int]
) -> None:
    data = batch(first, bodies, headers=headers, tail=tail, skipped=skipped)
    assert count_records(cut(data, places)) == len(bodies) == len(s2_pb2.ReadBatch.FromString(data).records)


@pytest.mark.parametrize("size", [100, 127, 300, 20_000])
@pytest.mark.parametrize("first", [1, 1000, 1 << 33])
def test_of_uniform_records_only_the_ends_are_read(size: int, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(record_count, "_parse")
    for tail in (False, True):
        data = batch(first, [bytes(size)] * 20, tail=tail)
        assert count_records([memoryview(data)]) == count_records(cut(data, [7, 40, 41])) == 20


def as_the_library(data: bytes) -> None:
    try:
        wanted = len(s2_pb2.ReadBatch.FromString(data).records)
    except DecodeError:
        with pytest.raises(DecodeError):
            count_records([data])
    else:
        assert count_records([data]) == wanted


@pytest.mark.parametrize("bodies", [[b"x" * 1000] * 20, [b"x" * size for size in range(100, 200)]])
def test_a_batch_that_is_cut_off(bodies: list[bytes]) -> None:
    """Between two fields it is a shorter batch."""
    data = batch(5, bodies, tail=True)
    for end in range(len(data)):
        as_the_library(data[:end])


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([b"\x0a", b"\x12", b"\x1a", b"\x80", b"\xff", b"\0"])).map(b"".join)
)
@example(b"\x0a\x0a" + bytes(10))
def test_bytes_that_are_no_batch(data: bytes) -> None:
    """Bytes within a record are not looked at: only if these alone are wrong, the record may count."""
    try:
        fields = UnknownFieldSet(Empty.FromString(data))
    except DecodeError:
        with pytest.raises(DecodeError):
            count_records([data])
        return
    try:
        as_the_library(data)
    except pytest.fail.Exception:  # it counted what the library refuses
        assert count_records([data]) == sum((one.field_number, one.wire_type) == (1, 2) for one in fields)


@pytest.mark.parametrize(
    "data",
    [
        b"\x08\x02\x0a\0",
        b"\x18\x02\x0a\0",
        b"\x0a" + b"\xff" * 40,
        b"\x0a" + b"\x80" * 2_000_000,
        b"\x1a\0" + batch(3, [b"a"]),
    ],
)
def test_lengths_without_an_end_and_fields_of_later_versions(data: bytes) -> None:
    as_the_library(data)


def test_a_tail_longer_than_a_byte_tells() -> None:
    """The bytes after the records are 256 more than the length of the tail says."""
    data = batch(1000, [b"x" * 400] * 8)
    as_the_library(data + b"\x12\x02" + b"\x08\x01" + b"\x12\x02\x08\x01" * 64)


def test_records_behind_the_tail_count() -> None:
    as_the_library(batch(1000, [b"x" * 400] * 8, tail=True) + batch(1008, [b"x"]))
    as_the_library(batch(1000, [b"x" * 400] * 8, tail=True) + batch(1008, [b"x" * 400] * 3))


@given(st.data())
def test_damaged_batches_raise_nothing_else(data: st.DataObject) -> None:
    bytes_ = bytearray(batch(900, [b"x" * 30] * 20, tail=True))
    for _ in range(data.draw(st.integers(1, 3))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        count_records([bytes(bytes_)])
