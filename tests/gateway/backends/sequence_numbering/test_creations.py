"""Creation times of streams whose server does not provide them."""

from __future__ import annotations

import pytest
from support.native import FakeNative, MemoryTables
from support.store import NOW, STREAM, Fails, Wall, appending, records
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.logged_tables import open_logged_tables
from penstock.backends.sequence_numbering import open_indexed
from penstock.backends.sequence_numbering.creations import Creations
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateStream, DeleteStream, EnsureStream, FromSeqNum, ListStreams, Page
from penstock.model.records import StreamRef
from penstock.model.streams import StreamInfo


class Listed(FakeNative):
    """A server that lists its streams without their times."""

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        return Page([StreamInfo(name=name, created_at=0) for name in ("one", STREAM.stream)], has_more=False)


async def test_the_gateway_keeps_when_it_first_saw_a_stream(autojump_clock: MockClock) -> None:
    state, wall = MemoryTables(), Wall()
    listing = ListStreams(STREAM.basin)
    async with open_indexed(Listed(wall, True), "back", state, clock=wall) as back:  # type: ignore[arg-type]
        assert [info.created_at for info in (await back.perform(listing)).items] == [NOW, NOW]
        wall.now += 5000
        assert [info.created_at for info in (await back.perform(listing)).items] == [NOW, NOW]
        assert (await back.perform(EnsureStream(STREAM))).info.created_at == NOW
        before = await back.incarnation(STREAM)
        await back.perform(DeleteStream(STREAM))
        wall.now += 1000
        created = await back.perform(CreateStream(STREAM))
        assert created.info.created_at == NOW + 6000
        assert await back.incarnation(STREAM) != before
    wall.now += 1000
    async with open_indexed(Listed(wall, True), "back", state, clock=wall) as back:  # type: ignore[arg-type]
        assert [info.created_at for info in (await back.perform(listing)).items] == [NOW, NOW + 6000]


async def test_gateways_with_the_same_state_agree() -> None:
    """The first to see a stream decides, and none goes on with the time of a stream that another has replaced."""
    state = MemoryTables()
    one, other = Creations(state, "back"), Creations(state, "back")
    streams = [StreamRef("basin", f"stream {number}") for number in range(10)]
    assert set(await one.of(streams[:5], 1)) == {1}
    assert await other.of(streams, 2) == [1] * 5 + [2] * 5
    await other.forget(streams[0], await other.kept(streams[0]))
    await other.set(streams[0], 3)
    assert await one.of(streams, 4) == [3] + [1] * 4 + [2] * 5


async def test_the_time_of_a_stream_that_was_created_again_stays() -> None:
    shared = SharedLog()
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as first,
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as second,
    ):
        one, other = Creations(first, "back"), Creations(second, "back")
        await one.set(STREAM, 1)
        kept = await one.kept(STREAM)
        await other.set(STREAM, 2)
        await one.forget(STREAM, kept)
        assert await one.of([STREAM], 3) == [2]
        await one.forget(STREAM, await one.kept(STREAM))
        assert await other.of([STREAM], 3) == [3]


@pytest.mark.parametrize("known", [True, False])
async def test_what_is_gone_is_forgotten(known: bool) -> None:
    creations = Creations(MemoryTables(), "back")
    if known:
        assert await creations.of([STREAM], 1) == [1]
    await creations.forget(STREAM, await creations.kept(STREAM))
    assert await creations.of([STREAM], 2) == [2]


async def test_a_deletion_whose_index_stays_fails_and_can_be_tried_again(segment: FakeNative, wall: Wall) -> None:
    """Before, it was acknowledged, and the next stream of the name went on with the old numbers after a restart."""
    state = MemoryTables()
    async with open_indexed(segment, "back", state, clock=wall) as back:
        await back.perform(appending(b"old"))
        state.broken = True
        with Fails(FailureCode.STORAGE):
            await back.perform(DeleteStream(STREAM))
        state.broken = False
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(DeleteStream(STREAM))
    assert not any(state.tables.values())
    segment.exists = True
    segment.store([b"by another client"] * 9)
    async with open_indexed(segment, "back", state, clock=wall) as back:
        assert [record.seq_num for record in await records(back, FromSeqNum(0))] == list(range(9))


async def test_a_deletion_whose_index_stays_in_shared_state_fails(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    away = False
    shared = SharedLog(lambda: False if away else None)
    async with (
        open_logged_tables(SharedLogEnd(shared), 1 << 20) as state,
        open_indexed(segment, "back", state, clock=wall) as back,
    ):
        await back.perform(appending(b"old"))
        await Creations(state, "back").forget(STREAM, await Creations(state, "back").kept(STREAM))
        away = True
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(DeleteStream(STREAM))
        away = False
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(DeleteStream(STREAM))
        await back.perform(CreateStream(STREAM))
        assert (await back.perform(appending(b"new"))).start.seq_num == 0
