"""Exact timestamps (S3P's ID) on an S2 server, which may adjust what it is given; and streams that require some."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.s2.model import ModelServer, model_server
from support.store import NOW, STREAM, acknowledged, appending

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended, FromSeqNum, Trim
from penstock.model.records import RecordId, StreamPosition
from penstock.model.streams import StreamConfig, TimestampingMode

Clock = trio.testing.MockClock


async def outcome(doing: Awaitable[Appended]) -> Appended | Failure:
    try:
        return await doing
    except OperationFailed as error:
        return error.failure


async def test_exact_timestamps_are_kept_or_refused(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        server.back.append(appending(b"foreign", timestamps=[40]))

        async def exactly(ms: int, body: bytes = b"x") -> Appended | Failure:
            return await outcome(back.perform(appending(body, exact=ms)))

        assert await exactly(39) == Failure(
            FailureCode.NON_MONOTONIC_TIMESTAMP, "timestamp 39 is before 40, that of the last record", {"last": 40}
        )
        done = await exactly(40)
        assert isinstance(done, Appended)
        assert done.last_id == RecordId(40, 1)
        server.back.before_append = lambda: foreign(server, 60)  # after the tail was asked for
        done = await exactly(70)
        assert isinstance(done, Appended)
        assert (done.start.seq_num, done.last_id) == (3, RecordId(70, 0))
        server.back.before_append = lambda: foreign(server, 90)
        failed = await exactly(80)
        assert isinstance(failed, Failure)
        assert failed.code is FailureCode.NON_MONOTONIC_TIMESTAMP
        failed = await exactly(NOW + 1)
        assert isinstance(failed, Failure)
        assert failed.code is FailureCode.NOT_REPRESENTABLE
        assert [record.timestamp for record in server.back.streams[STREAM].records] == [40, 40, 60, 70, 90]


def foreign(server: ModelServer, timestamp: int) -> None:
    server.back.before_append = lambda: None
    server.back.append(appending(b"foreign", timestamps=[timestamp]))


async def test_exact_timestamps_need_a_server_that_takes_them(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM, StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL))
        failed = await outcome(back.perform(appending(b"a", exact=5)))
        assert isinstance(failed, Failure)
        assert failed.code is FailureCode.NOT_REPRESENTABLE
        server.back.make(STREAM, StreamConfig(timestamping_uncapped=True))
        await trio.sleep(10)  # the configuration is believed for some seconds
        done = await back.perform(appending(b"a", exact=NOW + 1000))
        assert done.last_id == RecordId(NOW + 1000, 0)


async def test_exact_timestamps_are_pipelined(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        server.back.delays = iter([1.0] * 8)
        async with back.append_session(STREAM) as session:
            for ms in (1, 1, 2, 3, 3, 3, 7, 6):
                await session.send(appending(b"x", b"y", exact=ms))
            acks: list[Appended] = []
            with pytest.raises(OperationFailed) as failed:
                while True:
                    acks += await session.receive()
            assert failed.value.failure.code is FailureCode.NON_MONOTONIC_TIMESTAMP
        found = [ack.last_id for ack in acks]
        assert found == [RecordId(*pair) for pair in ((1, 1), (1, 3), (2, 1), (3, 1), (3, 3), (3, 5), (7, 1))]
        tails = [request for request in server.requests if request.path.endswith("/tail")]
        assert len(tails) == 1


async def test_clients_without_timestamps_where_they_are_required(autojump_clock: Clock) -> None:
    """They are given the gateway's clock; clients that could have said when are not."""
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM, StreamConfig(timestamping_mode=TimestampingMode.CLIENT_REQUIRE))
        timeless = replace(appending(b"a", b"b"), create_if_missing=False)
        assert (await back.perform(timeless)).end == StreamPosition(2, NOW)
        async with back.append_session(STREAM, create_if_missing=False) as session:
            await session.send(timeless)
            assert (await acknowledged(session, 1))[0].end == StreamPosition(4, NOW)
        given = replace(appending(b"c", timestamps=[NOW - 5]), create_if_missing=False)
        assert (await back.perform(given)).end == StreamPosition(5, NOW)
        assert server.back.streams[STREAM].records[-1].timestamp == NOW
        assert (await back.perform(Trim(STREAM, FromSeqNum(2)))).seq_num == 2
        with pytest.raises(OperationFailed) as failed:
            await back.perform(appending(b"d"))
        assert failed.value.failure.code is FailureCode.INVALID
        assert len(server.back.streams[STREAM].records) == 6
