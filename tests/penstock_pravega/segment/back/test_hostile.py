"""Segment stores that send impossible or useless replies for ever: the request fails, and nothing else happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from support.native import MemoryTables
from support.segment.back import STREAM, append_of, opened
from support.segment.front import WatchedBack
from support.segment.scripts import Answer, scripted
from support.store import Fails, records
from trio.testing import MockClock

from penstock.backends.sequence_numbering import open_indexed
from penstock.core.marks import START
from penstock.model.byte_operations import GetAttribute, GetByteStreamInfo, ReadBytes
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CheckTail, FromSeqNum
from penstock_pravega.codec import Dialect, SegmentMessage, join_events, released
from penstock_pravega.segment.back import SegmentBack
from penstock_pravega.segment.front import SegmentFront

SEGMENT = "scope-of-streams/stream/0.#epoch.0"
WRITER = bytes(range(16))
EVENTS = join_events([b"one", b"two"])


def info(request: Any, length: int, start: int = 0) -> list[SegmentMessage]:
    return [released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, start, length)]


def storing(data: bytes, read: Callable[[Any], SegmentMessage]) -> Answer:
    """A store with these bytes, which answers reads with what `read` makes of them."""

    def answer(request: Any) -> list[SegmentMessage]:
        if isinstance(request, released.GetStreamSegmentInfo):
            return info(request, len(data))
        if isinstance(request, released.SetupAppend):
            return [released.AppendSetup(request.request_id, request.segment, request.writer_id, -(1 << 63))]
        return [read(request)]

    return answer


async def scan(back: SegmentBack, offset: int = 0, wait: float = 0) -> list[bytes]:
    mark = START._replace(offset=offset)
    return (await back.native.scan(STREAM, mark, max_records=100, max_bytes=10_000, wait=wait)).bodies


ASKS: list[Callable[[SegmentBack], Awaitable[object]]] = [
    lambda back: back.direct.perform(GetByteStreamInfo(STREAM)),
    lambda back: back.direct.perform(GetAttribute(STREAM, WRITER)),
    lambda back: back.direct.perform(ReadBytes(STREAM, 0, 100)),
    lambda back: scan(back),
    lambda back: scan(back, wait=1),
    lambda back: back.native.append_at(STREAM, append_of(b"x"), START),
    lambda back: back.native.create(STREAM),
]


@pytest.mark.parametrize("ask", ASKS)
async def test_an_answer_to_another_question(clock: MockClock, ask: Callable[[SegmentBack], Awaitable[object]]) -> None:
    """It has the request's id. Nothing else of the back is hurt by it."""
    asked: list[Any] = []

    def answer(request: Any) -> list[SegmentMessage]:
        asked.append(request)
        if isinstance(request, released.CreateSegment):
            return [released.SegmentSealed(request.request_id, SEGMENT)]
        return [released.SegmentDeleted(request.request_id, SEGMENT)]

    async with opened(scripted(answer), recover_seconds=2) as (back, _):
        for _ in range(2):
            before = len(asked)
            with pytest.raises(OperationFailed) as caught:
                await ask(back)
            assert caught.value.failure.code is FailureCode.UPSTREAM_FAULT
            assert len(asked) - before < 100


async def test_bytes_from_another_place(clock: MockClock) -> None:
    def read(request: Any) -> SegmentMessage:
        return released.SegmentRead(SEGMENT, request.offset - 11, True, False, EVENTS[:11], request.request_id)

    async with opened(scripted(storing(EVENTS, read)), recover_seconds=2) as (back, _):
        with Fails(FailureCode.UPSTREAM_FAULT):
            await scan(back, 11)


@pytest.mark.parametrize("start", [0, 3])
async def test_a_store_that_takes_back_what_it_truncated(clock: MockClock, start: int) -> None:
    """It replies to reads of later bytes that the bytes before `start` are gone."""
    asked: list[Any] = []

    def answer(request: Any) -> list[SegmentMessage]:
        asked.append(request)
        assert len(asked) < 100
        if isinstance(request, released.GetStreamSegmentInfo):
            return info(request, 5)
        return [released.SegmentIsTruncated(request.request_id, SEGMENT, start)]

    async with (
        opened(scripted(answer), recover_seconds=2) as (back, _),
        open_indexed(
            back.native,
            "x",
            MemoryTables(),
        ) as indexed,
    ):
        for _ in range(3):
            with pytest.raises(OperationFailed):
                await records(indexed, FromSeqNum(0))


async def test_a_writers_number_that_nothing_can_follow(clock: MockClock) -> None:
    def answer(request: Any) -> list[SegmentMessage]:
        if isinstance(request, released.SetupAppend):
            return [released.AppendSetup(request.request_id, request.segment, request.writer_id, (1 << 63) - 1)]
        return info(request, 0)

    async with opened(scripted(answer), recover_seconds=2) as (back, _):
        with pytest.raises(OperationFailed):
            await back.native.append_at(STREAM, append_of(b"x"), START)
        assert await scan(back) == []


@pytest.mark.parametrize("dialect", list(Dialect))
async def test_who_gives_up_an_append_holds_no_line(
    front: SegmentFront, store: WatchedBack, clock: MockClock, dialect: Dialect
) -> None:
    async with opened(front, dialect=dialect) as (back, _):
        await back.native.create(STREAM)
        for passes in range(60):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def open_session() -> None:
                        async with back.native.append_session(STREAM):
                            pass

                    nursery.start_soon(open_session)
                    for _ in range(passes):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            every = [kinds for lines in back.native._stores._pools.values() for kinds in lines._connections.values()]
            assert not any(line.users for lines in every for line in lines), passes
            back.native._writers.forget(SEGMENT)


async def test_a_segment_that_others_made_anew(front: SegmentFront, store: WatchedBack, clock: MockClock) -> None:
    """It is shorter than it was: another one with the same name, counted from 0."""
    async with opened(front) as (back, _), open_indexed(back.native, "x", store) as indexed:
        await back.native.create(STREAM)
        await indexed.perform(append_of(b"one", b"two", create_if_missing=False))
        assert (await indexed.perform(CheckTail(STREAM))).seq_num == 2
        async with opened(front) as (others, _):
            await others.native.delete(STREAM)
            await others.native.create(STREAM)
            await others.native.append_at(STREAM, append_of(b"a"), START)
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await indexed.perform(CheckTail(STREAM))
        assert (await indexed.perform(CheckTail(STREAM))).seq_num == 1
        assert [record.body for record in await records(indexed, FromSeqNum(0), stream=STREAM)] == [b"a"]
