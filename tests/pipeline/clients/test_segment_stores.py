"""Segment stores that say what cannot be true, answer in another order, or give less than they are asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.scripted_servers import segment_store

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.segment import join_events, released
from penstock_spark.clients import Endpoint, ReadPosition
from penstock_spark.clients.segment.client import SegmentStreamClient

WRITER = UUID(int=7)
BODIES = [bytes([n]) * 70_000 for n in range(100)]
DATA = join_events(BODIES)
STALE = FailureCode.STALE_WRITER_POSITION
TAIL = ReadPosition(100, str(len(DATA)))


def client_of(port: int, **settings: Any) -> SegmentStreamClient:
    """One that gives up at once."""
    return SegmentStreamClient(Endpoint("segment", "127.0.0.1", port, **{"recover_seconds": 0.0, **settings}))


def info(request: Any, length: int = len(DATA), start: int = 0) -> released.StreamSegmentInfo:
    return released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, 0, length, start)


def read_of(request: Any, data: bytes, shift: int = 0, other: int = 0) -> released.SegmentRead:
    """The answer to a read; with `shift` or `other` that of another one."""
    offset, request_id = request.offset + shift, request.request_id + other
    return released.SegmentRead(request.segment, offset, False, False, data, request_id)


def part(request: Any, size: int) -> released.SegmentRead:
    """Up to so many bytes of DATA, at most as many as were asked for, but at least 8, as real stores do."""
    return read_of(request, DATA[request.offset : request.offset + min(size, max(8, request.suggested_length))])


@pytest.mark.parametrize("most", [30_000, 69_999, 300_000, 1 << 21])
def test_stores_may_give_less_and_more_than_they_are_asked_for(most: int) -> None:
    sizes = random.Random(most)
    script = lambda request: (  # noqa: E731
        info(request)
        if isinstance(request, released.GetStreamSegmentInfo)
        else part(request, sizes.randint(1, most) if most < 1 << 20 else most)
    )
    with segment_store(script) as server:
        client = client_of(server.port)
        assert client.tail("a/b") == TAIL
        assert [b for rows in client.read("a/b", ReadPosition(0, "0"), TAIL) for b in rows.columns.bodies] == BODIES
        few = client.advance("a/b", ReadPosition(0, "0"), 3)
        assert [b for rows in client.read("a/b", ReadPosition(0, "0"), few) for b in rows.columns.bodies] == BODIES[:3]
        client.close()


def test_stores_may_answer_in_another_order_and_keep_alive() -> None:
    waiting: list[Any] = []

    def script(request: Any) -> Any:
        if isinstance(request, released.GetStreamSegmentInfo):
            return info(request)
        waiting.append(request)
        if len(waiting) < 2 and request.offset + request.suggested_length < len(DATA):
            return [released.KeepAlive()]
        replies = [part(each, 1 << 20) for each in reversed(waiting)]
        waiting.clear()
        return replies

    with segment_store(script) as server:
        client = client_of(server.port, request_seconds=5.0)
        assert [b for rows in client.read("a/b", ReadPosition(0, "0"), TAIL) for b in rows.columns.bodies] == BODIES
        client.close()


Make = Callable[[Any], Any]
FAULTS: list[tuple[Make, FailureCode, str]] = [
    (lambda _: b"HTTP/1.1 400 Bad Request\r\n", FailureCode.UNAVAILABLE, "unknown message type"),
    (lambda _: None, FailureCode.UNAVAILABLE, "the connection"),
    (lambda r: released.SegmentSealed(r.request_id, r.segment), FailureCode.UNAVAILABLE, "not asked for"),
    (
        lambda r: part(r, 9).__class__(r.segment, 5, False, False, b"x", r.request_id),
        FailureCode.UNAVAILABLE,
        "not asked",
    ),
    (lambda r: read_of(r, b"x", 0, 99), FailureCode.UNAVAILABLE, "not asked for"),
    (lambda r: read_of(r, b""), FailureCode.UNAVAILABLE, "no bytes at 0, where it had some"),
    (lambda r: released.NoSuchSegment(r.request_id, r.segment), FailureCode.STREAM_NOT_FOUND, "does not exist"),
    (lambda r: released.WrongHost(r.request_id, r.segment, "other:1"), FailureCode.HOT_SERVER, "served by other:1"),
    (lambda r: released.AuthTokenCheckFailed(r.request_id, "", 0), FailureCode.PERMISSION_DENIED, "delegation token"),
    (lambda r: released.AuthTokenCheckFailed(r.request_id, "", 1), FailureCode.HOT_SERVER, "expired"),
    (lambda r: released.ErrorMessage(r.request_id, r.segment, "no!", -1), FailureCode.OTHER, "no!"),
    (
        lambda r: read_of(r, b"\0\0\0\0\x7f\0\0\0" * (1 << 17)),
        FailureCode.NOT_REPRESENTABLE,
        "a/b/0.#epoch.0, offset 0: an event of 2130706432 bytes",
    ),
]


@pytest.mark.parametrize(("answer", "code", "text"), FAULTS)
def test_what_stores_say_to_reads(answer: Make, code: FailureCode, text: str) -> None:
    script = lambda r: info(r) if isinstance(r, released.GetStreamSegmentInfo) else answer(r)  # noqa: E731
    with segment_store(script) as server:
        client = client_of(server.port)
        with pytest.raises(OperationFailed, match=text) as raised:
            client.tail("a/b")
        assert raised.value.failure.code is code
        client.close()


def test_a_segment_that_is_truncated_while_it_is_read_says_where_it_begins() -> None:
    """The first page is read, then all before the last ten events is cut off."""
    first = len(DATA) - 10 * 70_008

    def script(request: Any) -> Any:
        if isinstance(request, released.GetStreamSegmentInfo):
            return info(request)
        if 0 < request.offset < first:
            return released.SegmentIsTruncated(request.request_id, request.segment, first)
        return part(request, 1 << 20)

    with segment_store(script) as server:
        client = client_of(server.port)
        found = []
        with pytest.raises(OperationFailed) as raised:
            for rows in client.read("a/b", ReadPosition(1000, "0"), ReadPosition(1100, TAIL.place)):
                found += rows.columns.bodies
        assert found == BODIES[: len(found)] and found
        assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
        assert raised.value.failure.details["first"] == ReadPosition(1090, str(first))
        client.close()


def setup(request: Any) -> released.AppendSetup:
    return released.AppendSetup(request.request_id, request.segment, request.writer_id, -(1 << 63))


def test_one_acknowledgement_may_be_of_several_appends() -> None:
    held: list[Any] = []

    def script(request: Any) -> Any:
        if isinstance(request, released.SetupAppend):
            return setup(request)
        held.append(request)
        last = request.last_event_number
        return [] if len(held) % 3 else released.DataAppended(WRITER, last, last - 3, request.request_id, 0)

    with segment_store(script) as server:
        client = client_of(server.port)
        appender = client.numbered_appender("a/b", WRITER)
        for number in range(1, 7):
            appender.append([b"x"], number)
        appender.flush()
        assert appender.acknowledged == 6
        client.close()


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (lambda _: None, FailureCode.UNAVAILABLE, "the connection"),
        (
            lambda r: released.InvalidEventNumber(WRITER, r.request_id, "", 1),
            FailureCode.STALE_WRITER_POSITION,
            "gone on",
        ),
        (lambda r: released.NoSuchSegment(r.request_id, "a/b"), FailureCode.STREAM_NOT_FOUND, "does not exist"),
        (lambda r: released.DataAppended(UUID(int=8), 1, 0, r.request_id, 0), FailureCode.UNAVAILABLE, "not asked for"),
        (lambda _: released.AppendSetup(1, "a/b", WRITER, 5), FailureCode.UNAVAILABLE, "not asked for"),
    ],
)
def test_what_stores_say_to_appends(answer: Make, code: FailureCode, text: str) -> None:
    script = lambda r: setup(r) if isinstance(r, released.SetupAppend) else answer(r)  # noqa: E731
    with segment_store(script) as server:
        client = client_of(server.port)
        appender = client.numbered_appender("a/b", WRITER)
        for _ in range(2):
            with pytest.raises(OperationFailed, match=text) as raised:
                appender.append([b"x"], 1)
                appender.flush()
            assert raised.value.failure.code is code
        client.close()


def test_a_store_that_stops_amid_its_answer_is_not_waited_for_for_ever() -> None:
    with segment_store(lambda _: b"\0\0\0\x0c\0\0") as server:
        client = client_of(server.port, request_seconds=0.1)
        with pytest.raises(OperationFailed, match=r"nothing came in 0\.1 s"):
            client.first("a/b")
        client.close()


@given(st.data())
@examples(most=40)
def test_whatever_is_cut_off_meanwhile_a_range_is_whole_or_an_error(data: st.DataObject) -> None:
    """Truncations come between any two requests, connections end at any; bodies say the numbers."""
    bodies = [b"%d" % number * size for number, size in enumerate(data.draw(st.lists(st.integers(0, 9), max_size=9)))]
    stored = join_events(bodies)
    places = [len(join_events(bodies[:number])) for number in range(len(bodies) + 1)]
    most = data.draw(st.integers(1, 40))
    events = iter(data.draw(st.lists(st.one_of(st.just(0), st.sampled_from(places), st.just(-1)), max_size=12)))
    kept = 0

    def answer(request: Any) -> Any:
        nonlocal kept
        event = next(events, 0)
        if event < 0:
            return None
        kept = max(kept, event)
        if isinstance(request, released.GetStreamSegmentInfo):
            return info(request, len(stored), kept)
        if request.offset < kept:
            return released.SegmentIsTruncated(request.request_id, request.segment, kept)
        size = min(most, request.suggested_length)
        return read_of(request, stored[request.offset : request.offset + size])

    first, last = sorted(data.draw(st.tuples(st.integers(0, len(bodies)), st.integers(0, len(bodies)))))
    with segment_store(answer) as server:
        client = client_of(server.port, recover_seconds=20.0)
        found: list[bytes] = []
        try:
            for rows in client.read(
                "a/b", ReadPosition(first, str(places[first])), ReadPosition(last, str(places[last]))
            ):
                found += rows.columns.bodies
        except OperationFailed as error:
            assert error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            there = error.failure.details["first"]
            assert isinstance(there, ReadPosition) and first < there.seq_num <= max(last, first)
            assert there.place in map(str, places)
        else:
            assert found == bodies[first:last]
        finally:
            client.close()
