"""Streams of another server as a whole: seals, truncation, deletion, attributes, merges, and who else uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Fails, Wall, acknowledged, appending, sending
from support.store import records as stored_records

from penstock.backends.byte_view import BytesOnRecords, BytesSettings, open_bytes_on_records
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back
from penstock.core.passthrough import HeaderList, Passthrough
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    BytesRead,
    GetAttribute,
    GetByteStreamInfo,
    ReadBytes,
    Seal,
    Truncate,
    UpdateAttribute,
)
from penstock.model.failures import FailureCode
from penstock.model.features import Feature
from penstock.model.operations import CreateBasin, CreateStream, DeleteBasin, DeleteStream, FromSeqNum, Trim
from penstock.model.records import Header, Record, StreamRef
from penstock.model.streams import BasinConfig
from penstock.wire.http import Buffer, FramePieces, ResponseHead

NAME = b"name" * 4
SOURCE, OTHER = StreamRef(BASIN, "source"), StreamRef(BASIN, "other")
KEY = {0: (Header(b"k", b"v"),)}


async def read(back: Back, offset: int, wait: float = 0.0, **options: frozenset[Feature]) -> BytesRead:
    return await back.perform(ReadBytes(STREAM, offset, 1 << 20, wait, **options))


class Passing(Passthrough):
    """A passage to a server, which tells what the server was sent; it is its own session."""

    def __init__(self, told: list[object]) -> None:
        self._told = told

    @asynccontextmanager
    async def open(self, method: str, query: str, headers: HeaderList) -> AsyncIterator[Passing]:
        yield self

    async def send(self, pieces: FramePieces) -> None:
        self._told.append([*pieces])

    async def finish(self) -> None:
        raise NotImplementedError

    async def receive_head(self) -> ResponseHead:
        return ResponseHead(1, 200, ())

    async def receive_pieces(self, _least: int) -> Sequence[Buffer]:
        return [b"frame"]

    def count_batches(self, _pieces: Sequence[Buffer]) -> Sequence[int]:
        return ()


class TestSeals:
    async def test_nothing_is_appended_through_this_gateway(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session, back.append_session(STREAM) as other:
            await session.send(appending(b"a"))
            await acknowledged(session, 1)
            await other.send(sending(b"b"))
            await acknowledged(other, 1)
            assert await back.perform(Seal(STREAM)) == 18 == await back.perform(Seal(STREAM))
            for late in (session, other):
                await late.send(appending(b"x") if late is session else sending(b"x"))
                with Fails(FailureCode.STREAM_SEALED):
                    await late.receive()
        for append in (appending(b"x"), sending(b"x")):
            with Fails(FailureCode.STREAM_SEALED):
                await back.perform(append)
        await server.perform(appending(b"unseen"))
        info = await back.perform(GetByteStreamInfo(STREAM))
        assert (info.length, info.sealed) == (18, True)
        found = await read(back, 9)
        assert (found.data, found.at_tail) == (join_events([b"b"]), True)
        assert (await read(back, 18, 5.0)).end_of_stream
        with Fails(FailureCode.INVALID, "beyond"):
            await read(back, 19)

    async def test_what_was_handed_over_before_is_appended(self, back: BytesOnRecords) -> None:
        await back.perform(sending(b"a"))
        async with back.append_session(STREAM, create_if_missing=False) as session:
            for _ in range(50):
                await session.send(sending(b"b"))
            assert await back.perform(Seal(STREAM)) == 51 * 9
            await session.send(sending(b"c"))
            await acknowledged(session, 50)
            with Fails(FailureCode.STREAM_SEALED):
                await session.receive()

    async def test_a_session_that_passes_through_ends_with_the_first_byte_operation(
        self, back: BytesOnRecords, records: RecordsOnly, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[object] = []
        monkeypatch.setattr(records, "passthrough", lambda _protocol, _stream: Passing(told))
        passthrough = back.passthrough("s2s", STREAM)
        assert passthrough is not None
        async with passthrough.open("POST", "", []) as appends, passthrough.open("GET", "", []) as reads:
            await appends.send(FramePieces([b"before"], 1))
            await back.perform(Seal(STREAM))
            with Fails(FailureCode.HOT_SERVER):
                await appends.send(FramePieces([b"after"], 1))
            assert await reads.receive_pieces(1) == [b"frame"]
        assert told == [[b"before"]]
        assert back.passthrough("s2s", STREAM) is None

    async def test_it_is_remembered(
        self, back: BytesOnRecords, records: RecordsOnly, state: EmbeddedBack, settings: BytesSettings
    ) -> None:
        await back.perform(Seal(STREAM))
        async with open_bytes_on_records(records, "lite", state, settings) as again:
            with Fails(FailureCode.STREAM_SEALED):
                await again.perform(appending(b"x"))
            async with again.append_session(STREAM) as session:
                await session.send(appending(b"x"))
                with Fails(FailureCode.STREAM_SEALED):
                    await session.receive()

    async def test_who_waits_learns_of_it(self, back: BytesOnRecords) -> None:
        found = []

        async def wait() -> None:
            found.append(await read(back, 0, 100.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await back.perform(Seal(STREAM))
        assert found == [BytesRead(0, b"", at_tail=True, end_of_stream=True, dropped={})]


class TestWaiting:
    async def test_the_first_byte_wakes_all(self, back: BytesOnRecords, records: RecordsOnly, server: Back) -> None:
        await back.perform(sending(b"a"))
        found = []

        async def wait() -> None:
            found.append((await read(back, 9, 100.0)).data)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not found
            await server.perform(appending(b"b"))
        assert found == [join_events([b"b"])] * 20
        assert len(records.reads) <= 2

    async def test_until_the_time_is_over(self, back: BytesOnRecords) -> None:
        assert await read(back, 5, 0.05) == BytesRead(5, b"", at_tail=True, end_of_stream=False, dropped={})

    async def test_readers_in_steps_share_a_session(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        await back.perform(sending(*[b"%03d" % number for number in range(900)]))
        for offset in range(0, 900 * 11, 100):
            await back.perform(ReadBytes(STREAM, offset, 100))
        assert len([read for read in records.reads if not read.bounded]) == 1

    async def test_more_readers_than_sessions(self, records: RecordsOnly, state: EmbeddedBack, wall: Wall) -> None:
        few = BytesSettings(max_read_sessions=2, mark_every_bytes=64, read_ahead_bytes=64)
        async with open_bytes_on_records(records, "few", state, few, clock=wall) as back:
            await back.perform(sending(*[b"%03d" % number for number in range(900)]))
            for offset in (9000, 0, 5000, 2000, 9000, 100):
                found = await back.perform(ReadBytes(STREAM, offset, 11))
                assert len(found.data) == 11


class TestRecordsThatAreRefused:
    async def test_before_it_at_it_and_behind_it(self, back: BytesOnRecords) -> None:
        await back.perform(appending(b"a"))
        await back.perform(appending(b"b", headers=KEY))
        await back.perform(appending(b"c"))
        refuse = frozenset({Feature.HEADERS})
        assert (await read(back, 0, refuse=refuse)).data == join_events([b"a"])
        with Fails(FailureCode.NOT_REPRESENTABLE, "the next bytes are at offset 18"):
            await read(back, 9, refuse=refuse)
        assert (await read(back, 18, refuse=refuse)).data == join_events([b"c"])
        everything = await read(back, 0)
        assert (everything.data, everything.dropped) == (join_events([b"a", b"b", b"c"]), {Feature.HEADERS: 1})


class TestEnvelopes:
    async def test_other_settings_are_for_what_comes(self, records: RecordsOnly, state: EmbeddedBack) -> None:
        append = appending(b"x", headers=KEY)
        wrapped = BytesSettings(envelopes=Layout.ENVELOPE_HEADERS)
        async with open_bytes_on_records(records, "e", state) as back:
            await back.perform(append)
            assert (await back.perform(GetByteStreamInfo(STREAM))).length == 9
        lengths = []
        for settings in (wrapped, BytesSettings(), wrapped):
            async with open_bytes_on_records(records, "e", state, settings) as back:
                before = (await back.perform(GetByteStreamInfo(STREAM))).length
                await back.perform(append)
                lengths.append((await back.perform(GetByteStreamInfo(STREAM))).length - before)
                assert len((await read(back, 0)).data) == before + lengths[-1]
        assert lengths[0] == lengths[2] > 9 == lengths[1]


class TestWhatGoes:
    async def test_truncation_inside_an_event(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        await back.perform(sending(b"a", b"b", b"c", b"d"))
        assert await back.perform(Truncate(STREAM, 20)) == 20 == await back.perform(Truncate(STREAM, 3))
        assert [record.body for record in await records_of(server)] == [b"c", b"d"]
        with Fails(FailureCode.OFFSET_TRUNCATED) as fails:
            await read(back, 19)
        assert fails.failure.details == {"offset": 20}
        assert (await read(back, 20)).data == join_events([b"c", b"d"])[2:]
        with Fails(FailureCode.INVALID):
            await back.perform(Truncate(STREAM, 37))

    async def test_others_trim(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        for number in range(40):
            await server.perform(appending(b"%02d" % number))
        assert (await back.perform(GetByteStreamInfo(STREAM))).length == 400
        await server.perform(Trim(STREAM, FromSeqNum(17)))
        assert (await back.perform(GetByteStreamInfo(STREAM))).start_offset == 170
        with Fails(FailureCode.OFFSET_TRUNCATED):
            await read(back, 160)
        assert (await read(back, 170)).data[8:10] == b"17"

    async def test_connections_that_ended_before_the_first_look_have_no_bytes(
        self, back: BytesOnRecords, server: EmbeddedBack
    ) -> None:
        for _ in range(3):
            await server.perform(appending(b"x"))
        await server.perform(Trim(STREAM, FromSeqNum(2)))
        info = await back.perform(GetByteStreamInfo(STREAM))
        assert (info.start_offset, info.length) == (0, 9)
        assert (await read(back, 0)).data == join_events([b"x"])

    async def test_a_reader_hears_of_a_trim(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        for number in range(40):
            await server.perform(appending(b"%02d" % number))
        await back.perform(GetByteStreamInfo(STREAM))
        await server.perform(Trim(STREAM, FromSeqNum(30)))
        with Fails(FailureCode.OFFSET_TRUNCATED) as fails:
            await read(back, 50)
        assert fails.failure.details == {"offset": 300}

    async def test_a_deleted_stream_is_forgotten(self, back: BytesOnRecords) -> None:
        await back.perform(sending(b"a", position=5))
        await back.perform(Seal(STREAM))
        await back.perform(DeleteStream(STREAM))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await read(back, 0)
        await back.perform(CreateStream(STREAM))
        assert await back.perform(GetAttribute(STREAM, bytes(16))) == NO_ATTRIBUTE
        assert (await back.perform(sending(b"b", position=1))).offset == 9

    async def test_with_its_basin(self, back: BytesOnRecords) -> None:
        await back.perform(sending(b"a", position=5))
        await back.perform(DeleteBasin(BASIN))
        await back.perform(CreateBasin(BASIN, BasinConfig(create_stream_on_append=True)))
        await back.perform(appending(b"abc"))
        assert await back.perform(GetAttribute(STREAM, bytes(16))) == NO_ATTRIBUTE
        assert (await back.perform(GetByteStreamInfo(STREAM))).length == 11

    async def test_who_waits_hears_that_it_is_deleted(self, back: BytesOnRecords) -> None:
        async def wait() -> None:
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await read(back, 0, 100.0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await back.perform(DeleteStream(STREAM))

    async def test_another_of_the_same_name(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        """Made behind the gateway's back: it is found out when it is shorter."""
        await back.perform(sending(b"a", b"b", position=5))
        await server.perform(DeleteStream(STREAM))
        await server.perform(CreateStream(STREAM))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(GetByteStreamInfo(STREAM))
        assert (await back.perform(GetByteStreamInfo(STREAM))).length == 0
        assert (await back.perform(sending(b"c", position=1))).offset == 9


class TestConditions:
    async def test_an_offset_that_is_not_the_length(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        await server.perform(appending(b"x"))
        for wrong in (0, 8, 10):
            with Fails(FailureCode.OFFSET_MISMATCH) as fails:
                await back.perform(sending(b"y", offset=wrong, position=2))
            assert fails.failure.details == {"offset": 9}
        assert (await back.perform(sending(b"y", offset=9, position=2))).offset == 18
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await back.perform(sending(b"y", offset=0, position=2))

    async def test_another_client_is_faster(
        self, back: BytesOnRecords, records: RecordsOnly, server: EmbeddedBack
    ) -> None:
        """Another client's append between the check and the append makes it fail, unless that record has no bytes."""
        for body, fails in ((b"", False), (b"x", True)):
            length = (await back.perform(GetByteStreamInfo(STREAM))).length
            records.before_sending.append(appending(body))
            append = sending(b"y", offset=length, position=length + 1)
            if fails:
                with Fails(FailureCode.OFFSET_MISMATCH):
                    await back.perform(append)
            else:
                assert (await back.perform(append)).offset == length + 9


class TestAttributes:
    async def test_set_if_it_is_what_is_expected(
        self, back: BytesOnRecords, records: RecordsOnly, state: EmbeddedBack, settings: BytesSettings
    ) -> None:
        assert await back.perform(UpdateAttribute(STREAM, NAME, 7, NO_ATTRIBUTE))
        assert not await back.perform(UpdateAttribute(STREAM, NAME, 8, NO_ATTRIBUTE))
        assert await back.perform(UpdateAttribute(STREAM, NAME, 8, 7))
        async with open_bytes_on_records(records, "lite", state, settings) as again:
            assert await again.perform(GetAttribute(STREAM, NAME)) == 8
            assert await again.perform(UpdateAttribute(STREAM, NAME, NO_ATTRIBUTE, 8))
        async with open_bytes_on_records(records, "lite", state, settings) as again:
            assert await again.perform(GetAttribute(STREAM, NAME)) == NO_ATTRIBUTE


async def records_of(server: EmbeddedBack) -> list[Record]:
    return await stored_records(server, FromSeqNum(0))
