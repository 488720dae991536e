"""Offsets of a native server: those of bytes are clients' positions too, others are the server's alone."""

from __future__ import annotations

import pytest
from support.native import FakeNative, MemoryTables
from support.store import STREAM, Fails, Wall, appending

from penstock.backends.sequence_numbering import open_indexed
from penstock.model.failures import FailureCode
from penstock.model.operations import FromByteOffset, FromSeqNum, Locate, Read


class _CountsOtherwise(FakeNative):
    has_byte_offsets = False


@pytest.mark.parametrize("kind", [FakeNative, _CountsOtherwise])
async def test_located(kind: type[FakeNative], autojump_clock: object) -> None:
    wall = Wall()
    async with open_indexed(kind(wall, True), "fake", MemoryTables(), clock=wall) as back:
        for _ in range(2):
            await back.perform(appending(b"ab"))
        located = await back.perform(Locate(STREAM, FromSeqNum(1)))
        assert (located.seq_num, located.offset) == (1, 10 if kind is FakeNative else None)
        if kind is FakeNative:
            assert (await back.perform(Locate(STREAM, FromByteOffset(10)))).seq_num == 1
            return
        with Fails(FailureCode.NOT_IMPLEMENTED):
            await back.perform(Locate(STREAM, FromByteOffset(10)))
        with Fails(FailureCode.NOT_IMPLEMENTED):
            async with back.read_session(Read(STREAM, FromByteOffset(10))):
                pass
