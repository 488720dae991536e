"""A back on the real `s2 lite` (`make peers`): everything that an S2 back offers, and the power cut in mid-load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from support.real_backs import BackServer, S2Lite, SecondPenstock
from support.store import appending, batches, command

from penstock.core.back import AppendSession, Following
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    EnsureBasin,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Locate,
    Read,
    Trim,
)
from penstock.model.records import Header, Record, RecordBatch, RecordId, StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, StreamConfig
from penstock.net.http.client import HttpVersion
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock.wire.compression import Compression
from penstock_s2.back.back import S2Back, open_s2
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sse import open_s2_sse

pytestmark = pytest.mark.peer

BASIN = "lite-back-tests"
VERSIONS = pytest.mark.parametrize("version", [HttpVersion.H1, HttpVersion.H2], ids=["h1", "h2"])


@pytest.fixture(scope="module", params=[S2Lite, partial(SecondPenstock, "s2")], ids=["lite", "penstock"])
def lite(request: pytest.FixtureRequest) -> Iterator[BackServer]:
    """The real one; and another Penstock, which must not be told from it."""
    with request.param() as server:
        yield server


@asynccontextmanager
async def opened(server: BackServer, **settings: object) -> AsyncIterator[S2Back]:
    host, port = server.address
    upstream = Upstream(UpstreamSettings(name="lite", host=host, port=port))
    async with open_s2(S2BackSettings(**settings), upstream) as back:  # type: ignore[arg-type]
        await back.perform(EnsureBasin(BASIN, BasinConfig()))
        yield back


async def fresh(back: S2Back, name: str, config: StreamConfig = StreamConfig()) -> StreamRef:
    stream = StreamRef(BASIN, name)
    await back.perform(CreateStream(stream, config))
    return stream


async def everything(back: S2Back, stream: StreamRef) -> list[Record]:
    return [record for batch in await batches(back, FromSeqNum(0), stream) for record in batch.records()]


@VERSIONS
@pytest.mark.parametrize("compression", list(Compression))
async def test_records_come_back_as_they_went(lite: BackServer, version: HttpVersion, compression: Compression) -> None:
    async with opened(lite, http=version, compression=compression) as back:
        stream = await fresh(back, f"records {version} {compression}")
        headers = {1: (Header(b"name", b"\xff"), Header(b"other", b""))}
        ack = await back.perform(appending(b"", b"\x00\xff", b"x" * 5000, headers=headers, stream=stream))
        assert (ack.start.seq_num, ack.end.seq_num, ack.last_id) == (0, 3, RecordId(ack.end.timestamp, 2))
        large = await back.perform(appending(b"y" * ((1 << 20) - 8), stream=stream))
        assert large.end.seq_num == 4
        found = await everything(back, stream)
        assert [record.body for record in found] == [b"", b"\x00\xff", b"x" * 5000, b"y" * ((1 << 20) - 8)]
        assert [record.headers for record in found] == [(), headers[1], (), ()]
        assert await back.perform(CheckTail(stream)) == StreamPosition(4, found[-1].timestamp)


@VERSIONS
async def test_pipelined_appends_are_acknowledged_in_order(lite: BackServer, version: HttpVersion) -> None:
    async with opened(lite, http=version) as back:
        stream = await fresh(back, f"pipelined {version}")
        acks = []
        async with back.append_session(stream) as session, trio.open_nursery() as nursery:
            nursery.start_soon(_send, session, [appending(b"%d" % index, stream=stream) for index in range(300)])
            while some := await session.receive():
                acks += some
        assert [ack.start.seq_num for ack in acks] == list(range(300))
        assert [record.body for record in await everything(back, stream)] == [b"%d" % index for index in range(300)]


async def _send(session: AppendSession, appends: list) -> None:  # type: ignore[type-arg]
    for append in appends:
        await session.send(append)
    session.close()


async def test_conditions_are_the_servers(lite: BackServer) -> None:
    async with opened(lite) as back:
        stream = await fresh(back, "conditions")
        await back.perform(appending(b"a", match=0, stream=stream))
        with pytest.raises(OperationFailed) as failed:
            await back.perform(appending(b"b", match=0, stream=stream))
        assert failed.value.failure.details == {"seq_num_mismatch": 1}
        await back.perform(command(b"fence", b"mine", stream=stream))
        with pytest.raises(OperationFailed) as failed:
            await back.perform(appending(b"b", token="yours", stream=stream))
        assert failed.value.failure.details == {"fencing_token_mismatch": "mine"}
        assert (await back.perform(appending(b"b", token="mine", stream=stream))).end.seq_num == 3


async def test_other_clients_of_a_session_do_not_suffer(lite: BackServer) -> None:
    async with opened(lite) as back:
        stream = await fresh(back, "shared")
        refused = 0

        async def append(index: int) -> None:
            nonlocal refused
            try:
                await back.perform(appending(b"%d" % index, match=0 if index % 5 == 0 else None, stream=stream))
            except OperationFailed as error:
                assert error.failure.code is FailureCode.SEQ_NUM_MISMATCH
                refused += 1

        async with trio.open_nursery() as nursery:
            for index in range(50):
                nursery.start_soon(append, index)
        found = [int(record.body) for record in await everything(back, stream)]
        assert len(found) == 50 - refused
        assert refused in (9, 10)
        assert {index for index in range(50) if index % 5} <= set(found)


async def test_foreign_clients_are_met(lite: BackServer) -> None:
    """Two gateways append to one stream, and neither loses or repeats anything."""
    async with opened(lite) as one, opened(lite) as other:
        stream = await fresh(one, "foreign")

        async def append(back: S2Back, name: bytes) -> None:
            for index in range(30):
                await back.perform(appending(b"%b %d" % (name, index), stream=stream))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, one, b"one")
            nursery.start_soon(append, other, b"other")
        found = [record.body.split() for record in await everything(one, stream)]
        for name in (b"one", b"other"):
            assert [int(index) for who, index in found if who == name] == list(range(30))


@VERSIONS
async def test_a_read_follows_the_tail(lite: BackServer, version: HttpVersion) -> None:
    async with opened(lite, http=version) as back:
        stream = await fresh(back, f"follow {version}")
        await back.perform(appending(b"a", stream=stream))
        async with back.read_session(Read(stream, FromSeqNum(0))) as session:
            first = await session.next()
            assert isinstance(first, RecordBatch)
            told = await session.next()
            assert isinstance(told, Following)
            assert told.tail.seq_num == 1
            for index in range(3):
                await back.perform(appending(b"%d" % index, stream=stream))
                batch = await session.next()
                assert isinstance(batch, RecordBatch)
                assert batch.columns.bodies == [b"%d" % index]
                assert not session.behind()
            assert session.tail().seq_num == 4


async def test_where_reads_begin_and_end(lite: BackServer) -> None:
    async with opened(lite) as back:
        stream = await fresh(back, "begin", StreamConfig(timestamping_uncapped=True))
        for stamp in (10, 10, 20, 30):
            await back.perform(appending(b"%d" % stamp, b"", timestamps=[stamp, stamp], stream=stream))

        async def numbers(start: object, **options: object) -> list[int]:
            found = await batches(back, start, stream, **options)  # type: ignore[arg-type]
            return [number for batch in found for number in batch.columns.seq_nums]

        assert await numbers(FromTimestamp(15)) == [4, 5, 6, 7]
        assert await numbers(FromTailOffset(3)) == [5, 6, 7]
        assert await numbers(FromSeqNum(2), count=3) == [2, 3, 4]
        assert await numbers(FromSeqNum(0), until=20) == [0, 1, 2, 3]
        assert await numbers(FromSeqNum(0), max_bytes=20) == [0, 1]
        for ms, seq, wanted in ((10, 2, 2), (10, 9, 4), (5, 0, 0), (20, 1, 5), (25, 3, 6)):
            assert (await numbers(FromRecordId(RecordId(ms, seq))))[0] == wanted
        found = await batches(back, FromRecordId(RecordId(10, 1)), stream)
        ids = [record_id for batch in found for record_id in batch.record_ids()]
        assert ids == [RecordId(10, 1), RecordId(10, 2), RecordId(10, 3)] + [
            RecordId(ms, seq) for ms in (20, 30) for seq in (0, 1)
        ]
        for start in (FromSeqNum(9), FromTimestamp(31)):
            with pytest.raises(OperationFailed) as failed:
                await numbers(start)
            assert failed.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            assert failed.value.failure.details["tail"] == {"seq_num": 8, "timestamp": 30}
        assert await numbers(FromSeqNum(8), wait=0.05) == []


async def test_positions_are_converted(lite: BackServer) -> None:
    async with opened(lite) as back:
        stream = await fresh(back, "locate", StreamConfig(timestamping_uncapped=True))
        assert (await back.perform(Locate(stream, FromSeqNum(0)))).record_id == RecordId(0, 0)
        await back.perform(appending(b"a", b"b", b"c", timestamps=[10, 10, 20], stream=stream))
        for start in (FromSeqNum(1), FromRecordId(RecordId(10, 1)), FromTailOffset(2)):
            found = await back.perform(Locate(stream, start))
            assert (found.seq_num, found.timestamp, found.record_id, found.at_tail) == (1, 10, RecordId(10, 1), False)
        found = await back.perform(Locate(stream, FromTimestamp(21)))
        assert (found.seq_num, found.timestamp, found.record_id, found.at_tail) == (3, 20, RecordId(20, 1), True)


async def test_trims(lite: BackServer) -> None:
    async with opened(lite) as back:
        stream = await fresh(back, "trims", StreamConfig(timestamping_uncapped=True))
        await back.perform(
            appending(*(b"%d" % index for index in range(6)), timestamps=[1, 1, 2, 2, 3, 3], stream=stream)
        )
        assert await back.perform(Trim(stream, FromSeqNum(1))) == StreamPosition(1, 1)
        assert await back.perform(Trim(stream, FromRecordId(RecordId(2, 1)))) == StreamPosition(3, 2)
        assert await back.perform(Trim(stream, FromSeqNum(0))) == StreamPosition(3, 2)
        assert (await everything(back, stream))[0].seq_num == 3
        tail = await back.perform(CheckTail(stream))
        assert tail.seq_num == 8  # two command records
        assert (await back.perform(Trim(stream, FromSeqNum(100)))).seq_num == 8


async def test_exact_timestamps(lite: BackServer) -> None:
    async with opened(lite) as back:
        stream = await fresh(back, "exact")
        done = await back.perform(appending(b"a", b"b", exact=1000, stream=stream))
        assert (done.start.timestamp, done.end.timestamp, done.last_id) == (1000, 1000, RecordId(1000, 1))
        assert (await back.perform(appending(b"c", exact=1000, stream=stream))).last_id == RecordId(1000, 2)
        for exact, code in (
            (999, FailureCode.NON_MONOTONIC_TIMESTAMP),
            (2**50, FailureCode.NOT_REPRESENTABLE),
        ):
            with pytest.raises(OperationFailed) as failed:
                await back.perform(appending(b"d", exact=exact, stream=stream))
            assert failed.value.failure.code is code
        assert (await back.perform(CheckTail(stream))).seq_num == 3


async def test_server_sent_events_are_a_source(lite: BackServer) -> None:
    host, port = lite.address
    upstream = Upstream(UpstreamSettings(name="lite", host=host, port=port))
    async with opened(lite) as back, open_s2_sse(S2BackSettings(), upstream) as source:
        stream = await fresh(back, "events")
        await back.perform(appending(b"\x00\xff", b"", headers={1: (Header(b"k", b"\xfe"),)}, stream=stream))
        assert (await source.perform(CheckTail(stream))).seq_num == 2
        found = [record for batch in await batches(source, FromSeqNum(0), stream) for record in batch.records()]
        assert [(record.body, record.headers) for record in found] == [
            (b"\x00\xff", ()),
            (b"", (Header(b"k", b"\xfe"),)),
        ]
        async with source.read_session(Read(stream, FromTailOffset(0))) as session:
            assert isinstance(await session.next(), Following)
            await back.perform(appending(b"new", stream=stream))
            batch = await session.next()
            assert isinstance(batch, RecordBatch)
            assert batch.columns.bodies == [b"new"]
        with pytest.raises(OperationFailed) as failed:
            await source.perform(appending(b"x", stream=stream))
        assert failed.value.failure.code is FailureCode.NOT_IMPLEMENTED


@VERSIONS
@pytest.mark.parametrize(
    "kind", [partial(S2Lite, durable=True), partial(SecondPenstock, "s2")], ids=["lite", "penstock"]
)
async def test_killed_in_the_middle_of_a_load(version: HttpVersion, kind: Callable[[], BackServer]) -> None:
    """Every acknowledged record is there once and in order; the reader that follows sees each once, too."""
    total = 400
    with kind() as server:
        async with opened(server, http=version, recover_seconds=60.0) as back:
            stream = await fresh(back, "load")
            seen: list[bytes] = []
            room = trio.Semaphore(60)  # so that neither kill comes too late
            reached = {count: trio.Event() for count in (100, 250)}

            async def follow() -> None:
                async with back.read_session(Read(stream, FromSeqNum(0))) as session:
                    while len(seen) < total:
                        event = await session.next()
                        if isinstance(event, RecordBatch):
                            assert event.first_seq_num == len(seen)
                            seen.extend(event.columns.bodies)
                            for _ in range(event.count):
                                room.release()
                            for count, milestone in reached.items():
                                if len(seen) >= count:
                                    milestone.set()

            async def send(session: AppendSession) -> None:
                for index in range(total):
                    await room.acquire()
                    await session.send(appending(b"%d" % index, stream=stream))
                session.close()

            async def append() -> None:
                acks = []
                async with back.append_session(stream) as session, trio.open_nursery() as nursery:
                    nursery.start_soon(send, session)
                    while some := await session.receive():
                        acks += some
                assert [ack.start.seq_num for ack in acks] == list(range(total))

            async def kill() -> None:
                for milestone in reached.values():
                    await milestone.wait()
                    assert len(seen) < total
                    await trio.to_thread.run_sync(server.restart)

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(follow)
                    nursery.start_soon(append)
                    nursery.start_soon(kill)
            wanted = [b"%d" % index for index in range(total)]
            assert seen == wanted
            assert [record.body for record in await everything(back, stream)] == wanted
