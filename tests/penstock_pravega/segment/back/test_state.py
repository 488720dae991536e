"""The gateway's state in a stream of a segment store: connections that break, and gateways that follow one another."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from support.segment.back import STREAM, opened
from support.segment.front import WatchedBack
from support.store.table_histories import compare
from trio.testing import MockClock

from penstock.backends.logged_tables import ByteLog, LoggedTables, open_logged_tables
from penstock.backends.sequence_numbering import IndexedBack, open_indexed
from penstock.core.back import Back
from penstock.model.limits import MIB
from penstock.model.operations import Append, CheckTail, CreateBasin, CreateStream, FromSeqNum, Locate
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig
from penstock_pravega.segment.back import SegmentBack
from penstock_pravega.segment.front import SegmentFront

LOG = StreamRef("penstock-state", "gateways")


@pytest.fixture
async def front(front: SegmentFront, store: WatchedBack) -> SegmentFront:
    await store.perform(CreateBasin(LOG.basin, BasinConfig()))
    return front


@asynccontextmanager
async def state_of(back: SegmentBack) -> AsyncIterator[LoggedTables]:
    async with open_logged_tables(ByteLog(back.direct, LOG, "the store", 1000.0, outdated=1000), MIB) as tables:
        yield tables


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
async def test_connections_that_break_lose_no_change_and_make_none_twice(
    clock: MockClock, front: SegmentFront, seed: int
) -> None:
    dice = random.Random(seed)
    async with opened(front, recover_seconds=1000) as (one, wires), opened(front, recover_seconds=1000) as (other, _):
        wires.cuts = [(dice.choice(["out", "in"]), dice.randrange(2000)) for _ in range(8)]
        history = [
            (dice.randrange(2), dice.choice(["put", "remove"]), [(dice.choice([b"a", b"b"]), "found")])
            for _ in range(20)
        ]
        async with state_of(one) as first, state_of(other) as second:
            await compare([first, second], history)
        assert len(wires.cuts) < 8, "some were made"


@asynccontextmanager
async def gateway(front: SegmentFront) -> AsyncIterator[IndexedBack]:
    """A gateway without a disk that numbers records."""
    async with (
        opened(front, one_in_flight=True) as (back, _),
        state_of(back) as state,
        open_indexed(back.native, "store", state) as records,
    ):
        yield records


async def appended(back: Back, *bodies: bytes) -> list[int]:
    """Append records; return their numbers."""
    found = await back.perform(Append(STREAM, list(bodies), sum(map(len, bodies))))
    return list(range(found.start.seq_num, found.end.seq_num))


async def test_two_gateways_give_the_numbers_of_a_stream(clock: MockClock, front: SegmentFront) -> None:
    async with gateway(front) as one, gateway(front) as other:
        await one.perform(CreateStream(STREAM))
        assert await appended(one, b"a", b"b") == [0, 1]
        assert await appended(other, b"c") == [2]
        assert await appended(one, b"d") == [3]
        located = []
        for back in (one, other):
            assert (await back.perform(CheckTail(STREAM))).seq_num == 4
            located.append([await back.perform(Locate(STREAM, FromSeqNum(number))) for number in range(4)])
        assert located[0] == located[1]
    async with gateway(front) as third:
        assert [await third.perform(Locate(STREAM, FromSeqNum(number))) for number in range(4)] == located[0]
        assert await appended(third, b"e") == [4]


async def test_equal_records_through_two_gateways_at_once(clock: MockClock, front: SegmentFront) -> None:
    """Only the places that the server tells can distinguish them: each has one number, told once."""
    told: list[int] = []
    async with gateway(front) as one, gateway(front) as other, trio.open_nursery() as nursery:
        await one.perform(CreateStream(STREAM))

        async def append(back: Back) -> None:
            for _ in range(8):
                told.extend(await appended(back, b"the same", b"the same"))

        begun = trio.current_time()
        async with trio.open_nursery() as writers:
            for number in range(6):
                writers.start_soon(append, (one, other)[number % 2])
        assert trio.current_time() - begun < 4, "none waits in vain for another"
        assert sorted(told) == list(range(96))
        assert (await one.perform(CheckTail(STREAM))).seq_num == 96
        nursery.cancel_scope.cancel()
