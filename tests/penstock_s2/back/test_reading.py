"""Reads over connections that break anywhere: each record comes once and in order, and the bounds are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.s2.model import ModelServer, Wire, model_server
from support.store import NOW, STREAM, appending, batches
from support.upstreams import by, far_server

from penstock.core.back import Back, Following, ReadSession
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CheckTail, FromByteOffset, FromRecordId, FromSeqNum, FromTailOffset, Read
from penstock.model.record_encoding import RECORDS
from penstock.model.records import RecordBatch, RecordId, StreamPosition
from penstock.model.streams import StreamConfig
from penstock.net.http.client import HttpVersion
from penstock.net.http.exchange import Exchange
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sse import open_s2_sse
from penstock_s2.codec.protobuf import S2_READ_BATCH
from penstock_s2.front import S2Settings

Clock = trio.testing.MockClock
SOURCES = pytest.mark.parametrize("source", ["s2s", "sse"])


@asynccontextmanager
async def source_of(server: ModelServer, source: str, **settings: object) -> AsyncIterator[Back]:
    if source == "s2s":
        async with server.opened(upstream={"breaker_failures": 1000}, **settings) as back:
            yield back
    else:
        upstream = server.far.upstream(breaker_failures=1000)
        async with open_s2_sse(S2BackSettings(**settings), upstream) as back:  # type: ignore[arg-type]
            yield back


wires = st.builds(Wire, up=st.none() | st.integers(0, 600), down=st.integers(0, 700), silent=st.booleans())
first_wires = st.builds(Wire, down=st.integers(350, 1000), silent=st.booleans())


@dataclass(frozen=True)
class Story:
    """A read from `start` of `before` records and `after` more that come later. The first connection carries at least
    the head of the answer: beginning a read is tried once."""

    source: str
    dialect: str
    version: HttpVersion
    wires: list[Wire]
    before: int
    after: int
    start: int
    count: int | None


stories = st.builds(
    Story,
    source=st.sampled_from(["s2s", "sse"]),
    dialect=st.sampled_from(["s2", "seed"]),
    version=st.sampled_from([HttpVersion.H1, HttpVersion.H2]),
    wires=st.builds(lambda first, more: [first, *more], first_wires, st.lists(wires, max_size=8)),
    before=st.integers(0, 12),
    after=st.integers(0, 6),
    start=st.integers(0, 12),
    count=st.none() | st.integers(1, 10),
)


@given(story=stories)
def test_each_record_comes_once_and_in_order(story: Story) -> None:
    trio.run(_once_and_in_order, story, clock=Clock(autojump_threshold=0))


async def _once_and_in_order(story: Story) -> None:
    async with model_server(S2Settings(sse_dialect=story.dialect)) as server:
        server.back.make(STREAM)
        for index in range(story.before):
            server.back.append(appending(b"%d" % index))
        server.wires = iter(story.wires)
        start = min(story.start, story.before)
        wanted = [b"%d" % index for index in range(start, story.before + story.after)][: story.count]
        settings = {"http": story.version, "recover_seconds": 1000.0, "sse_dialect": story.dialect}
        async with source_of(server, story.source, **settings) as back:
            read = Read(STREAM, FromSeqNum(start), count=story.count, wait=600 if story.count else None)
            found: list[bytes] = []
            async with back.read_session(read) as session, trio.open_nursery() as nursery:
                nursery.start_soon(_append_later, server, story)
                while len(found) < len(wanted):
                    event = await session.next()
                    assert event is not None
                    if isinstance(event, RecordBatch):
                        found += event.columns.bodies
                assert not session.behind()
                if len(wanted) == story.count:
                    assert await session.next() is None
            assert found == wanted


async def _append_later(server: ModelServer, story: Story) -> None:
    for index in range(story.before, story.before + story.after):
        await trio.sleep(7)
        server.back.append(appending(b"%d" % index))


@SOURCES
async def test_it_follows_and_says_so_once(source: str, autojump_clock: Clock) -> None:
    async with model_server() as server, source_of(server, source) as back:
        server.back.make(STREAM)
        server.back.append(appending(b"a"))
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert await bodies_of(session) == [b"a"]
            assert await session.next() == Following(server.back.streams[STREAM].tail)
            for index in range(3):
                with trio.move_on_after(100) as scope:  # heartbeats go on, and are not returned
                    await session.next()
                assert scope.cancelled_caught
                assert (session.tail().seq_num, session.behind()) == (index + 1, False)
                server.back.append(appending(b"%d" % index))
                assert await bodies_of(session) == [b"%d" % index]
        assert server.far.dials == 1


async def test_it_is_behind_until_the_server_tells_its_tail(autojump_clock: Clock) -> None:
    """A batch without a tail has more behind it, although the read does not know how much."""
    async with model_server() as server, source_of(server, "s2s") as back:
        server.back.make(STREAM)
        for _ in range(3):
            server.back.append(appending(bytes(700_000)))
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            behind = []
            while isinstance(event := await session.next(), RecordBatch):
                behind.append((event.next_seq_num, session.behind()))
            assert isinstance(event, Following) and not session.behind()
            assert behind[0] == (1, True) and behind[-1][0] == 3


async def bodies_of(session: ReadSession) -> list[bytes]:
    batch = await session.next()
    assert isinstance(batch, RecordBatch), batch
    return batch.columns.bodies


@SOURCES
async def test_a_wait_ends_in_parts_of_a_second_and_begins_anew_with_records(
    source: str, autojump_clock: Clock
) -> None:
    async with model_server() as server, source_of(server, source) as back:
        server.back.make(STREAM)
        server.back.append(appending(b"a"))
        begun = trio.current_time()
        async with back.read_session(Read(STREAM, FromSeqNum(0), wait=1.5)) as session, trio.open_nursery() as nursery:
            assert await bodies_of(session) == [b"a"]
            assert isinstance(await session.next(), Following)

            async def later() -> None:
                await trio.sleep(1.0)
                server.back.append(appending(b"b"))

            nursery.start_soon(later)
            assert await bodies_of(session) == [b"b"]
            assert await session.next() is None
            assert await session.next() is None
        assert trio.current_time() - begun == pytest.approx(2.5, abs=0.01)


@SOURCES
async def test_a_silent_server_is_left(source: str, autojump_clock: Clock) -> None:
    settings = S2Settings(heartbeat_seconds=(1000.0, 1000.0))
    async with model_server(settings) as server, source_of(server, source) as back:
        server.back.make(STREAM)
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), Following)
            for _ in range(12):  # asked again and again, as fronts do for their own heartbeats
                with trio.move_on_after(5):
                    await session.next()
            assert server.far.dials == 3
            server.back.append(appending(b"a"))
            assert await bodies_of(session) == [b"a"]


@SOURCES
async def test_a_server_that_stays_away_is_told_of(source: str, autojump_clock: Clock) -> None:
    async with model_server() as server, source_of(server, source, recover_seconds=10.0) as back:
        server.back.make(STREAM)
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), Following)
            server.far.up = False
            server.cut()
            begun = trio.current_time()
            with pytest.raises(OperationFailed) as failed:
                await session.next()
            assert failed.value.failure.code is FailureCode.HOT_SERVER
            assert "back far at example:1" in failed.value.failure.message
            assert 10 <= trio.current_time() - begun < 20


@SOURCES
async def test_a_deleted_stream_ends_the_read(source: str, autojump_clock: Clock) -> None:
    async with model_server() as server, source_of(server, source) as back:
        server.back.make(STREAM)
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), Following)
            del server.back.streams[STREAM]
            server.cut()
            with pytest.raises(OperationFailed) as failed:
                await session.next()
            assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND


@SOURCES
async def test_what_cannot_be_read_is_refused(source: str, autojump_clock: Clock) -> None:
    async with model_server() as server, source_of(server, source) as back:
        server.back.make(STREAM)
        server.back.append(appending(b"a"))
        for start, code in (
            (FromSeqNum(2), FailureCode.RANGE_NOT_SATISFIABLE),
            (FromByteOffset(0), FailureCode.NOT_IMPLEMENTED),
        ):
            with pytest.raises(OperationFailed) as failed:
                await batches(back, start)
            assert failed.value.failure.code is code
        with pytest.raises(OperationFailed) as failed:
            await batches(back, FromSeqNum(1), count=1)
        assert failed.value.failure.details["tail"] == {"seq_num": 1, "timestamp": NOW}
        assert [batch.first_seq_num for batch in await batches(back, FromSeqNum(5), clamp=True, wait=1)] == []


@SOURCES
async def test_what_must_not_create_its_stream_does_not(source: str, autojump_clock: Clock) -> None:
    async with model_server() as server, source_of(server, source) as back:
        server.back.create_on_read = True
        with pytest.raises(OperationFailed) as failed:
            await batches(back, FromSeqNum(0), create_if_missing=False)
        assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND
        with pytest.raises(OperationFailed) as failed:
            await back.perform(CheckTail(STREAM, create_if_missing=False))
        assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND
        assert not server.back.streams
        assert await back.perform(CheckTail(STREAM)) == StreamPosition(0, 0)
        assert await back.perform(CheckTail(STREAM, create_if_missing=False)) == StreamPosition(0, 0)
        assert await batches(back, FromSeqNum(0), create_if_missing=False, clamp=True, wait=1) == []


@pytest.mark.parametrize("status", [403, 404, 405, 500])
async def test_a_source_that_tells_nothing_but_records(status: int, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.path.endswith("/tail"):
            body = b'{"tail": {"seq_num": 3, "timestamp": 4}}'
            await exchange.respond(200, [("content-type", "application/json")], body)
        else:
            await exchange.respond(status, [("content-type", "text/html")], b"<p>No")

    async with far_server(by(handler)) as far, open_s2_sse(S2BackSettings(), far.upstream()) as back:
        assert await back.perform(CheckTail(STREAM, create_if_missing=False)) == StreamPosition(3, 4)


async def test_frames_keep_the_bytes_they_came_in(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        server.back.append(appending(*(b"%d" % index for index in range(4))))
        found = await batches(back, FromSeqNum(0))
        assert [batch.wire.encoding for batch in found if batch.wire] == [RECORDS, S2_READ_BATCH]


async def test_identifiers_that_lie_in_the_future(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM, StreamConfig(timestamping_uncapped=True))
        server.back.append(appending(b"a", b"b", timestamps=[5, 5]))
        read = Read(STREAM, FromRecordId(RecordId(7, 1)), count=2, wait=10)
        async with back.read_session(read) as session:
            assert isinstance(await session.next(), Following)
            server.back.append(appending(*(b"%d" % index for index in range(6)), timestamps=[5, 6, 7, 7, 7, 8]))
            found: list[RecordBatch] = []
            while isinstance(batch := await session.next(), RecordBatch):
                found.append(batch)
        ids = [record_id for batch in found for record_id in batch.record_ids()]
        assert ids == [RecordId(7, 1), RecordId(7, 2)]


async def test_who_reads_on_asks_for_no_positions(autojump_clock: Clock) -> None:
    """As S3P's readers do: each READ begins behind the last identifier that the one before gave."""
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        for _ in range(4):
            server.back.append(appending(b"x", b"y", b"z"))
        start, requests, found = RecordId(0, 0), [], []
        for _ in range(4):
            before = len(server.requests)
            some = await batches(back, FromRecordId(start), count=3)
            requests.append(len(server.requests) - before)
            ids = [record_id for batch in some for record_id in batch.record_ids()]
            found += ids
            start = RecordId(ids[-1].ms, ids[-1].seq + 1)
        assert found == [RecordId(NOW, seq) for seq in range(12)]
        assert requests[1:] == [1, 1, 1]


@SOURCES
async def test_heartbeats_do_not_begin_a_tail_offset_anew(source: str, autojump_clock: Clock) -> None:
    """A read from the tail on, whose connection is lost before the first record: none is missed."""
    async with model_server() as server, source_of(server, source) as back:
        server.back.make(STREAM)
        server.back.append(appending(b"old"))
        async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
            assert isinstance(await session.next(), Following)
            server.far.up = False
            server.cut()
            with trio.move_on_after(18):
                await session.next()
            server.back.append(appending(b"new"))
            server.far.up = True
            assert await bodies_of(session) == [b"new"]


async def test_a_place_in_a_stream_that_was_made_anew_is_forgotten(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        server.back.append(appending(b"x", b"y", b"z"))
        assert len(await batches(back, FromRecordId(RecordId(0, 0)))) == 1
        server.back.make(STREAM)
        server.back.clock.now += 1
        server.back.append(appending(b"new"))
        behind = FromRecordId(RecordId(NOW, 3))
        with pytest.raises(OperationFailed) as failed:
            await batches(back, behind)
        assert failed.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
        assert [batch.columns.bodies for batch in await batches(back, behind)] == [[b"new"]]
