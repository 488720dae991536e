"""Records and bytes of one server through one back: the split of operations, and their effect on records' numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from support.native import FakeNative, MemoryTables
from support.store import STREAM, Fails, Wall, acknowledged, appending, records, sending

from penstock.backends.combined import Combined
from penstock.backends.sequence_numbering import open_indexed
from penstock.core.back import AppendSession
from penstock.model.byte_operations import AppendBytes, ByteStreamInfo, GetByteStreamInfo, Merge, Merged, Truncate
from penstock.model.failures import FailureCode
from penstock.model.operations import Appended, Capability, CheckTail, FromSeqNum
from penstock.model.records import StreamPosition
from penstock.model.table_operations import CreateTable

NOWHERE = StreamPosition(0, 0)


class Direct:
    """The same server, asked for bytes."""

    capabilities = frozenset({Capability.BYTES, Capability.TABLES})

    def __init__(self, native: FakeNative) -> None:
        self.native = native
        self.performed: list[Any] = []

    async def perform(self, operation: Any) -> Any:
        self.performed.append(operation)
        match operation:
            case AppendBytes():
                return self.append(operation)
            case Truncate():
                self.native.cut(sum(end <= operation.offset for end in self.native.begins[1:]))
                return operation.offset
            case GetByteStreamInfo():
                return ByteStreamInfo(0, self.native.begins[-1], False, 0)
            case Merge():
                return Merged((0,))
        return None

    def append(self, operation: AppendBytes) -> Appended:
        ack = self.native.store(events_of(operation.data))
        return Appended(NOWHERE, NOWHERE, NOWHERE, offset=ack.end_offset)

    @asynccontextmanager
    async def append_session(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        yield ByteSession(self)


def events_of(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = int.from_bytes(data[4:8], "big")
        found.append(data[8 : 8 + size])
        data = data[8 + size :]
    return found


class ByteSession(AppendSession):
    def __init__(self, direct: Direct) -> None:
        self._direct = direct
        self._acks: list[Appended] = []

    async def send(self, append: Any) -> None:
        assert isinstance(append, AppendBytes)
        self._acks.append(self._direct.append(append))
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        pass

    async def receive(self) -> list[Appended]:
        await trio.lowlevel.checkpoint()
        acks, self._acks = self._acks, []
        return acks


@pytest.fixture
def native() -> FakeNative:
    return FakeNative(Wall(), offsets=True, most=1000)


@pytest.fixture
async def combined(native: FakeNative) -> AsyncIterator[tuple[Combined, Direct]]:
    direct = Direct(native)
    async with open_indexed(native, "fake", MemoryTables()) as back:
        yield Combined(back, direct), direct


Pair = tuple[Combined, Direct]


async def test_bytes_that_were_appended_are_records_between_others(combined: Pair) -> None:
    back, _ = combined
    assert {Capability.BYTES, Capability.TABLES, Capability.RECORD_IDS} <= back.capabilities
    await back.perform(appending(b"a"))
    assert (await back.perform(sending(b"event", b"other"))).offset == 9 + 13 + 13
    assert (await back.perform(appending(b"b"))).start.seq_num == 3
    assert [record.body for record in await records(back, FromSeqNum(0))] == [b"a", b"event", b"other", b"b"]


async def test_the_first_append_says_what_a_session_is(combined: Pair) -> None:
    back, _ = combined
    async with back.append_session(STREAM) as session:
        await session.send(sending(b"event"))
        assert (await acknowledged(session, 1))[0].offset == 13
    async with back.append_session(STREAM) as session:
        await session.send(appending(b"record"))
        session.close()
        assert (await acknowledged(session, 1))[0].start.seq_num == 1
        assert await session.receive() == []
    async with back.append_session(STREAM) as session:
        session.close()
        assert await session.receive() == []


async def test_a_session_of_a_stream_that_is_not_there_is_refused(combined: Pair, native: FakeNative) -> None:
    native.exists = False
    with Fails(FailureCode.STREAM_NOT_FOUND):
        async with combined[0].append_session(STREAM):
            pass


async def test_truncated_in_bytes_the_numbers_stay(combined: Pair, native: FakeNative) -> None:
    """Also if the cut is inside an event, whose end could not be found later."""
    back, _ = combined
    await back.perform(appending(b"a", b"b", b"c"))
    await back.perform(Truncate(STREAM, 12))
    assert native.first == 1
    assert [(record.seq_num, record.body) for record in await records(back, FromSeqNum(0))] == [(2, b"c")]


async def test_sources_of_a_merge_are_forgotten(combined: Pair, native: FakeNative) -> None:
    back, _ = combined
    await back.perform(appending(b"a", b"b"))
    await back.perform(Merge(STREAM._replace(stream="target"), (STREAM,)))
    native.bodies, native.ids, native.begins = [], [], [0]
    assert (await back.perform(CheckTail(STREAM))).seq_num == 0


async def test_tables_are_the_servers(combined: Pair) -> None:
    back, direct = combined
    await back.perform(CreateTable("t"))
    assert direct.performed == [CreateTable("t")]
