"""Truncation at a byte, and trims as readers of bytes see them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
import trio
import trio.testing
from support.store import BASIN, STREAM, Fails, Wall, command
from support.store.byte_reads import events, forget_recent, nothing, read

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import ByteStreamInfo, GetByteStreamInfo, Seal, Truncate
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CreateBasin, CreateStream, FromByteOffset, FromSeqNum, Locate, Trim


class TestTruncate:
    async def test_between_and_within_events(self, back: EmbeddedBack, wall: Wall) -> None:
        created = wall.now
        await back.perform(events(b"one", b"two", b"three"))
        wall.now += 5
        assert await back.perform(GetByteStreamInfo(STREAM)) == ByteStreamInfo(0, 35, False, created)
        assert await back.perform(Truncate(STREAM, 11)) == 11
        assert await back.perform(GetByteStreamInfo(STREAM)) == ByteStreamInfo(11, 35, False, created + 5)
        assert await back.perform(Truncate(STREAM, 15)) == 15
        assert await back.perform(Truncate(STREAM, 3)) == 15
        first = await back.perform(Locate(STREAM, FromByteOffset(0)))
        assert (first.seq_num, first.offset) == (1, 11)  # it is cut, and whole for others
        with Fails(FailureCode.OFFSET_TRUNCATED) as caught:
            await read(back, 14)
        assert caught.failure.details == {"offset": 15}
        assert (await read(back, 15)).data == join_events([b"two", b"three"])[4:]

    async def test_it_survives(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await back.perform(events(b"one", b"two"))
            await back.perform(Truncate(STREAM, 5))
        async with open_embedded(settings, wall) as back:
            assert (await back.perform(GetByteStreamInfo(STREAM))).start_offset == 5
            assert (await back.perform(events(b"three"))).offset == 35

    async def test_all_of_it_also_sealed(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await back.perform(events(b"one"))
            await back.perform(Seal(STREAM))
            assert await back.perform(Truncate(STREAM, 11)) == 11
            await back._store.sweeper.purge()
        async with open_embedded(settings, wall) as back:
            assert await back.perform(GetByteStreamInfo(STREAM)) == ByteStreamInfo(11, 11, True, wall.now)
            assert await read(back, 11) == nothing(11, end=True)

    async def test_beyond_the_length_counts_what_is_on_its_way(self, back: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session:
            await session.send(events(b"one"))
            assert await back.perform(Truncate(STREAM, 11)) == 11
        with Fails(FailureCode.INVALID, "beyond the end, 11"):
            await back.perform(Truncate(STREAM, 12))

    async def test_trims_of_others_move_the_start(self, back: EmbeddedBack) -> None:
        await back.perform(events(b"one", b"two", b"three"))
        await back.perform(Trim(STREAM, FromSeqNum(1)))
        assert (await back.perform(GetByteStreamInfo(STREAM))).start_offset == 11
        assert await back.perform(Truncate(STREAM, 12)) == 12
        await back.perform(command(b"trim", (3).to_bytes(8, "big")))
        assert (await back.perform(GetByteStreamInfo(STREAM))).start_offset == 35
        await back.perform(Trim(STREAM, FromSeqNum(4)))
        assert (await back.perform(GetByteStreamInfo(STREAM))).start_offset == 35


async def test_purged_between_two_looks(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of one row is still in memory, the rows after it are gone, and newer ones are there."""
    some = [b"%d" % number * 100 for number in range(5)]
    for body in some:
        await back.perform(events(body))
    forget_recent(back)
    await read(back, 0, 10)
    run = back._store.reader.run

    async def after_purge(function: Callable[[sqlite3.Connection], object]) -> object:
        monkeypatch.undo()
        await back.perform(Truncate(STREAM, 3 * 108))
        await back._store.sweeper.purge()
        return await run(function)

    monkeypatch.setattr(back._store.reader, "run", after_purge)
    assert (await read(back, 10)).data == join_events(some)[10:108]


async def test_purged_while_it_is_being_read(back: EmbeddedBack) -> None:
    """In every interleaving the result is the original bytes, or that they are gone."""
    some = [b"%04d" % number * 200 for number in range(1000)]
    data = join_events(some)
    for start in range(0, 1000, 100):
        await back.perform(events(*some[start : start + 100]))
    forget_recent(back)
    done = trio.Event()

    async def page(max_bytes: int) -> None:
        offset = 0
        while offset < len(data):
            try:
                found = (await read(back, offset, max_bytes)).data
            except OperationFailed as error:
                assert error.failure.code is FailureCode.OFFSET_TRUNCATED, error
                offset = error.failure.details["offset"]  # type: ignore[assignment]
                continue
            assert found == data[offset : offset + len(found)]
            assert found
            offset += len(found)

    async def purge() -> None:
        while not done.is_set():
            await back._store.sweeper.purge()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(purge)
        async with trio.open_nursery() as readers:
            for max_bytes in (10_000, 33_333, 200_000):
                readers.start_soon(page, max_bytes)
            for offset in range(0, len(data), 20_011):
                await back.perform(Truncate(STREAM, offset))
        done.set()
