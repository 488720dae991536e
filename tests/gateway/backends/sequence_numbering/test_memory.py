"""Many streams that are followed cost no more than they may."""

from __future__ import annotations

from contextlib import AsyncExitStack

from support.native import FakeNative, MemoryTables
from support.store import STREAM, Wall

from penstock.backends.sequence_numbering import IndexedSettings, open_indexed
from penstock.core.back import Following
from penstock.model.limits import MIB
from penstock.model.operations import FromSeqNum, Read
from penstock.model.records import RecordBatch


async def test_many_streams_that_are_followed_keep_a_bounded_number_of_records() -> None:
    """And everybody is given everything."""
    native = FakeNative(Wall(), offsets=True, most=1000)  # it has the same records in all streams
    settings = IndexedSettings(recent_total_bytes=4 * MIB)
    async with open_indexed(native, "x", MemoryTables(), settings, Wall()) as back, AsyncExitStack() as stack:
        streams = [STREAM._replace(stream=f"stream-{number}") for number in range(20)]
        sessions = [
            await stack.enter_async_context(back.read_session(Read(one, FromSeqNum(0), clamp=True))) for one in streams
        ]
        for session in sessions:
            assert isinstance(await session.next(), Following)
        for turn in range(3):
            native.store([bytes([turn]) * 900_000])
            for session in sessions:
                while isinstance(batch := await session.next(), Following):
                    pass
                assert isinstance(batch, RecordBatch) and batch.first_seq_num == turn
            kept = [found.state.recent for found in back._streams.values()]
            assert sum(recent._size for recent in kept) <= 4 * MIB
