"""Offsets and times of messages; appends that wait; events that are cut across reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.dialogue import APPENDED, SeenRecord
from penstock.capture.dialogue import places as module
from penstock.capture.dialogue.places import CONTEXT_BYTES, KEPT_BYTES, ChunkPlaces, TimedSpan
from penstock.capture.dialogue.waiting import PendingBatches
from penstock_pravega.capture.delivering import Deliveries
from penstock_pravega.codec import join_events


def placed(sizes: list[int], offset: int = 0) -> ChunkPlaces:
    """Chunks of these sizes at times 1, 2, ..., whose bytes count up."""
    places = ChunkPlaces()
    places.restart(offset)
    for number, size in enumerate(sizes, 1):
        places.add(number, bytes((places.end + index) % 251 for index in range(size)))
    return places


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20), st.integers(0, 50), st.data())
def test_every_byte_has_the_time_of_its_chunk(sizes: list[int], offset: int, data: st.DataObject) -> None:
    places = placed(sizes, offset)
    times = [number for number, size in enumerate(sizes, 1) for _ in range(size)]
    start = data.draw(st.integers(0, len(times) - 1))
    places.forget(offset + data.draw(st.integers(0, start)))
    end = data.draw(st.integers(start + 1, len(times)))
    span = places.span(offset + start, offset + end)
    assert span == TimedSpan(offset + start, end - start, times[start], times[end - 1])
    assert span.end == offset + end


def test_a_context_stands_around_its_offset() -> None:
    places = placed([100] * 10)
    context, at = places.context(500)
    assert (len(context), at) == (CONTEXT_BYTES, 500 - CONTEXT_BYTES // 2)
    assert context[500 - at] == 500 % 251
    assert places.context(0) == (bytes(range(CONTEXT_BYTES // 1))[:251] + bytes(range(5)), 0)
    assert places.context(1000)[0][-1] == 999 % 251
    assert places.context(5000) == (b"", 5000)


def test_the_first_bytes_of_a_message_stay_however_long_it_is() -> None:
    places = placed([10])
    places.forget(4)
    for number in range(2, 40):
        places.add(number, bytes(8192))
    assert places.begun == 4
    assert places.head()[:6] == bytes([4, 5, 6, 7, 8, 9]) and len(places.head()) == CONTEXT_BYTES
    assert places.context(8) == (places.head(), 4)
    assert places.context(100_000) == (b"", 100_000)
    assert len(places.context(places.end - 10)[0]) == CONTEXT_BYTES // 2 + 10
    assert places._tail_bytes == KEPT_BYTES + 8192
    places.trim()
    assert places._tail_bytes == KEPT_BYTES == sum(len(data) for _, data in places._tail)
    assert places.head()[:6] == bytes([4, 5, 6, 7, 8, 9])
    assert places.context(places.end - 1)[0] == bytes(CONTEXT_BYTES // 2 + 1)


def test_boundaries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first byte's time stays right, and so does the last one's."""
    monkeypatch.setattr(module, "MOST_CHUNKS", 8)
    places = placed([1] * 1000)
    assert len(places._offsets) <= 9
    assert places.span(0, 1000) == TimedSpan(0, 1000, 1, 1000)
    assert 1 <= places.time(500) <= 501


def test_nothing_came() -> None:
    places = ChunkPlaces(7)
    assert places.time(7) == 0 and places.head() == b"" and places.context(7) == (b"", 7)
    assert places.add(1, b"") == b"" and places.end == 7


# ---- appends that wait -----------------------------------------------------------------------------------------------


def batch(*bodies: bytes) -> list[SeenRecord]:
    return [SeenRecord(APPENDED, "s", body) for body in bodies]


def test_what_waits_is_taken_once() -> None:
    waiting = PendingBatches()
    (one, none), (two, _) = waiting.add(batch(b"a", b"b")), waiting.add(batch(b"c"))
    assert not none and len(waiting) == 2
    assert [record.body for record in waiting.take(one)] == [b"a", b"b"]
    assert not waiting.take(one)
    assert [(record.body, record.acknowledged, record.failure) for record in waiting.refuse(two, "no")] == [
        (b"c", False, "no")
    ]
    assert not waiting.rest()


@pytest.mark.parametrize("waiting", [PendingBatches(most=2), PendingBatches(most_bytes=2 * 300 + 100)])
def test_the_oldest_is_given_up(waiting: PendingBatches) -> None:
    tickets, given_up = zip(*(waiting.add(batch(bytes([number]) * 40)) for number in range(3)), strict=True)
    assert [len(each) for each in given_up] == [0, 0, 1]
    assert given_up[2][0].body == bytes(40) and not given_up[2][0].acknowledged
    assert not waiting.take(tickets[0])
    assert [record.body[0] for record in waiting.rest()] == [1, 2]


# ---- events that are cut ---------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(0, 1000), st.randoms())
def test_events_are_put_together_wherever_they_are_cut(bodies: list[bytes], base: int, chance: random.Random) -> None:
    data = join_events(bodies)
    deliveries = Deliveries()
    at, found, offsets = 0, [], []
    while at < len(data):
        size = chance.randint(1, 30)
        delivery = deliveries.read("s", base + at, data[at : at + size])
        assert not delivery.raw
        found += delivery.bodies
        offsets += delivery.offsets
        at += size
    assert found == bodies
    assert [data[offset - base + 8 :][: len(body)] for offset, body in zip(offsets, bodies, strict=True)] == bodies


def test_readers_do_not_disturb_each_other() -> None:
    """Two of one segment, one behind the other, and one of another segment."""
    data = join_events([b"hello", b"worldwide"])
    deliveries = Deliveries()
    assert deliveries.read("s", 0, data[:20]).bodies == [b"hello"]
    assert deliveries.read("other", 20, data[:13]).bodies == [b"hello"]
    assert deliveries.read("s", 0, data[:20]).bodies == [b"hello"]
    assert deliveries.read("s", 20, data[20:]).bodies == [b"worldwide"]
    assert deliveries.read("s", 20, data[20:]).bodies == [b"worldwide"]
    assert deliveries.read("s", 13, data[13:]).bodies == [b"worldwide"]
    assert deliveries.read("s", 30, b"") == ([], [], False)


def test_bytes_that_are_no_events_stay_so() -> None:
    deliveries = Deliveries()
    assert deliveries.read("s", 5, b"abcdefghij") == ([b"abcdefghij"], [5], True)
    assert deliveries.read("s", 15, bytes(16)) == ([bytes(16)], [15], True)
    assert deliveries.read("s", 100, bytes(2)) == ([], [], False)
    assert deliveries.read("s", 102, b"xy") == ([b"\0\0xy"], [100], True)


def test_where_events_begin_is_not_forgotten_for_a_reader_who_cannot_see_it() -> None:
    """One that begins in the middle of an event, and ends where another one goes on."""
    data = join_events([b"hello", b"worldwide", b"more"])
    deliveries = Deliveries()
    assert deliveries.read("s", 0, data[:30]).bodies == [b"hello", b"worldwide"]
    assert deliveries.read("s", 20, data[20:30]) == ([data[20:30]], [20], True)
    assert deliveries.read("s", 30, data[30:]).bodies == [b"more"]


def test_what_is_kept_of_events_is_bounded() -> None:
    deliveries = Deliveries(most_bytes=100, most_places=3)
    event = join_events([bytes(90)])
    for number in range(10):
        deliveries.read(f"s{number}", 0, event[:40])
        assert deliveries.held <= 100
    assert deliveries.read("s9", 40, event[40:]).bodies == [bytes(90)]
    assert deliveries.read("s0", 40, event[40:]).bodies != [bytes(90)]


def test_large_events_in_small_reads_do_not_displace_each_other() -> None:
    """Data common to several places within one event is held, and counted, once."""
    deliveries = Deliveries(most_bytes=1_000_000)
    bodies = {name: bytes([number]) * 300_000 for number, name in enumerate("abc", 1)}
    found: dict[str, list[tuple[bytes, int]]] = {name: [] for name in bodies}
    for name, step in (("a", 5000), ("b", 70_000), ("c", 999)):
        found[name] += _read(deliveries, name, join_events([bodies[name]]), 0, 200_000, step)
        assert deliveries.held <= 1_000_000
    assert deliveries.held == 600_000
    for name in bodies:
        data = join_events([bodies[name], b"x"])
        found[name] += _read(deliveries, name, data, 200_000, len(data), 3000)
        assert found[name] == [(bodies[name], 0), (b"x", 300_008)]


def _read(
    deliveries: Deliveries, segment: str, data: bytes, begin: int, end: int, step: int
) -> list[tuple[bytes, int]]:
    found: list[tuple[bytes, int]] = []
    for at in range(begin, end, step):
        delivery = deliveries.read(segment, at, data[at : min(at + step, end)])
        found += zip(delivery.bodies, delivery.offsets, strict=True)
    return found


def late(pieces: list[bytes], base: int) -> list[tuple[bytes, int]]:
    """Return the bodies of reads that begin at `base`, each with its offset."""
    deliveries, found = Deliveries(), []
    for piece in pieces:
        delivery = deliveries.read("s", base, piece, late=True)
        found += zip(delivery.bodies, delivery.offsets, strict=True)
        base += len(piece)
    return found


def test_reads_that_begin_in_the_middle_of_an_event() -> None:
    """Data before the first whole event is given as plain bytes, the rest as events."""
    data = join_events([b"the first of them", b"hello", b"worldwide", b"more"])
    middle, events = data[:25][13:], [(b"hello", 25), (b"worldwide", 38), (b"more", 55)]
    assert late([data[13:]], 13) == [(middle, 13), *events]
    first = [(data[13:20], 13), (data[20:25], 20)]
    assert late([data[13:20], data[20:25], data[25:50], data[50:]], 13) == [*first, *events]
    assert late([data[25:30], data[30:]], 25) == events
    assert late([data[13:60], data[60:]], 13) == [(middle, 13), *events]
    assert late([data[25:]], 25) == events


@pytest.mark.parametrize("data", [b"no events at all", bytes(5000), b"one\0\0\0\0\0\0\0\x05hello and no more"])
def test_bytes_that_are_no_events_in_the_middle(data: bytes) -> None:
    assert late([data, data], 99) == [(data, 99), (data, 99 + len(data))]
