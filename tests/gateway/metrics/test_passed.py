"""Appends that are passed through are counted, however frames and acknowledgements are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.meters import Meter
from penstock.metrics.passed import PassedAppends
from penstock_codecs.model import StreamPosition
from penstock_codecs.operations import Appended
from penstock_codecs.s2.protobuf import encode_append_ack
from penstock_codecs.s2s.frames import encode_frame, encode_terminal

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
    passed = PassedAppends(METER)
    sent = b"".join((1 + size).to_bytes(3, "big") + b"\0" + b"x" * size for size in sizes)
    passed.sent(list(cut(sent, places)))
    said = b"".join(acknowledgement(100 * index, size) for index, size in enumerate(sizes))
    for piece in cut(said, places):
        passed.answered([memoryview(piece)])
    assert since(before) == (len(sizes), sum(sizes), len(sizes))


@pytest.mark.parametrize("end", [joined(encode_terminal(409, b"{}")), b"\0\0\0", b'{"code":"x"}', b"\0\0\2\0\xff"])
def test_what_is_no_acknowledgement_ends_the_count(end: bytes) -> None:
    before = counted()
    passed = PassedAppends(METER)
    passed.sent([b"\0\0\2\0x" * 3])
    passed.answered([acknowledgement(0, 7), end])
    assert since(before) == (1, 7, 1)
    passed.answered([acknowledgement(7, 7)])
    assert since(before) == (1, 7, 1)
