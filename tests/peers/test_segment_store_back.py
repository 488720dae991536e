"""A back on the real Pravega (`make peers`): its controller and its segment store, and connections that break."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from uuid import uuid4

import pytest
import trio
from support.real_backs import PravegaStandalone
from support.segment.back import append_of, opened

from penstock.core.marks import START, Mark
from penstock.core.native import Bounds
from penstock.model.byte_layout import MAX_BODY
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    AttributeUpdate,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    ReadBytes,
    Seal,
    Truncate,
    UpdateAttribute,
    UpdateType,
    WriterPosition,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CreateStream, DeleteStream, ListStreams
from penstock.model.records import StreamRef
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)
from penstock.net.upstream import UpstreamSettings
from penstock_pravega.codec import join_events
from penstock_pravega.segment.back import SegmentBack

pytestmark = pytest.mark.peer

SCOPE = "segment-back-tests"


@pytest.fixture(scope="module")
def pravega() -> Iterator[PravegaStandalone]:
    with PravegaStandalone() as server:
        yield server


@pytest.fixture(params=["controller", "store"])
def way(request: pytest.FixtureRequest, pravega: PravegaStandalone) -> dict[str, UpstreamSettings | None]:
    """Through the controller, and straight to the store."""
    assert pravega.controller is not None
    host, port = pravega.address if request.param == "store" else pravega.controller
    upstream = UpstreamSettings(name="pravega", host=host, port=port)
    return {"store": None, "controller": None, request.param: upstream}


@pytest.fixture
def stream() -> StreamRef:
    return StreamRef(SCOPE, f"s{uuid4().hex[:12]}")


def at(offset: int) -> Mark:
    return Mark(0, 0, 0, offset)


async def scan_all(back: SegmentBack, stream: StreamRef, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while True:
        scanned = await back.native.scan(stream, at(offset), max_records=1000, max_bytes=1 << 20, wait=0)
        if not scanned.bodies:
            return found
        found += scanned.bodies
        assert scanned.offsets is not None
        offset = scanned.offsets[-1]


async def content(back: SegmentBack, stream: StreamRef, offset: int = 0) -> bytes:
    """All bytes from there on. A store may give less than there is, and say that this was all."""
    found = bytearray()
    while data := (await back.direct.perform(ReadBytes(stream, offset + len(found), 1000))).data:
        found += data
    return bytes(found)


class Fails:
    """`with Fails(code) as caught:` the block fails so."""

    def __init__(self, code: FailureCode) -> None:
        self.code = code
        self.details: object = None

    def __enter__(self) -> Fails:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, OperationFailed), error
        assert error.failure.code is self.code, error.failure
        self.details = error.failure.details
        return True


async def test_records(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    async with opened(**way) as (back, _):
        native = back.native
        assert await native.create(stream)
        assert not await native.create(stream)
        batches = [[b"%d-%d" % (number, place) for place in range(number % 3 + 1)] for number in range(50)]
        async with native.append_session(stream) as session:
            for batch in batches:
                await session.send(append_of(*batch, stream=stream))
            session.close()
            acks = []
            while some := await session.receive():
                acks += some
        lengths = [len(join_events(batch)) for batch in batches]
        assert [(ack.count, ack.length, ack.end_offset) for ack in acks] == [
            (len(batch), length, end) for batch, length, end in zip(batches, lengths, accumulate(lengths), strict=True)
        ]
        end = sum(lengths)
        assert await scan_all(back, stream) == [body for batch in batches for body in batch]
        assert (await native.append_at(stream, append_of(b"here", stream=stream), at(end))).end_offset == end + 12
        with Fails(FailureCode.OFFSET_MISMATCH) as caught:
            await native.append_at(stream, append_of(b"here", stream=stream), at(end))
        assert caught.details == {"offset": end + 12}
        await native.trim(stream, at(lengths[0]))
        assert await native.bounds(stream) == Bounds(lengths[0], end + 12, False)
        with Fails(FailureCode.OFFSET_TRUNCATED) as caught:
            await native.scan(stream, START, max_records=10, max_bytes=1000, wait=0)
        assert caught.details == {"offset": lengths[0]}


async def test_followers_share_a_read(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    async with opened(**way) as (back, _):
        native = back.native
        await native.create(stream)
        nothing = await native.scan(stream, START, max_records=10, max_bytes=1000, wait=0.3)
        assert (nothing.bodies, nothing.at_tail, nothing.end) == ([], True, False)
        found: list[bytes] = []

        async def follow() -> None:
            found.extend((await native.scan(stream, START, max_records=10, max_bytes=1000, wait=30)).bodies)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(follow)
            await trio.sleep(0.2)
            async with native.append_session(stream) as session:
                await session.send(append_of(b"news", stream=stream))
                await session.receive()
        assert found == [b"news"] * 20


async def test_large_events(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    """The largest record, and an event that is larger: it comes in pieces of that size, header included."""
    async with opened(**way) as (back, _):
        native = back.native
        await native.create(stream)
        largest, larger = random.Random(1).randbytes(MAX_BODY), random.Random(2).randbytes(3 * MAX_BODY)
        async with native.append_session(stream) as session:
            await session.send(append_of(largest, stream=stream))
            await session.receive()
        writer = WriterPosition(uuid4().bytes, 1)
        await back.direct.perform(AppendBytes(stream, join_events([larger]), writer))
        scanned = await native.scan(stream, START, max_records=1, max_bytes=1, wait=0)
        assert scanned.bodies == [largest]
        scanned = await native.scan(stream, at(MAX_BODY + 8), max_records=1, max_bytes=1, wait=0)
        assert b"".join(scanned.bodies) == join_events([larger])
        assert [len(body) for body in scanned.bodies] == [MAX_BODY] * 3 + [8]
        assert scanned.inner == {1, 2, 3}


async def test_sealed(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    async with opened(**way) as (back, _):
        native, direct = back.native, back.direct
        await native.create(stream)
        async with native.append_session(stream) as session:
            await session.send(append_of(b"last", stream=stream))
            await session.receive()
            found = []

            async def follow() -> None:
                found.append(await native.scan(stream, at(12), max_records=10, max_bytes=1000, wait=30))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await trio.sleep(0.2)
                assert await direct.perform(Seal(stream)) == 12
            assert (found[0].bodies, found[0].end) == ([], True)
            assert await direct.perform(Seal(stream)) == 12
            await session.send(append_of(b"too late", stream=stream))
            with Fails(FailureCode.STREAM_SEALED):
                await session.receive()
        scanned = await native.scan(stream, START, max_records=10, max_bytes=1000, wait=5)
        assert (scanned.bodies, scanned.end) == ([b"last"], True)
        assert await native.bounds(stream) == Bounds(0, 12, True)


async def test_a_clients_writer(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    async with opened(**way) as (back, _):
        direct = back.direct
        await direct.perform(CreateStream(stream))
        writer = uuid4().bytes
        assert await direct.perform(GetAttribute(stream, writer)) == NO_ATTRIBUTE
        async with direct.append_session(stream) as session:
            for number in range(20):
                after = NO_ATTRIBUTE if number == 0 else 10 * number - 10
                await session.send(AppendBytes(stream, b"%02d" % number, WriterPosition(writer, 10 * number, after)))
            session.close()
            offsets = []
            while some := await session.receive():
                offsets += [one.offset for one in some]
        # A store may acknowledge several appends at once, with the end of the last one: others may lie between them.
        assert offsets[-1] == 40
        assert all(offset in (None, end) for offset, end in zip(offsets, range(2, 42, 2), strict=True))
        assert await direct.perform(GetAttribute(stream, writer)) == 190
        with Fails(FailureCode.STALE_WRITER_POSITION) as caught:
            await direct.perform(AppendBytes(stream, b"again", WriterPosition(writer, 190)))
        assert caught.details == {"position": 190}
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await direct.perform(AppendBytes(stream, b"gap", WriterPosition(writer, 300, after=180)))
        with Fails(FailureCode.OFFSET_MISMATCH) as caught:
            await direct.perform(AppendBytes(stream, b"no", WriterPosition(writer, 200), match_offset=7))
        assert caught.details == {"offset": 40}
        done = await direct.perform(AppendBytes(stream, b"yes", WriterPosition(writer, 200), match_offset=40))
        assert done.offset == 43
        assert await content(back, stream, 38) == b"19yes"
        assert (await direct.perform(ReadBytes(stream, 38, 1))).data == b"1"
        assert await direct.perform(Truncate(stream, 10)) == 10
        assert await direct.perform(Truncate(stream, 5)) == 10
        with Fails(FailureCode.INVALID):
            await direct.perform(Truncate(stream, 1000))
        with Fails(FailureCode.OFFSET_TRUNCATED):
            await direct.perform(ReadBytes(stream, 0, 100))
        await direct.perform(DeleteStream(stream))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await direct.perform(GetByteStreamInfo(stream))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await direct.perform(AppendBytes(stream, b"gone", WriterPosition(writer, 300)))


async def test_attributes_and_merges(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    sources = [StreamRef("_pravega", f"{SCOPE}/{stream.stream}/0.#epoch.0#transient.{uuid4().hex}") for _ in range(3)]
    async with opened(**way) as (back, _):
        perform = back.direct.perform
        await perform(CreateStream(stream))
        attribute = uuid4().bytes
        assert await perform(UpdateAttribute(stream, attribute, 5, NO_ATTRIBUTE))
        assert not await perform(UpdateAttribute(stream, attribute, 6, NO_ATTRIBUTE))
        assert await perform(GetAttribute(stream, attribute)) == 5
        for number, source in enumerate(sources):
            await perform(CreateStream(source))
            await perform(AppendBytes(source, b"%d" % number * (number + 1), WriterPosition(uuid4().bytes, 1)))
        wrong = AttributeUpdate(attribute, UpdateType.REPLACE_IF_EQUALS, 7, 6)
        with Fails(FailureCode.TRANSACTION_CONFLICT):
            await perform(Merge(stream, sources[:1], (wrong,)))  # type: ignore[arg-type]
        right = AttributeUpdate(attribute, UpdateType.REPLACE_IF_EQUALS, 7, 5)
        assert (await perform(Merge(stream, (sources[0],), (right,)))).offsets == (1,)
        assert (await perform(Merge(stream, tuple(sources[1:])))).offsets == (3, 6)
        assert await content(back, stream) == b"011222"
        assert await perform(GetAttribute(stream, attribute)) == 7


async def test_tables(way: dict[str, UpstreamSettings | None], stream: StreamRef) -> None:
    table = f"{SCOPE}/{stream.stream}_kvtable/0.#epoch.0"
    async with opened(**way) as (back, _):
        perform = back.direct.perform
        await perform(CreateTable(table))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await perform(CreateTable(table))
        items = tuple(TableItem(b"key %d" % number, b"value", NOT_EXISTS) for number in range(20))
        versions = await perform(UpdateTable(table, items))
        assert list(versions) == sorted(set(versions))
        with Fails(FailureCode.TABLE_KEY_VERSION):
            await perform(UpdateTable(table, items[:1]))
        with Fails(FailureCode.TABLE_KEY_NOT_FOUND):
            await perform(UpdateTable(table, (TableItem(b"none", b"", 7),)))
        fixed = f"{SCOPE}/{stream.stream}_kvtable/1.#epoch.0"
        await perform(CreateTable(fixed, key_length=4))
        with Fails(FailureCode.TABLE_KEY_VERSION):
            await perform(UpdateTable(fixed, (TableItem(b"none", b"", 7),)))
        with Fails(FailureCode.OFFSET_MISMATCH):
            await perform(UpdateTable(table, (TableItem(b"key 0", b"", ANY_VERSION),), match_length=3))
        found = await perform(ReadTable(table, (b"key 3", b"none")))
        assert found == (TableItem(b"key 3", b"value", versions[3]), None)
        info = await perform(GetTableInfo(table))
        assert info.entries >= 20  # Pravega counts entries twice that it has not indexed yet
        assert (info.start, info.key_length) == (0, 0)
        page = await perform(ListTable(table, after=b"key 0", prefix=b"key 1", count=5))
        assert [item.key for item in page.items] == [b"key 1", b"key 10", b"key 11", b"key 12", b"key 13"]
        assert page.has_more
        position, seen = 0, []
        while True:
            delta = await perform(ReadTableDelta(table, position, 7))
            seen += [item.key for item in delta.items]
            position = delta.next_position
            if delta.reached_end:
                break
        assert sorted(seen) == sorted(item.key for item in items)
        with Fails(FailureCode.TABLE_NOT_EMPTY):
            await perform(DeleteTable(table, must_be_empty=True))
        await perform(RemoveTableKeys(table, (VersionedKey(b"key 3"), VersionedKey(b"none"))))
        assert await perform(ReadTable(table, (b"key 3",))) == (None,)
        await perform(DeleteTable(table))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await perform(GetTableInfo(table))


async def test_streams_by_the_controller(pravega: PravegaStandalone) -> None:
    """Streams are listed; one that is created again begins anew, under the number that Pravega gives it."""
    assert pravega.controller is not None
    host, port = pravega.controller
    scope = f"segment-back-{uuid4().hex[:8]}"
    async with opened(store=None, controller=UpstreamSettings(name="pravega", host=host, port=port)) as (back, _):
        native = back.native
        streams = [StreamRef(scope, f"stream-{number}") for number in range(5)]
        for stream in streams:
            assert await native.create(stream)
        page = await native.list_streams(ListStreams(scope, prefix="stream-", start_after="stream-0", limit=3))
        assert [item.name for item in page.items] == ["stream-1", "stream-2", "stream-3"]
        assert page.has_more
        for number in range(3):
            async with native.append_session(streams[0]) as session:
                await session.send(append_of(b"%d" % number, stream=streams[0]))
                await session.receive()
            assert await scan_all(back, streams[0]) == [b"%d" % number]
            await native.delete(streams[0])
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await native.bounds(streams[0])
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await native.delete(streams[0])
            assert await native.create(streams[0])
        await native.create(StreamRef("penstock", "Tiny/stream"))
        await native.create(StreamRef("penstock", "Tiny/other"))
        page = await native.list_streams(ListStreams("penstock", prefix="Tiny/"))
        assert [item.name for item in page.items] == ["Tiny/other", "Tiny/stream"]


@pytest.mark.parametrize("seed", range(3))
async def test_connections_break(way: dict[str, UpstreamSettings | None], stream: StreamRef, seed: int) -> None:
    """Anywhere, in both directions, while two sessions and conditional appends are under way: all is there once."""
    dice = random.Random(seed)
    async with opened(**way, recover_seconds=30) as (back, wires):
        native = back.native
        await native.create(stream)
        wires.cuts = [(dice.choice(["out", "in"]), dice.randrange(2000)) for _ in range(15)]
        sent: dict[int, list[bytes]] = {0: [], 1: []}

        async def append(who: int) -> None:
            async with native.append_session(stream) as session:
                for number in range(100):
                    body = b"%d %d %s" % (who, number, b"x" * dice.randrange(200))
                    sent[who].append(body)
                    await session.send(append_of(body, stream=stream))
                    await trio.sleep(dice.random() * 0.005)
                session.close()
                acked = 0
                while some := await session.receive():
                    acked += len(some)
                assert acked == 100

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, 0)
            nursery.start_soon(append, 1)
        wires.cuts.clear()
        found = await scan_all(back, stream)
        for who in (0, 1):
            assert [body for body in found if body.startswith(b"%d " % who)] == sent[who]
        assert len(found) == 200
