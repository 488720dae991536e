"""Appends that are passed through are counted, however frames and acknowledgements are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.metrics.meters import Meter
from penstock.observe.metrics.passthrough_appends import PassthroughAppends, PassthroughReads
from penstock_codecs.compression import Compression
from penstock_codecs.model import StreamPosition
from penstock_codecs.operations import Appended
from penstock_codecs.s2.protobuf import encode_append_ack
from penstock_codecs.s2s.frames import compress_payload, encode_frame, encode_terminal
from penstock_codecs.s2s.whole_frames import WholeFrames
from penstock_proto import s2_pb2

METER = Meter("listeners.test", "passed", "back", "s2s")


def counted() -> tuple[float, float, int]:
    """Batches, records and times so far."""
    return METER.appends.batches.value, METER.appends.records.value, sum(METER.append_seconds.counts)


def since(before: tuple[float, float, int]) -> tuple[float, ...]:
    return tuple(b - a for a, b in zip(before, counted(), strict=True))


def joined(pieces: object) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)  # type: ignore[attr-defined]


def acknowledgement(first: int, count: int) -> bytes:
    start, end = StreamPosition(first, 5), StreamPosition(first + count, 5)
    return joined(encode_frame([encode_append_ack(Appended(start, end, end))]))


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return (data[a:b] for a, b in itertools.pairwise(at))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.lists(st.integers(0), max_size=8))
def test_however_they_are_cut(sizes: list[int], places: list[int]) -> None:
    before = counted()
    passed = PassthroughAppends(METER)
    sent = b"".join((1 + size).to_bytes(3, "big") + b"\0" + b"x" * size for size in sizes)
    frames = WholeFrames()
    for piece in cut(sent, places):
        passed.sent(frames.feed(piece).frames)
    said = b"".join(acknowledgement(100 * index, size) for index, size in enumerate(sizes))
    for piece in cut(said, places):
        passed.answered([memoryview(piece)])
    assert since(before) == (len(sizes), sum(sizes), len(sizes))


@pytest.mark.parametrize("end", [joined(encode_terminal(409, b"{}")), b"\0\0\0", b'{"code":"x"}', b"\0\0\2\0\xff"])
def test_what_is_no_acknowledgement_ends_the_count(end: bytes) -> None:
    before = counted()
    passed = PassthroughAppends(METER)
    passed.sent(3)
    passed.answered([acknowledgement(0, 7), end])
    assert since(before) == (1, 7, 1)
    passed.answered([acknowledgement(7, 7)])
    assert since(before) == (1, 7, 1)


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
    flow = METER.reads
    records, batches = flow.records.value, flow.batches.value
    passed = PassthroughReads(flow)
    for piece in cut(b"".join(read_batch(count, compression) for count in counts), places):
        passed.answered([memoryview(piece)])
    passed.answered([joined(encode_terminal(500, b"{}")), read_batch(9, compression)])
    assert (flow.records.value - records, flow.batches.value - batches) == (sum(counts), sum(map(bool, counts)))


@pytest.mark.parametrize("wrong", [b"\xff\xff\xff\0", b"\0\0\0", joined(encode_frame([b"\xff\xff"]))])
def test_what_is_no_frame_ends_the_count_of_reads(wrong: bytes) -> None:
    flow = METER.reads
    before = flow.records.value
    passed = PassthroughReads(flow)
    passed.answered([read_batch(2, Compression.NONE), wrong])
    passed.answered([read_batch(3, Compression.NONE)])
    assert flow.records.value - before == 2 and not passed._parts
