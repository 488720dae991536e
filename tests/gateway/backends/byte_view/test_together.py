"""Streams of another server together with others: merges, positions in other terms, and clients of records."""

from __future__ import annotations

import pytest
from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Fails, Wall, acknowledged, appending, sending
from support.store import records as stored_records

from penstock.backends.byte_view import BytesOnRecords, open_bytes_on_records
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import (
    AppendBytes,
    AttributeUpdate,
    BytesRead,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    Merged,
    ReadBytes,
    UpdateType,
)
from penstock.model.failures import FailureCode
from penstock.model.features import Feature
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromByteOffset,
    FromSeqNum,
    GetStreamConfig,
    Locate,
)
from penstock.model.records import Header, Record, StreamRef

NAME = b"name" * 4
SOURCE, OTHER = StreamRef(BASIN, "source"), StreamRef(BASIN, "other")
KEY = {0: (Header(b"k", b"v"),)}


async def read(back: Back, offset: int, wait: float = 0.0, **options: frozenset[Feature]) -> BytesRead:
    return await back.perform(ReadBytes(STREAM, offset, 1 << 20, wait, **options))


class _Elsewhere:
    def __init__(self, back: Back) -> None:
        self._back = back

    def back_of(self, stream: StreamRef) -> Back | None:
        return self._back if stream == SOURCE else None


class TestMerges:
    async def test_several_in_order(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        for stream in (SOURCE, OTHER):
            await back.perform(CreateStream(stream))
        await back.perform(sending(b"before"))
        data = join_events([b"first", b"second"])
        for at in range(0, len(data), 5):
            await back.perform(AppendBytes(SOURCE, data[at : at + 5], match_offset=at))
        await back.perform(AppendBytes(OTHER, b"raw"))
        updates = (AttributeUpdate(NAME, UpdateType.REPLACE, 5),)
        merged = await back.perform(Merge(STREAM, (SOURCE, OTHER), updates))
        assert merged == Merged((14 + len(data), 14 + len(data) + 3))
        assert [record.body for record in await records_of(server)] == [b"before", b"first", b"second", b"raw"]
        assert (await read(back, 14)).data == data + b"raw"
        assert await back.perform(GetAttribute(STREAM, NAME)) == 5
        for stream in (SOURCE, OTHER):
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await server.perform(GetStreamConfig(stream))

    async def test_a_source_that_is_somewhere_else(
        self, records: RecordsOnly, state: EmbeddedBack, server: EmbeddedBack, wall: Wall
    ) -> None:
        await state.perform(CreateBasin(BASIN))
        await state.perform(CreateStream(SOURCE))
        await state.perform(sending(b"there", stream=SOURCE))
        async with open_bytes_on_records(records, "m", state, sources=_Elsewhere(state), clock=wall) as back:
            assert await back.perform(Merge(STREAM, (SOURCE,))) == Merged((13,))
            assert (await read(back, 0)).data == join_events([b"there"])
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await state.perform(GetByteStreamInfo(SOURCE))

    async def test_interrupted_and_asked_for_again(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        await back.perform(CreateStream(SOURCE))
        await back.perform(sending(b"a", stream=SOURCE))
        records.fails = DeleteStream
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(Merge(STREAM, (SOURCE,)))
        records.fails = None
        assert await back.perform(Merge(STREAM, (SOURCE,))) == Merged((9,))
        assert (await read(back, 0)).data == join_events([b"a"])
        await back.perform(CreateStream(SOURCE))
        await back.perform(sending(b"b", stream=SOURCE))
        assert await back.perform(Merge(STREAM, (SOURCE,))) == Merged((18,))


class TestPositions:
    async def test_both_ways(self, back: BytesOnRecords) -> None:
        untouched = await back.perform(Locate(STREAM, FromSeqNum(0)))
        assert untouched.offset is None
        await back.perform(sending(*[b"%02d" % number for number in range(50)]))
        for number in (0, 7, 49, 50):
            assert (await back.perform(Locate(STREAM, FromSeqNum(number)))).offset == number * 10
        for offset, number in ((0, 0), (70, 7), (71, 8), (499, 50), (900, 50)):
            located = await back.perform(Locate(STREAM, FromByteOffset(offset)))
            assert (located.seq_num, located.offset) == (number, number * 10)


class TestOthers:
    async def test_records_alone_touch_nothing(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        await back.perform(appending(b"a"))
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"b"))
            (ack,) = await acknowledged(session, 1)
        assert ack.offset is None and not records.reads

    async def test_both_kinds_in_one_session(self, back: BytesOnRecords) -> None:
        for create in (True, False):
            async with back.append_session(STREAM, create_if_missing=create) as session:
                start = (await back.perform(GetByteStreamInfo(STREAM))).length
                await session.send(appending(b"a"))
                await session.send(sending(b"b", position=start + 1))
                await session.send(appending(b"c"))
                await session.send(appending(b"d"))
                session.close()
                acks = []
                while some := await session.receive():
                    acks += some
            assert [ack.end.seq_num - acks[0].start.seq_num for ack in acks] == [1, 2, 3, 4]
            assert (await read(back, start)).data == join_events([b"a", b"b", b"c", b"d"])

    @pytest.mark.parametrize("create", [True, False])
    async def test_a_failure_ends_the_session(self, back: BytesOnRecords, create: bool) -> None:
        await back.perform(sending(b"x", position=5))
        async with back.append_session(STREAM, create_if_missing=create) as session:
            await session.send(appending(b"a"))
            await session.send(sending(b"b", position=5))
            await session.send(appending(b"c"))
            await acknowledged(session, 1)
            with Fails(FailureCode.STALE_WRITER_POSITION):
                await session.receive()
        assert (await back.perform(GetByteStreamInfo(STREAM))).length == 18


async def records_of(server: EmbeddedBack) -> list[Record]:
    return await stored_records(server, FromSeqNum(0))
