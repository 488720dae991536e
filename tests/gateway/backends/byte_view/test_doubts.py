"""Doubts of other kinds: bytes that repeat themselves, counts that cannot be made, others in the middle, and who waits.

Each byte is there once, and none that was acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest
import trio
from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Fails, acknowledged, appending, eventually, sending

from penstock.backends.byte_view import BytesOnRecords, BytesSettings
from penstock.backends.byte_view.writers import WriterStates
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import GetAttribute, GetByteStreamInfo, ReadBytes
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, CreateStream
from penstock.model.records import StreamRef

EVENTS = [b"%05d" % number for number in range(2500)]
"""Of three batches."""

Reopen = Callable[[], AbstractAsyncContextManager[BytesOnRecords]]


async def content(back: Back) -> bytes:
    length = (await back.perform(GetByteStreamInfo(STREAM))).length
    data = b""
    while len(data) < length:
        data += (await back.perform(ReadBytes(STREAM, len(data), 1 << 20))).data
    return data


async def position(back: Back) -> int:
    return await back.perform(GetAttribute(STREAM, bytes(16)))


async def _has(server: EmbeddedBack, count: int) -> None:
    """Wait until the server has so many records; until then, what was sent to it may still come late."""
    with trio.fail_after(10):
        while (await server.perform(CheckTail(STREAM))).seq_num < count:  # noqa: ASYNC110  (a server tells of no event)
            await trio.sleep(0.01)


async def test_what_says_the_same_as_before_is_not_taken_for_that(gateway: Reopen, records: RecordsOnly) -> None:
    """Two were made durable together; the first is there and acknowledged, and the second says the same."""
    async with gateway() as back:
        records.takes = 1
        async with back.append_session(STREAM, create_if_missing=False) as session:
            for number in (1, 2):
                await session.send(sending(b"same", position=number))
            await acknowledged(session, 1)
            await session.send(sending(b"other", position=3))
            await eventually(lambda: len(records.swallowed) == 2)
    records.takes = None
    async with gateway() as back:
        assert await position(back) == 1
        await back.perform(sending(b"same", position=2))
        assert await content(back) == join_events([b"same", b"same"])


@pytest.mark.parametrize("code", [FailureCode.HOT_SERVER, FailureCode.RATE_LIMITED, FailureCode.UNAVAILABLE])
async def test_what_was_acknowledged_but_cannot_be_counted(
    back: BytesOnRecords, records: RecordsOnly, code: FailureCode
) -> None:
    """The back has it, with another client's record before it; then the server fails and that record's length is
    unknown.
    """
    await back.perform(sending(b"a", position=1))
    records.before_sending = [appending(b"x")]
    records.fails, records.fails_with = CheckTail, code
    with Fails(FailureCode.UNAVAILABLE):
        await back.perform(sending(b"b", position=2))
    records.fails = None
    assert await position(back) == 2
    assert await content(back) == join_events([b"a", b"x", b"b"])


async def test_an_intent_that_cannot_be_written_says_nothing_of_what_was_sent(
    back: BytesOnRecords, records: RecordsOnly, server: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await back.perform(sending(b"a", position=1))
    records.mute = trio.Event()
    async with back.append_session(STREAM, create_if_missing=False) as session:
        await session.send(sending(b"b", position=2))
        await eventually(lambda: len(records.sent) == 2)
        await _has(server, 2)

        async def drained(*_: object) -> None:
            raise fail(FailureCode.SERVER_DRAINING, "the store is about to end")

        with monkeypatch.context() as changed:
            changed.setattr(WriterStates, "intend", drained)
            await session.send(sending(b"c", position=3))
            with suppress(OperationFailed):
                while True:
                    await session.receive()
    records.mute.set()
    assert await position(back) == 2
    assert await content(back) == join_events([b"a", b"b"])


async def test_another_client_appends_in_the_middle_of_a_large_append(gateway: Reopen, records: RecordsOnly) -> None:
    """It is alone, since something may still come late: then the rest of it is sent, and not what is there."""
    async with gateway() as back:
        await back.perform(sending(b"before", position=1))
        records.dies, records.before = True, 0
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(sending(b"late", position=2))
        records.dies = records.lost = False
    async with gateway() as back:
        assert await position(back) == 1
        records.before_sending = [appending(b"foreign"), None]
        with suppress(OperationFailed):
            await back.perform(sending(*EVENTS, position=5))
        if await position(back) < 5:
            await back.perform(sending(*EVENTS, position=5))
        expected = [b"before", *EVENTS[:1000], b"foreign", *EVENTS[1000:]]
        assert await content(back) == join_events(expected)


class TestWhoWaits:
    @pytest.fixture
    def settings(self) -> BytesSettings:
        return BytesSettings(max_read_sessions=1, append_inflight_bytes=100, idle_seconds=0.1)

    async def test_two_wait_for_a_session_to_read_by(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        streams = [StreamRef(BASIN, f"stream-{number}") for number in range(3)]
        for stream in streams:
            await server.perform(CreateStream(stream))
            await server.perform(appending(b"x", stream=stream))
        done = []

        async def follow(stream: StreamRef) -> None:
            offset = (await back.perform(GetByteStreamInfo(stream))).length
            await back.perform(ReadBytes(stream, offset, 100, wait=0.5))

        async def read(stream: StreamRef) -> None:
            done.append((await back.perform(ReadBytes(stream, 0, 100))).data)

        steps = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, streams[0])
            await eventually(lambda: bool(back._windows._all))
            nursery.start_soon(read, streams[1])
            nursery.start_soon(read, streams[2])
            while len(done) < 2 and steps < 100_000:
                steps += 1
                await trio.lowlevel.checkpoint()
                if steps % 1000 == 0:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert done == [join_events([b"x"])] * 2

    async def test_followers_that_come_again_and_again_make_room(
        self, back: BytesOnRecords, server: EmbeddedBack
    ) -> None:
        other = StreamRef(BASIN, "other")
        await server.perform(CreateStream(other))
        await server.perform(appending(b"x", stream=other))

        async def follow() -> None:
            while True:
                await back.perform(ReadBytes(STREAM, 0, 100, wait=0.05))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await eventually(lambda: bool(back._windows._all))
            with trio.fail_after(10):
                assert (await back.perform(ReadBytes(other, 0, 100))).data == join_events([b"x"])
            nursery.cancel_scope.cancel()

    async def test_a_read_that_is_being_ended_serves_no_request(
        self, back: BytesOnRecords, server: EmbeddedBack
    ) -> None:
        for number in range(3):
            await server.perform(appending(b"x"))
            assert (await back.perform(ReadBytes(STREAM, 9 * number, 100))).data == join_events([b"x"])
            back._windows.close_idle(trio.current_time() + 1)

    async def test_a_large_append_is_not_overtaken_for_ever(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        records.mute = trio.Event()

        async def append(size: int) -> None:
            await back.perform(sending(bytes(size), writer=b"%016d" % size, position=1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, 40)
            await eventually(lambda: bool(records.sent))
            for size in (70, 5):
                nursery.start_soon(append, size)
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(records.sent) == 1
            records.mute.set()
        assert [len(some.bodies[0]) for some in records.sent] == [40, 70, 5]
