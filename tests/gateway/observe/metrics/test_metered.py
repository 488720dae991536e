"""Metrics of sessions and operations on their way to a back, however they end."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from penstock.core.back import AppendSession, ReadSession
from penstock.model.byte_operations import BytesRead, ReadBytes
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, CheckTail
from penstock.model.records import Columns, RecordBatch, StreamPosition, StreamRef
from penstock.observe.context import TRACE, TraceContext
from penstock.observe.metrics.metered import metered_appends, metered_operation, metered_passage, metered_reads
from penstock.observe.metrics.meters import Meter
from penstock.observe.tracing import Attributes, SpanKind, tracing
from penstock.wire.http import FramePieces

STREAM = StreamRef("basin", "stream")
_numbers = itertools.count()


@pytest.fixture
def meter() -> Meter:
    """A meter that no other test uses."""
    return Meter("listeners.test", f"route-{next(_numbers)}", "back", "s2s")


def errors(meter: Meter) -> dict[str, float]:
    return {code.value: count.value for code, count in meter._errors.items()}


class Appends(AppendSession):
    """Acknowledges what was sent when it is told to, and fails as it is told to."""

    def __init__(self) -> None:
        self.sent = 0
        self.failure: OperationFailed | None = None
        self.taking = trio.Event()
        self.taking.set()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        if self.failure is not None:
            raise self.failure
        yield self

    async def send(self, _append: Append) -> None:
        await self.taking.wait()
        self.sent += 1

    def close(self) -> None: ...

    async def receive(self) -> list[Appended]:
        if self.failure is not None:
            raise self.failure
        first, self.sent = 0, 0
        start, end = StreamPosition(first, 0), StreamPosition(first + 2, 0)
        return [Appended(start, end, end)]


def append() -> Append:
    return Append(STREAM, [b"x", b"y"], metered=18)


async def test_appends_count_when_they_are_acknowledged(meter: Meter) -> None:
    back = Appends()
    async with metered_appends(meter, back.session()) as session:
        await session.send(append())
        assert (meter.appends.records.value, meter.appends.sessions.value) == (0, 1)
        await session.receive()
        session.close()
    assert (meter.appends.records.value, meter.appends.bytes.value, meter.appends.batches.value) == (2, 18, 1)
    assert sum(meter.append_seconds.counts) == 1
    assert meter.appends.sessions.value == 0
    assert errors(meter) == {}


async def test_a_failure_counts_once_where_it_is_said(meter: Meter) -> None:
    back = Appends()
    with pytest.raises(OperationFailed):
        async with metered_appends(meter, back.session()) as session:
            await session.send(append())
            back.failure = fail(FailureCode.STORAGE, "no")
            await session.receive()
    assert errors(meter) == {"storage": 1}
    with pytest.raises(OperationFailed):
        async with metered_appends(meter, back.session()):
            raise AssertionError("it cannot begin")
    assert errors(meter) == {"storage": 2}
    assert meter.appends.sessions.value == 0


async def test_a_send_that_is_given_up_leaves_nothing_behind(meter: Meter) -> None:
    back = Appends()
    back.taking = trio.Event()
    async with metered_appends(meter, back.session()) as session:
        with trio.CancelScope() as scope:
            scope.cancel()
            await session.send(append())
        back.taking.set()
        await session.send(append())
        await session.receive()
        await session.receive()  # of one whose send was cancelled when it had its place already
    assert meter.appends.batches.value == 2
    assert meter.appends.bytes.value == 18


class Reading(ReadSession):
    """Gives these events, then fails where one is a failure."""

    def __init__(self, *events: Any) -> None:
        self._events = list(events)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        yield self

    async def next(self) -> Any:
        event = self._events.pop(0)
        if isinstance(event, Exception):
            raise event
        return event

    def behind(self) -> bool:
        return True

    def tail(self) -> StreamPosition:
        return StreamPosition(7, 7)


async def test_reads_count_what_they_give(meter: Meter) -> None:
    batch = RecordBatch(Columns([0, 1, 2], [1, 1, 1], [b"a", b"b", b"c"]))
    reading = Reading(batch, batch, fail(FailureCode.UNAVAILABLE, "gone"))
    async with metered_reads(meter, reading.session()) as session:
        assert await session.next() is batch
        assert await session.next() is batch
        assert session.behind() and session.tail().seq_num == 7
        with pytest.raises(OperationFailed):
            await session.next()
    assert (meter.reads.records.value, meter.reads.bytes.value, meter.reads.batches.value) == (6, 54, 2)
    assert sum(meter.first_read.counts) == 1
    assert errors(meter) == {"unavailable": 1}


async def _gives(value: Any) -> Any:
    await trio.lowlevel.checkpoint()
    if isinstance(value, Exception):
        raise value
    return value


async def test_operations(meter: Meter) -> None:
    assert await metered_operation(meter, CheckTail(STREAM), _gives(StreamPosition(1, 1))) == StreamPosition(1, 1)
    assert sum(meter.seconds_of(CheckTail).counts) == 1
    with pytest.raises(OperationFailed):
        await metered_operation(meter, CheckTail(STREAM), _gives(fail(FailureCode.AUTHN, "no")))
    assert sum(meter.seconds_of(CheckTail).counts) == 1
    found = BytesRead(0, b"12345", at_tail=True, end_of_stream=False, dropped={})
    await metered_operation(meter, ReadBytes(STREAM, 0, 10, 0.0), _gives(found))
    await metered_operation(meter, ReadBytes(STREAM, 0, 10, 9.0), _gives(found))
    assert (meter.reads.bytes.value, meter.reads.batches.value) == (10, 2)
    assert sum(meter.first_read.counts) == 1, "one that was parked says only how long there was no append"
    assert errors(meter) == {"authn": 1}


class Raw:
    """A session that is passed through."""

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        yield self

    async def send(self, _pieces: Any) -> None: ...
    async def finish(self) -> None: ...
    async def receive_pieces(self, _least: int) -> list[bytes]:
        return [b"123", b"45"]

    def count_batches(self, pieces: list[bytes]) -> list[int]:
        return [len(piece) for piece in pieces]


async def test_sessions_that_are_passed_through_count_bytes_of_records_not_of_acknowledgements(meter: Meter) -> None:
    async with metered_passage(meter, Raw().session(), appends=True) as raw:
        await raw.send(FramePieces([b"1", b"2345678"], 1))
        await raw.receive_pieces(1)
        await raw.finish()
    assert (meter.appends.bytes.value, meter.reads.bytes.value) == (8, 0)
    async with metered_passage(meter, Raw().session(), appends=False) as raw:
        await raw.receive_pieces(1)
    assert (meter.appends.bytes.value, meter.reads.bytes.value) == (8, 5)


async def test_sessions_that_are_passed_through_count_batches_and_time_appends(meter: Meter) -> None:
    async with metered_passage(meter, Raw().session(), appends=True) as raw:
        await raw.send(FramePieces([b"1"], 3))
        await raw.receive_pieces(1)
        assert sum(meter.append_seconds.counts) == 2
        await raw.receive_pieces(1)
    assert (meter.appends.records.value, meter.appends.batches.value, sum(meter.append_seconds.counts)) == (10, 4, 3)
    async with metered_passage(meter, Raw().session(), appends=False) as raw:
        await raw.receive_pieces(1)
    assert (meter.reads.records.value, meter.reads.batches.value, sum(meter.append_seconds.counts)) == (5, 2, 3)


class Spans:
    """A tracer that keeps its spans: name, parent's identifier, attributes, and whether they have ended."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def start(self, name: str, kind: SpanKind, parent: TraceContext | None, attributes: Attributes) -> Any:
        return Remembered(self, name, parent, attributes)


class Remembered:
    def __init__(self, spans: Spans, name: str, parent: TraceContext | None, attributes: Attributes) -> None:
        spans.made.append(self)
        self.name, self.parent = name, None if parent is None else parent.span_id
        self.said = dict(attributes)
        self.context = TraceContext("1" * 32, f"{len(spans.made):016x}")
        self.failures: list[str] = []
        self.ends = 0

    def note(self, attributes: Attributes) -> None:
        self.said |= attributes

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def end(self) -> None:
        self.ends += 1


async def test_appends_of_a_session_are_spans_in_groups(meter: Meter) -> None:
    back, spans = Appends(), Spans()
    with tracing(spans):
        async with metered_appends(meter, back.session()) as session:
            assert TRACE.get() is not None
            for _ in range(2):  # two in flight at once are one group, and so is each by itself
                await session.send(append())
                await session.send(append())
                await session.receive()
                await session.receive()
        assert TRACE.get() is None
        back.failure = fail(FailureCode.STORAGE, "no")
        with pytest.raises(OperationFailed):
            async with metered_appends(meter, back.session()):
                raise AssertionError("it cannot begin")
    whole, *groups, failed = spans.made
    assert (whole.name, [group.name for group in groups]) == ("session in", ["append", "append"])
    assert {group.parent for group in groups} == {whole.context.span_id}
    assert [(one.said["penstock.batches"], one.said["penstock.records"]) for one in groups] == [(2, 4), (2, 4)]
    assert failed.failures == ["storage: no"]
    assert [one.ends for one in spans.made] == [1, 1, 1, 1]
