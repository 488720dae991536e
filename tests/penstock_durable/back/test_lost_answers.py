"""Answers lost between a server of Durable Streams and the gateway: what is stored, and what clients are told."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from support.durable import ref
from support.store import Fails, acknowledged, appending, bodies
from support.store import records as seen
from trio.testing import MockClock

from penstock.core.delivery import Delivery
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateStream, FromSeqNum, Trim

STREAM = ref("orders")


def batch(*bodies: bytes) -> Any:
    return appending(*bodies, stream=STREAM)


async def read(back: Any) -> list[bytes]:
    return await bodies(back, FromSeqNum(0), stream=STREAM)


@pytest.mark.parametrize("loss", ["lost", "before"])
async def test_an_append_is_stored_once(server: Any, clock: MockClock, loss: str) -> None:
    """It is sent again with its number, three times, and the server knows it."""
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        setattr(server, loss, 3)
        assert (await back.perform(batch(b"b", b"c"))).start.seq_num == 1
        assert (await back.perform(batch(b"d"))).start.seq_num == 3
        assert await read(back) == [b"a", b"b", b"c", b"d"]


async def test_a_session_goes_on(server: Any, clock: MockClock) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        async with back.append_session(STREAM) as session:
            for number in range(60):
                if number % 20 == 5:
                    server.lost = 1
                await session.send(batch(b"%d" % number))
                await trio.sleep(0.01)
            acks = await acknowledged(session, 60)
        assert [one.start.seq_num for one in acks] == list(range(60))
        assert await read(back) == [b"%d" % number for number in range(60)]


async def test_a_server_takes_less_than_waits(server: Any, clock: MockClock) -> None:
    """Appends that are too large together are sent in smaller numbers, each once."""
    sent = [b"%03d" % number * 10_000 for number in range(100)]
    async with server.back(append_inflight_bytes=1 << 22) as back:
        await back.perform(CreateStream(STREAM))
        async with back.append_session(STREAM) as session:
            for body in sent:
                await session.send(batch(body))
            acks = await acknowledged(session, 100)
        assert [one.start.seq_num for one in acks] == list(range(100))
        assert await read(back) == sent


async def test_or_twice(server: Any, clock: MockClock) -> None:
    async with server.back(delivery=Delivery.AT_LEAST_ONCE) as back:
        await back.perform(CreateStream(STREAM))
        server.lost = 1
        await back.perform(batch(b"a"))
        assert await read(back) == [b"a", b"a"]


async def test_or_its_client_decides(server: Any, clock: MockClock) -> None:
    async with server.back(delivery=Delivery.REFUSE) as back:
        await back.perform(CreateStream(STREAM))
        server.lost = 1
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"a"))
        await back.perform(batch(b"b"))
        assert await read(back) == [b"a", b"b"]


async def test_a_server_that_stays_away(server: Any, clock: MockClock) -> None:
    """In doubt, the append fails with UNAVAILABLE; one that was not sent, with HOT_SERVER; then all is well again."""
    async with server.back(recover_seconds=5) as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        server.lost = 1
        server.while_lost = partial(setattr, server.far, "up", False)
        began = trio.current_time()
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"b"))
        assert 4 < trio.current_time() - began < 6
        with Fails(FailureCode.HOT_SERVER):
            await back.perform(batch(b"c"))
        server.far.up = True
        assert (await back.perform(batch(b"d"))).start.seq_num == 2
        assert await read(back) == [b"a", b"b", b"d"]


async def test_sessions_end_with_the_append_that_failed(server: Any, clock: MockClock) -> None:
    """Nothing that was sent behind it is stored."""
    async with server.back(delivery=Delivery.REFUSE) as back:
        await back.perform(CreateStream(STREAM))
        async with back.append_session(STREAM) as session:
            server.before = 1
            for number in range(10):
                await session.send(batch(b"%d" % number))
            with Fails(FailureCode.UNAVAILABLE):
                await acknowledged(session, 10)
        assert await read(back) == []
        await back.perform(batch(b"another session"))


async def test_a_server_forgets_its_producers(server: Any, clock: MockClock) -> None:
    """As one that has lost a part of its state: nothing was stored, so the append is sent in a new epoch."""
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        await back.perform(batch(b"b"))
        server.forgetful = "-new"
        await back.perform(batch(b"c"))
        server.lost = 1
        await back.perform(batch(b"d"))
        assert await read(back) == [b"a", b"b", b"c", b"d"]


async def test_reads_go_on(server: Any, clock: MockClock) -> None:
    """Positions are the same for another gateway process, which has the table of offsets, and without it."""
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        records = [b"%04d" % number * 50 for number in range(300)]
        for start in range(0, 300, 6):
            await back.perform(batch(*records[start : start + 6]))
        assert await read(back) == records
    async with server.back() as back:
        assert await bodies(back, FromSeqNum(250), stream=STREAM) == records[250:]


async def test_the_server_removes_the_beginning(server: Any, clock: MockClock) -> None:
    """The records that are left keep their numbers, and clients are told which are gone."""
    records = [b"%04d" % number * 500 for number in range(2000)]
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        for start in range(0, 2000, 50):
            await back.perform(batch(*records[start : start + 50]))
        assert len(await read(back)) == 2000
        await server.service.back.perform(Trim(STREAM, FromSeqNum(12)))  # of 40 appends
    async with server.back() as back:
        found = await seen(back, FromSeqNum(0), stream=STREAM)
        assert (found[0].seq_num, found[0].body) == (600, records[600])
        assert [record.body for record in found] == records[600:]
        assert (await back.perform(batch(b"more"))).start.seq_num == 2000
