"""Batches of sessions that pass through are counted, however their frames are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.operations import Appended
from penstock.model.records import StreamPosition
from penstock.wire.compression import Compression
from penstock_proto import s2_pb2
from penstock_s2.back.batch_counts import AckCounter, ReadBatchCounter
from penstock_s2.codec.protobuf import encode_append_ack
from penstock_s2.codec.s2s.frames import compress_payload, encode_frame, encode_terminal


def joined(pieces: object) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)  # type: ignore[attr-defined]


def acknowledgement(first: int, count: int) -> bytes:
    start, end = StreamPosition(first, 5), StreamPosition(first + count, 5)
    return joined(encode_frame([encode_append_ack(Appended(start, end, end))]))


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return (data[a:b] for a, b in itertools.pairwise(at))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.lists(st.integers(0), max_size=8))
def test_acknowledgements_count_however_they_are_cut(sizes: list[int], places: list[int]) -> None:
    counter = AckCounter()
    data = b"".join(acknowledgement(100 * index, size) for index, size in enumerate(sizes))
    assert [count for piece in cut(data, places) for count in counter.count([memoryview(piece)])] == sizes


@pytest.mark.parametrize("end", [joined(encode_terminal(409, b"{}")), b"\0\0\0", b'{"code":"x"}', b"\0\0\2\0\xff"])
def test_what_is_no_acknowledgement_ends_the_count(end: bytes) -> None:
    counter = AckCounter()
    assert counter.count([acknowledgement(0, 7), end]) == [7]
    assert counter.count([acknowledgement(7, 7)]) == []


def read_batch(count: int, compression: Compression) -> bytes:
    """Return a frame with `count` records; with none it is a heartbeat with the tail."""
    batch = s2_pb2.ReadBatch(tail=s2_pb2.StreamPosition(seq_num=count))
    for number in range(count):
        batch.records.add(seq_num=number, timestamp=1, body=b"a record " * 9)
    used, payload = compress_payload(compression, batch.SerializeToString())
    return joined(encode_frame([payload], used))


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.lists(st.integers(0), max_size=8),
    st.sampled_from(Compression),
)
def test_records_that_are_read_count_however_they_are_cut(
    counts: list[int], places: list[int], compression: Compression
) -> None:
    counter = ReadBatchCounter()
    data = b"".join(read_batch(count, compression) for count in counts)
    read = [count for piece in cut(data, places) for count in counter.count([memoryview(piece)])]
    assert read == [count for count in counts if count]  # a heartbeat is no batch
    assert counter.count([joined(encode_terminal(500, b"{}")), read_batch(9, compression)]) == []


@pytest.mark.parametrize("wrong", [b"\xff\xff\xff\0", b"\0\0\0", joined(encode_frame([b"\xff\xff"]))])
def test_what_is_no_frame_ends_the_count_of_reads(wrong: bytes) -> None:
    counter = ReadBatchCounter()
    assert counter.count([read_batch(2, Compression.NONE), wrong]) == [2]
    assert counter.count([read_batch(3, Compression.NONE)]) == [] and not counter._parts
