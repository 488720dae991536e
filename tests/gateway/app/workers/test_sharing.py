"""Two workers on one store: each sees the other's changes; missing knowledge in a worker never gives wrong results."""

from collections.abc import AsyncIterator

import pytest
import trio
import trio.lowlevel
from support.store import BASIN, STREAM, Fails, Wall, acknowledged, appending, bodies
from support.workers import worker_of

from penstock.app.workers import reads
from penstock.app.workers.back import RemoteBack
from penstock.app.workers.reads import IDLE_STATES
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Following
from penstock_codecs.byte_events import join_events
from penstock_codecs.byte_operations import ReadBytes
from penstock_codecs.failures import FailureCode
from penstock_codecs.model import RecordBatch, StreamRef
from penstock_codecs.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    Read,
    ReconfigureStream,
    Trim,
)
from penstock_codecs.streams import StreamConfigPatch, TimestampingMode

Backs = tuple[EmbeddedBack, RemoteBack, RemoteBack]


@pytest.fixture
async def backs(tmp_path: object) -> AsyncIterator[Backs]:
    """The store, and the ways of two workers to it."""
    settings, wall = EmbeddedSettings(directory=tmp_path / "data"), Wall()  # type: ignore[operator]
    async with (
        open_embedded(settings, wall) as parent,
        worker_of(parent, settings, wall) as one,
        worker_of(parent, settings, wall) as two,
    ):
        await parent.perform(CreateBasin(BASIN))
        await parent.perform(CreateStream(STREAM))
        yield parent, one, two


async def next_batch(session: object) -> RecordBatch:
    while isinstance(batch := await session.next(), Following):  # type: ignore[attr-defined]
        pass
    assert isinstance(batch, RecordBatch)
    return batch


async def test_writers_that_foresee_the_same_numbers_both_get_their_own(backs: Backs) -> None:
    parent, one, two = backs
    async with one.append_session(STREAM) as first, two.append_session(STREAM) as second:
        for turn in range(50):
            for name, session in ((b"one", first), (b"two", second)):
                await session.send(appending(name, b"%d" % turn))
            if turn % 10 == 9:
                await acknowledged(first, 10)
                await acknowledged(second, 10)
    found = await bodies(parent, FromSeqNum(0))
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert sorted(pairs) == sorted((name, b"%d" % turn) for turn in range(50) for name in (b"one", b"two"))
    for name in (b"one", b"two"):
        assert [turn for who, turn in pairs if who == name] == [b"%d" % turn for turn in range(50)]


async def test_a_writer_alone_foresees_all_but_what_only_the_store_can(backs: Backs) -> None:
    parent, one, _ = backs
    handed: list[object] = []
    requested = parent.store.appends.requested
    parent.store.appends.requested = lambda append, *rest: (  # type: ignore[method-assign]
        handed.append(type(append).__name__),
        requested(append, *rest),
    )[1]
    async with one.append_session(STREAM) as session:
        for append in (appending(b"a"), appending(b"b", timestamps=[5]), appending(b"c"), appending(b"d")):
            await session.send(append)
            await acknowledged(session, 1)
    assert handed == ["PreparedAppend", "Append", "PreparedAppend", "PreparedAppend"]


async def test_a_reader_in_one_worker_follows_a_writer_in_the_other(backs: Backs) -> None:
    _, one, two = backs
    async with two.read_session(Read(STREAM, FromSeqNum(0))) as reader, one.append_session(STREAM) as writer:
        assert isinstance(await reader.next(), Following)
        for number in range(20):
            await writer.send(appending(b"%d" % number))
            assert next(iter((await next_batch(reader)).records())).body == b"%d" % number
            await acknowledged(writer, 1)
            assert reader.tail().seq_num == number + 1


async def test_acknowledged_records_are_seen_by_the_next_read(backs: Backs) -> None:
    _, one, two = backs
    for number in range(20):
        await one.perform(appending(b"%d" % number))
        assert (await two.perform(CheckTail(STREAM))).seq_num == number + 1
        assert len(await bodies(two, FromSeqNum(0))) == number + 1
        assert len((await two.perform(ReadBytes(STREAM, 0, 10_000))).data) == sum(
            map(len, map(str, range(number + 1)))
        ) + 8 * (number + 1)


async def test_bytes_are_waited_for_across_workers(backs: Backs) -> None:
    _, one, two = backs

    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert (await two.perform(ReadBytes(STREAM, 0, 100, wait=20))).data == join_events([b"x"])
            nursery.cancel_scope.cancel()

        nursery.start_soon(read)
        await trio.sleep(0.05)
        await one.perform(appending(b"x"))
        await trio.sleep_forever()


async def test_a_new_stream_of_the_same_name_is_another(backs: Backs) -> None:
    _, one, two = backs
    await one.perform(appending(b"old"))
    async with two.read_session(Read(STREAM, FromSeqNum(0))) as reader, two.append_session(STREAM) as writer:
        await next_batch(reader)
        await one.perform(DeleteStream(STREAM))
        await one.perform(CreateStream(STREAM))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await next_batch(reader)
        await writer.send(appending(b"lost"))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await writer.receive()
    assert two.reads._streams == {}
    assert await bodies(two, FromSeqNum(0)) == []
    await two.perform(appending(b"new"))
    assert await bodies(one, FromSeqNum(0)) == [b"new"]


async def test_records_that_are_trimmed_and_purged_are_no_fault(backs: Backs) -> None:
    parent, one, two = backs
    for number in range(5):
        await one.perform(appending(b"%d" % number))
    async with two.read_session(Read(STREAM, FromSeqNum(0))) as reader:
        await parent.perform(Trim(STREAM, FromSeqNum(3)))
        await parent.store.sweeper.purge()
        assert (await next_batch(reader)).first_seq_num == 3


async def test_another_timestamping_holds_in_open_sessions(backs: Backs) -> None:
    _, one, two = backs
    patch = StreamConfigPatch(timestamping_mode=TimestampingMode.CLIENT_REQUIRE)
    async with one.append_session(STREAM) as session:
        await session.send(appending(b"x"))
        await acknowledged(session, 1)
        await two.perform(ReconfigureStream(STREAM, patch))
        await session.send(appending(b"y"))
        with Fails(FailureCode.INVALID, "timestamp was required"):
            await session.receive()


async def test_a_read_that_is_given_up_leaves_nothing_behind(backs: Backs) -> None:
    parent, one, _ = backs
    for _ in range(20):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def read() -> None:
                    async with one.read_session(Read(STREAM, FromSeqNum(0))) as session:
                        await session.next()

                nursery.start_soon(read)
                await trio.lowlevel.checkpoint()
                scope.cancel()
    await forgotten(parent, one)


async def forgotten(parent: EmbeddedBack, worker: RemoteBack) -> None:
    """Check that the worker forgets a stream without readers after it has changed some times."""
    stream = parent.store.registry.stream(STREAM)
    assert stream is not None
    for number in range(IDLE_STATES + 1):
        await parent.perform(appending(b"%d" % number))
        await worker.perform(CheckTail(STREAM))
    await worker.perform(CheckTail(STREAM))
    assert stream.users == 0
    assert (worker.reads._streams, worker.reads._idle) == ({}, {})


async def test_who_reads_again_finds_what_is_known_and_more(backs: Backs, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, one, two = backs
    for number in range(IDLE_STATES - 1):
        await two.perform(appending(b"%d" % number))
        assert len(await bodies(one, FromSeqNum(0))) == number + 1
        assert len(one.reads._streams) == 1
    monkeypatch.setattr(reads, "IDLE_STREAMS", 0)
    assert len(await bodies(one, FromSeqNum(0))) == IDLE_STATES - 1
    assert one.reads._streams == {}
    await forgotten(parent, one)


async def test_a_stream_that_is_being_looked_for_is_not_forgotten(
    backs: Backs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream that was idle for longest gets a reader just when another becomes idle."""
    parent, one, _ = backs
    monkeypatch.setattr(reads, "IDLE_STREAMS", 1)
    other = StreamRef(BASIN, "other")
    await parent.perform(CreateStream(other))
    await parent.perform(appending(b"x"))
    assert await bodies(one, FromSeqNum(0)) == [b"x"]
    async with one.read_session(Read(other, FromSeqNum(0))), trio.open_nursery() as nursery:

        async def read() -> None:
            assert await bodies(one, FromSeqNum(0)) == [b"x"]

        nursery.start_soon(read)
        while not one.reads._finding:
            await trio.lowlevel.checkpoint()
        found = one.reads._streams[next(number for number in one.reads._streams if number not in one.reads._idle)]
        found.users -= 1
        one.reads._leave(found)
        found.users += 1
    assert len(one.reads._streams) == 1


async def test_a_parent_that_has_gone_is_unavailable(backs: Backs) -> None:
    _, one, _ = backs
    async with one.append_session(STREAM) as session:
        one.lose()
        await session.send(appending(b"x"))
        with Fails(FailureCode.UNAVAILABLE):
            await session.receive()
    for operation in (CheckTail(STREAM), appending(b"y")):
        with Fails(FailureCode.UNAVAILABLE):
            await one.perform(operation)
    with Fails(FailureCode.UNAVAILABLE):
        async with one.read_session(Read(StreamRef(BASIN, "any"), FromSeqNum(0))):
            raise AssertionError("it is not entered")
