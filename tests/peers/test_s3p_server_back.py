"""S3P servers as backs, over TCP: the reference server, where `make peers` could install it, and another Penstock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from support.native import MemoryTables
from support.real_backs import BackServer, S3PReference, SecondPenstock
from support.s3p.client import S3PClient
from support.store import Fails, acknowledged, appending, bodies, records

from penstock.backends.sequence_numbering import IndexedBack, open_indexed
from penstock.core.delivery import Delivery
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteStream,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    Read,
    Trim,
)
from penstock.model.records import StreamRef
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_s3p.back import S3PBackSettings, open_s3p

pytestmark = pytest.mark.peer
STREAM = StreamRef("penstock", "bridged")


@pytest.fixture(params=[S3PReference, lambda: SecondPenstock("s3p")], ids=["reference", "penstock"])
def server(request: pytest.FixtureRequest) -> Iterator[BackServer]:
    with request.param() as started:
        yield started


@asynccontextmanager
async def opened(server: BackServer, tables: MemoryTables | None = None) -> AsyncIterator[IndexedBack]:
    host, port = server.address
    upstream = Upstream(UpstreamSettings(name="s3p", host=host, port=port))
    settings = S3PBackSettings(delivery=Delivery.AT_LEAST_ONCE, trim_keeps_last=True, recover_seconds=20)
    async with (
        open_s3p(upstream, settings) as native,
        open_indexed(native, "s3p", tables or MemoryTables()) as back,  # type: ignore[arg-type]
    ):
        yield back


async def test_records_are_numbered(server: BackServer) -> None:
    async with opened(server) as back:
        await back.perform(CreateStream(STREAM))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"a", b"b", stream=STREAM))
        with S3PClient(server.address) as client:
            client.append("bridged", b"other", b"\r\n$5\r\n\0\xff")
        last = await back.perform(appending(b"c", stream=STREAM))
        assert last.start.seq_num == 4 and last.last_id is not None
        found = await records(back, FromSeqNum(0), stream=STREAM)
        assert [(record.seq_num, record.body) for record in found] == list(
            enumerate([b"a", b"b", b"other", b"\r\n$5\r\n\0\xff", b"c"])
        )
        with S3PClient(server.address) as client:
            native = client.read_all("bridged")
        assert [b"%d" % record.timestamp for record in found] == [record_id.split(b"-")[0] for record_id, _ in native]
        assert await bodies(back, FromRecordId(last.last_id), stream=STREAM) == [b"c"]
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(CheckTail(StreamRef("penstock", "missing")))


async def test_trimming_and_following(server: BackServer) -> None:
    tables = MemoryTables()
    async with opened(server, tables) as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(*(b"%d" % number for number in range(10)), stream=STREAM))
        assert (await back.perform(Trim(STREAM, FromSeqNum(7)))).seq_num == 7
        assert await bodies(back, FromSeqNum(0), stream=STREAM) == [b"7", b"8", b"9"]
        assert (await back.perform(Trim(STREAM, FromSeqNum(99)))).seq_num == 10
    async with opened(server, tables) as back, back.read_session(Read(STREAM, FromTailOffset(0))) as session:
        assert (await back.perform(CheckTail(STREAM))).seq_num == 10
        await session.next()
        with trio.fail_after(20), S3PClient(server.address) as client:
            client.append("bridged", b"later")
            batch = await session.next()
        assert (batch.first_seq_num, batch.columns.bodies) == (10, [b"later"])  # type: ignore[union-attr]
    async with opened(server, tables) as back:
        await back.perform(DeleteStream(STREAM))
        await back.perform(CreateStream(STREAM))
        assert (await back.perform(appending(b"new", stream=STREAM))).start.seq_num == 0


async def test_a_session_of_large_and_small_batches(server: BackServer) -> None:
    async with opened(server) as back:
        await back.perform(CreateStream(STREAM))
        batches = [[bytes([65 + size % 26]) * size] * count for size, count in ((1, 1000), (900_000, 1), (1000, 900))]
        async with back.append_session(STREAM) as session:
            for batch in batches * 3:
                await session.send(appending(*batch, stream=STREAM))
            acks = await acknowledged(session, 9)
        assert acks[-1].end.seq_num == 3 * 1901
        assert await bodies(back, FromSeqNum(0), stream=STREAM) == [body for batch in batches * 3 for body in batch]


async def test_killed_under_load_and_started_again(server: BackServer) -> None:
    if not server.keeps:
        pytest.skip(f"{server.name} keeps nothing")
    async with opened(server) as back:
        await back.perform(CreateStream(STREAM))
        acks, restarted = [], False
        async with back.append_session(STREAM) as session, trio.open_nursery() as nursery:

            async def load() -> None:
                for number in range(300):
                    await session.send(appending(b"%d" % number, stream=STREAM))
                    await trio.sleep(0.002)
                session.close()

            nursery.start_soon(load)
            while found := await session.receive():
                acks += found
                if len(acks) > 100 and not restarted:
                    restarted = True
                    await trio.to_thread.run_sync(server.restart)
        stored = await bodies(back, FromSeqNum(0), stream=STREAM)
        assert len(acks) == 300
        assert [stored[ack.start.seq_num] for ack in acks] == [b"%d" % number for number in range(300)]
