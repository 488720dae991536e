"""S3P servers that say what cannot be true, or nothing useful for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from support.native import MemoryTables
from support.store import appending, records
from trio.testing import MockClock

from penstock.backends.sequence_numbering import open_indexed
from penstock.core.marks import START, Mark
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CheckTail, FromSeqNum
from penstock.model.records import RecordId, StreamRef
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_s3p.back import open_s3p
from penstock_s3p.codec import AppendedId, AppendRecords, Records, Reply, S3PServer

STREAM = StreamRef("penstock", "orders")
NOTHING = Records([], [], [])
Answer = Callable[[Any], Reply]


class Scripted:
    """A server that answers with what `answer` gives; `more` follows each answer."""

    def __init__(self, answer: Answer, nursery: trio.Nursery) -> None:
        self._answer = answer
        self._nursery = nursery
        self.asked = 0
        self.more: Callable[[bytes], bytes] = lambda _answer: b""

    async def dial(self, *_: object) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        await trio.lowlevel.checkpoint()
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        codec = S3PServer()
        async with stream:
            while True:
                while (event := codec.next_event()) is NEED_DATA:
                    codec.receive(await stream.receive_some(1 << 16))
                if event is PAUSED:
                    return
                self.asked += 1
                said = b"".join(codec.send(self._answer(event)))
                await stream.send_all(said + self.more(said))


@pytest.fixture
async def serving() -> Any:
    async with trio.open_nursery() as nursery:
        yield lambda answer: Scripted(answer, nursery)
        nursery.cancel_scope.cancel()


def opened(server: Scripted) -> Any:
    return open_s3p(Upstream(UpstreamSettings(name="far", host="127.0.0.1", port=1), dial=server.dial))


async def test_a_server_that_does_not_wait(autojump_clock: MockClock, serving: Any) -> None:
    """It answers a READ with BLOCK at once: it is not asked without a pause."""
    server = serving(lambda _: Records([], [], []))
    async with opened(server) as native:
        started = trio.current_time()
        scanned = await native.scan(STREAM, START, max_records=10, max_bytes=1000, wait=10.0)
        assert scanned.bodies == []
        assert 9 < trio.current_time() - started < 11
        assert server.asked <= 110


async def test_records_from_before_what_was_asked_for(autojump_clock: MockClock, serving: Any) -> None:
    server = serving(lambda _: Records([5, 6], [0, 0], [b"a", b"b"]))
    async with opened(server) as native, open_indexed(native, "far", MemoryTables()) as back:
        for _ in range(2):
            before = server.asked
            with pytest.raises(OperationFailed) as caught:
                await back.perform(CheckTail(STREAM))
                await records(back, FromSeqNum(0), stream=STREAM)
            assert caught.value.failure.code is FailureCode.UPSTREAM_FAULT
            assert server.asked - before < 50


@pytest.mark.parametrize("said", [RecordId(0, 0), RecordId(3, 7), RecordId((1 << 64) - 1, (1 << 64) - 1)])
async def test_identifiers_of_appends_that_cannot_be(autojump_clock: MockClock, serving: Any, said: RecordId) -> None:
    """The server says that its records go back in time, or end all time."""

    def answer(command: Any) -> Reply:
        if isinstance(command, AppendRecords):
            return AppendedId(said)
        return Records([9], [0], [b"there"]) if command.min_id <= RecordId(9, 0) else Records([], [], [])

    server = serving(answer)
    async with opened(server) as native, open_indexed(native, "far", MemoryTables()) as back:
        assert (await back.perform(CheckTail(STREAM))).seq_num == 1
        try:
            await back.perform(appending(b"a", b"b", stream=STREAM))
        except OperationFailed as error:
            assert error.failure.code is FailureCode.UNAVAILABLE
        with trio.fail_after(60):
            assert (await back.perform(CheckTail(STREAM))).seq_num >= 1


@pytest.mark.parametrize("size", [0, 2, 5, None])
async def test_a_reply_that_comes_twice(autojump_clock: MockClock, serving: Any, size: int | None) -> None:
    """The copy, or as much of it as came, is not taken for the reply to the next command on the connection."""
    server = serving(lambda command: Records([9], [0], [b"there"]) if command.min_id < RecordId(9, 1) else NOTHING)
    server.more = lambda said: said[:size]
    async with opened(server) as native:
        for _ in range(3):
            there = await native.scan(STREAM, START, max_records=10, max_bytes=1000, wait=0)
            assert there.bodies == [b"there"]
            after = Mark(0, 9, 1, 0)
            assert (await native.scan(STREAM, after, max_records=10, max_bytes=1000, wait=0)).bodies == []


async def test_a_reply_that_comes_twice_acknowledges_no_other_append(autojump_clock: MockClock, serving: Any) -> None:
    places = iter(range(100))
    server = serving(lambda _: AppendedId(RecordId(9, next(places))))
    server.more = lambda said: said
    async with opened(server) as native, native.append_session(STREAM) as session:
        for body in (b"a", b"b", b"c"):
            await session.send(appending(body, stream=STREAM))
        acknowledged = []
        with pytest.raises(OperationFailed) as caught:
            while True:
                acknowledged += await session.receive()
        assert caught.value.failure.code is FailureCode.UPSTREAM_FAULT
        assert "it answered an APPEND with 9-0 after 9-0" in caught.value.failure.message
        assert [ack.last for ack in acknowledged] == [(9, 0)]
