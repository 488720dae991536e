"""Reads of streams whose sequence numbers have gaps, as those on a back with transactions or compaction do."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.backs import DecodedBack
from support.durable import CLOSE, TEXT, Service, changed, events, ref
from trio.testing import MockClock

from penstock.core.back import Following, ReadSession, ReadSessionWrapper
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, FromSeqNum, Locate, Operation, Read, Trim
from penstock.model.records import Columns, RecordBatch, StreamPosition
from penstock_durable.codec import spell_offset


def up(seq_num: int) -> int:
    """The number of a record behind the gaps: each third number, behind two records, is none's."""
    return seq_num + seq_num // 2


def down(seq_num: int) -> int:
    """The number without gaps of the first record at or after this one."""
    return seq_num // 3 * 2 + min(seq_num % 3, 2)


def _position(tail: StreamPosition) -> StreamPosition:
    return StreamPosition(up(tail.seq_num), tail.timestamp)


class _Gappy(ReadSessionWrapper):
    """A read whose batches end at gaps."""

    def __init__(self, inner: ReadSession) -> None:
        super().__init__(inner)
        self._parts: deque[RecordBatch] = deque()

    async def next(self) -> RecordBatch | Following | None:
        if self._parts:
            return self._parts.popleft()
        event = await super().next()
        if isinstance(event, Following):
            return Following(_position(event.tail))
        if event is None:
            return None
        for seq_num, timestamp, body in zip(
            event.columns.seq_nums, event.columns.timestamps, event.columns.bodies, strict=True
        ):
            self._parts.append(RecordBatch(Columns([up(seq_num)], [timestamp], [body])))
        self._parts[-1].tail = None if event.tail is None else _position(event.tail)
        return self._parts.popleft()

    def behind(self) -> bool:
        return bool(self._parts) or super().behind()

    def tail(self) -> StreamPosition:
        return _position(super().tail())


class GappyBack(DecodedBack):
    """A back of which each third sequence number is no record's."""

    async def perform(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Locate):
            assert isinstance(operation.start, FromSeqNum)
            located = await super().perform(replace(operation, start=FromSeqNum(down(operation.start.seq_num))))
            return replace(located, seq_num=up(located.seq_num))
        found = await super().perform(operation)
        return _position(found) if isinstance(operation, CheckTail) else found

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        assert isinstance(read.start, FromSeqNum)
        try:
            async with super().read_session(replace(read, start=FromSeqNum(down(read.start.seq_num)))) as session:
                yield _Gappy(session)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                raise
            tail = error.failure.details["tail"]
            moved = {**tail, "seq_num": up(tail["seq_num"])}  # type: ignore[index, dict-item]
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, error.failure.message, tail=moved) from None


@pytest.fixture
async def gappy(service: Service) -> Service:
    """A stream `a` of four records: numbers 0, 1, 3, 4, and tail 6."""
    await service.ask("PUT", "a", TEXT)
    for number in range(4):
        await service.ask("POST", "a", TEXT, body=b"%d" % number)
    return Service(service.back, service.wall, changed(), GappyBack(service.back))


async def test_an_answer_ends_behind_the_gap_at_the_tail(gappy: Service) -> None:
    answer = await gappy.ask("GET", "a", query="?offset=-1")
    assert answer.body == b"0123"
    assert (answer.headers["stream-next-offset"], answer.headers["stream-up-to-date"]) == (spell_offset(6), "true")


@pytest.mark.parametrize("live", ["", "&live=long-poll"])
@pytest.mark.parametrize(("start", "body"), [(1, b"123"), (2, b"23"), (4, b"3"), (5, b""), (6, b"")])
async def test_a_gap_is_passed_over(gappy: Service, clock: MockClock, live: str, start: int, body: bytes) -> None:
    answer = await gappy.ask("GET", "a", query=f"?offset={spell_offset(start)}{live}")
    assert (answer.status, answer.body) == (204 if live and not body else 200, body)
    assert (answer.headers["stream-next-offset"], answer.headers["stream-up-to-date"]) == (spell_offset(6), "true")


async def test_an_answer_that_ends_at_its_bound_goes_on(gappy: Service) -> None:
    small = Service(gappy.back, gappy.wall, changed(max_read_bytes=20), GappyBack(gappy.back))
    offset, found = "-1", b""
    for _ in range(6):
        answer = await small.ask("GET", "a", query=f"?offset={offset}")
        found, offset = found + answer.body, answer.headers["stream-next-offset"]
    assert (found, offset, answer.headers["stream-up-to-date"]) == (b"0123", spell_offset(6), "true")


async def test_offsets_before_the_first_record_left_are_gone(gappy: Service) -> None:
    await gappy.back.perform(Trim(ref("a"), FromSeqNum(3)))
    for start in (0, 1, 2, 3):
        answer = await gappy.ask("GET", "a", query=f"?offset={spell_offset(start)}")
        assert (answer.status, spell_offset(4) in answer.body.decode()) == (410, True)
    assert await gappy.read("a", f"?offset={spell_offset(4)}") == await gappy.read("a") == b"3"
    await gappy.back.perform(Trim(ref("a"), FromSeqNum(4)))
    assert (await gappy.ask("GET", "a", query=f"?offset={spell_offset(4)}")).status == 410


class _GapFirst(GappyBack):
    """Number 2, which is no record's, is the first one left."""

    async def perform(self, operation: Operation[Any]) -> Any:
        found = await super().perform(operation)
        return replace(found, gap=1) if isinstance(operation, Locate) else found


async def test_a_gap_may_be_the_first_that_is_left(gappy: Service) -> None:
    await gappy.back.perform(Trim(ref("a"), FromSeqNum(2)))
    service = Service(gappy.back, gappy.wall, changed(), _GapFirst(gappy.back))
    assert (await service.ask("GET", "a", query=f"?offset={spell_offset(1)}")).status == 410
    answer = await service.ask("GET", "a", query=f"?offset={spell_offset(2)}")
    assert (answer.status, answer.body) == (200, b"23")


async def test_an_event_stream_passes_over_gaps(gappy: Service, clock: MockClock) -> None:
    async with gappy.connected() as client:
        stream = await client.open("GET", f"/v1/stream/a?offset={spell_offset(2)}&live=sse")
        assert (await client.head(stream)).status == 200
        first = await events(client, stream, b"upToDate")
        while spell_offset(6).encode() not in first:
            first += await events(client, stream, b"upToDate")
        data = [line for line in first.split(b"\n") if line.startswith(b"data:") and b"{" not in line]
        assert b"".join(line[5:] for line in data) == b"23"
        await gappy.ask("POST", "a", TEXT, body=b"4")
        await gappy.ask("POST", "a", TEXT, body=b"5")
        begun = trio.current_time()
        assert b"data:5\n" in await events(client, stream, spell_offset(9).encode() + b'","streamCursor')
        assert trio.current_time() - begun < 1, "it need not wait for a heartbeat"
        await gappy.ask("POST", "a", TEXT, CLOSE, body=b"6")
        last = await events(client, stream, b"streamClosed")
        assert b"data:6\n" in last and spell_offset(10).encode() in last
        assert trio.current_time() - begun < 1


@pytest.mark.parametrize("start", [2, 5, 6])
async def test_an_event_stream_of_a_closed_stream_ends_behind_the_gap(
    gappy: Service, clock: MockClock, start: int
) -> None:
    await gappy.ask("POST", "a", CLOSE)
    begun = trio.current_time()
    answer = await gappy.ask("GET", "a", query=f"?offset={spell_offset(start)}&live=sse")
    assert trio.current_time() - begun < 1
    assert b"streamClosed" in answer.body and spell_offset(6).encode() in answer.body
