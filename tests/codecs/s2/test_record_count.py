"""The number of records in a batch, however it is cut, against the protobuf library."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock_codecs.s2.record_count import count_records
from penstock_proto import s2_pb2


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


@pytest.mark.parametrize("bodies", [[b"x" * 1000] * 20, [b"x" * size for size in range(100, 200)]])
def test_a_batch_that_is_cut_off(bodies: list[bytes]) -> None:
    """Between two fields it is a shorter batch, as for the library."""
    data = batch(5, bodies, tail=True)
    for end in range(len(data)):
        try:
            wanted = len(s2_pb2.ReadBatch.FromString(data[:end]).records)
        except DecodeError:
            with pytest.raises(ValueError, match="ReadBatch"):
                count_records([data[:end]])
        else:
            assert count_records([data[:end]]) == wanted


def test_a_field_that_no_batch_has() -> None:
    with pytest.raises(ValueError, match="tag 26"):
        count_records([b"\x1a\0"])
