"""Connections that are lost in the middle: acknowledged records are there, in order, as often as is guaranteed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing
from support.store import Fails, appending, bodies
from trio.testing import MockClock

from penstock.core.delivery import Delivery
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Appended, FromSeqNum
from penstock.model.records import StreamRef
from penstock_s3p.front import S3PFront

STREAM = StreamRef("penstock", "orders")
_OUT, _BACK = (None, 10, 75, 200, 390), (None, 0, 19, 60)
CUTS = [cut for cut in itertools.product(_OUT, _BACK) if cut != (None, None)]


async def append_some(back: Any, count: int) -> tuple[list[Appended], OperationFailed | None]:
    """Append `count` records in one session, and return the acknowledgements and the failure, if any."""
    acks: list[Appended] = []
    try:
        async with back.append_session(STREAM) as session:
            for number in range(count):
                await session.send(appending(b"%d" % number, stream=STREAM))
            session.close()
            while found := await session.receive():
                acks += found
    except OperationFailed as error:
        return acks, error
    return acks, None


@pytest.mark.parametrize("cut", CUTS)
async def test_at_least_once_loses_nothing(server: Any, cut: tuple[int | None, int | None]) -> None:
    async with server.back(delivery=Delivery.AT_LEAST_ONCE) as back:
        server.cuts = [(None, None), cut, cut]
        acks, failed = await append_some(back, 10)
        assert failed is None and len(acks) == 10
        stored = await bodies(server.store, FromSeqNum(0), stream=STREAM)
        for number, ack in enumerate(acks):
            assert stored[ack.start.seq_num] == b"%d" % number
        numbers = [ack.start.seq_num for ack in acks]
        assert numbers == sorted(numbers)
        assert await bodies(back, FromSeqNum(0), stream=STREAM) == stored


@pytest.mark.parametrize("cut", CUTS)
async def test_refuse_never_doubles(server: Any, cut: tuple[int | None, int | None]) -> None:
    async with server.back(delivery=Delivery.REFUSE) as back:
        server.cuts = [(None, None), cut, cut]
        acks, failed = await append_some(back, 10)
        stored = await bodies(server.store, FromSeqNum(0), stream=STREAM)
        assert len(set(stored)) == len(stored) >= len(acks)
        assert [stored[ack.start.seq_num] for ack in acks] == [b"%d" % number for number in range(len(acks))]
        assert failed is None or failed.failure.code is FailureCode.UNAVAILABLE
        assert failed is not None or len(acks) == 10


async def test_a_server_that_stays_away_is_given_up(server: Any, clock: MockClock) -> None:
    async with (
        server.back(delivery=Delivery.AT_LEAST_ONCE, recover_seconds=10) as back,
        back.append_session(STREAM) as session,
    ):
        server.cuts = [(None, 0), (None, 0)]
        await session.send(appending(b"a", stream=STREAM))
        server.down = True
        started = trio.current_time()
        with Fails(FailureCode.UNAVAILABLE):
            await session.receive()
        assert 5 < trio.current_time() - started < 12


async def test_a_connection_that_was_closed_while_idle_is_not_used(server: Any) -> None:
    async with server.native() as native:
        await native.bounds(STREAM)
        server.front.drain()
        await trio.testing.wait_all_tasks_blocked()
        server.front = S3PFront(server.store)
        async with native.append_session(STREAM) as session:
            await session.send(appending(b"a", stream=STREAM))
            assert len(await session.receive()) == 1
        assert server.dialled == 2


async def test_a_connection_is_closed_also_where_who_took_it_gave_up(server: Any) -> None:
    async with server.native() as native:
        await native.bounds(STREAM)
        for passes in range(12):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(native.bounds, STREAM)
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await native.bounds(STREAM)
    assert not server.open
