"""Several gateways with the same state under random faults: slow servers, lost answers of the state, gateways that are
killed, and other clients that append and trim. What a record's position was once, it is for ever and through each."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel
from support.native import FakeNative, FakeSession
from support.store import NOW, STREAM, Wall, appending, records
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.logged_tables import open_logged_tables
from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings, open_indexed
from penstock.core.back import Following
from penstock.core.native import NativeAck, Scanned
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CheckTail, FromSeqNum, Read, Trim
from penstock.model.records import Record

GATEWAYS = 3
TOLERATED = {
    FailureCode.UNAVAILABLE,
    FailureCode.HOT_SERVER,
    FailureCode.RANGE_NOT_SATISFIABLE,
    FailureCode.SEQ_NUM_MISMATCH,
}
"""Codes that clients may get: the position of an append is not known, or the server is away."""


class SlowNative(FakeNative):
    """A server whose requests and answers take some time."""

    def __init__(self, wall: Wall, *, offsets: bool, dice: random.Random) -> None:
        super().__init__(wall, offsets=offsets, most=7)
        self._dice = dice

    async def pause(self) -> None:
        await trio.sleep(self._dice.random() ** 3 / 10)

    async def scan(self, *args: Any, **options: Any) -> Scanned:
        await self.pause()
        found = await super().scan(*args, **options)
        await self.pause()
        return found

    async def append_at(self, *args: Any) -> NativeAck:
        await self.pause()
        ack = await super().append_at(*args)
        await self.pause()
        return ack

    async def trim(self, *args: Any) -> None:
        await self.pause()
        await super().trim(*args)
        await self.pause()

    @asynccontextmanager
    async def append_session(self, *args: Any) -> AsyncIterator[FakeSession]:
        async with super().append_session(*args):
            yield SlowSession(self)


class SlowSession(FakeSession):
    async def send(self, append: Any) -> None:
        await trio.lowlevel.checkpoint()
        await super().send(append)

    async def receive(self) -> list[NativeAck]:
        acks = await super().receive()
        await self._native.pause()  # type: ignore[attr-defined]
        return acks


class World:
    """The server, its gateways and all their answers so far."""

    def __init__(self, seed: int, offsets: bool) -> None:
        self.dice = random.Random(seed)
        self.wall = Wall()
        self.native = SlowNative(self.wall, offsets=offsets, dice=self.dice)
        self.shared = SharedLog(lambda: self.dice.choice([True, False, None, None, None, None, None, None]))
        self.told: dict[int, tuple[int, bytes]] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.backs: list[IndexedBack] = []
        self.calm = False
        self.count = 0

    def learn(self, seq_num: int, timestamp: int | None, body: bytes) -> None:
        known = self.told.get(seq_num)
        if timestamp is None:
            assert known is None or known[1] == body, (seq_num, known, body)
            return
        assert self.told.setdefault(seq_num, (timestamp, body)) == (timestamp, body), (seq_num, known, timestamp, body)

    def learn_all(self, found: list[Record]) -> None:
        for record in found:
            self.learn(record.seq_num, record.timestamp, record.body)

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[IndexedBack]:
        end = SharedLogEnd(self.shared, self.dice.choice([0.001, 0.01, 0.1]))
        settings = IndexedSettings(create_streams=True, settle_seconds=1.0)
        async with (
            open_logged_tables(end, 1 << 20) as state,
            open_indexed(self.native, "fake", state, settings, self.wall) as back,
        ):
            yield back

    async def run_gateway(self) -> None:
        """Run a gateway and its clients, and kill it with them; then another one."""
        while not self.calm:
            with trio.move_on_after(self.dice.uniform(0.5, 8)):
                async with self.gateway() as back, trio.open_nursery() as clients:
                    for client in (self.write, self.write, self.follow, self.ask):
                        clients.start_soon(self._patiently, client, back)

    async def _patiently(self, client: Any, back: IndexedBack) -> None:
        while not self.calm:
            try:
                await client(back)
            except OperationFailed as error:
                assert error.failure.code in TOLERATED, error
            await trio.sleep(self.dice.random() / 10)

    async def write(self, back: IndexedBack) -> None:
        async with back.append_session(STREAM) as session:
            sent: list[list[bytes]] = []
            for _ in range(self.dice.randint(1, 4)):
                self.count += 1
                some = [b"%d-%d" % (self.count, part) for part in range(self.dice.randint(1, 3))]
                stamps = self.dice.choice([None, [NOW - 50 + self.dice.randint(0, 100) for _ in some]])
                sent.append(some)
                await session.send(appending(*some, timestamps=stamps))
            session.close()
            while acks := await session.receive():
                for appended in acks:
                    bodies = sent.pop(0)
                    assert appended.end.seq_num - appended.start.seq_num == len(bodies)
                    for at, body in enumerate(bodies):
                        seq_num = appended.start.seq_num + at
                        self.acknowledged[body] = seq_num
                        self.learn(seq_num, appended.start.timestamp if at == 0 else None, body)

    async def follow(self, back: IndexedBack) -> None:
        start = max(self.told, default=0) if self.dice.random() < 0.5 else 0
        async with back.read_session(Read(STREAM, FromSeqNum(start), clamp=True)) as session:
            while not self.calm:
                with trio.move_on_after(1):
                    more = await session.next()
                    if more is not None and not isinstance(more, Following):
                        self.learn_all(list(more.records()))

    async def ask(self, back: IndexedBack) -> None:
        tail = (await back.perform(CheckTail(STREAM))).seq_num
        if self.dice.random() < 0.2:
            await back.perform(Trim(STREAM, FromSeqNum(max(tail - self.dice.randint(5, 60), 0))))
        elif self.native.offsets and self.dice.random() < 0.5:
            self.count += 1
            body = b"%d-at" % self.count
            appended = await back.perform(appending(body, match=tail))
            self.acknowledged[body] = appended.start.seq_num
            self.learn(appended.start.seq_num, appended.start.timestamp, body)

    async def others(self) -> None:
        while not self.calm:
            await trio.sleep(self.dice.random())
            self.wall.now += self.dice.randint(0, 30)
            self.count += 1
            if self.dice.random() < 0.5:
                self.native.store([b"%d-other-%d" % (self.count, part) for part in range(self.dice.randint(1, 3))])


async def run(seed: int, offsets: bool) -> None:
    world = World(seed, offsets)
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            for _ in range(GATEWAYS):
                nursery.start_soon(world.run_gateway)
            nursery.start_soon(world.others)
            await trio.sleep(20)
            world.calm = True
        world.shared.lossy = lambda: None
        found = []
        for _ in range(2):
            async with world.gateway() as back:
                found.append(await records(back, FromSeqNum(0), wait=0, clamp=True))
                world.learn_all(found[-1])
    first = found[0][0].seq_num if found[0] else world.native.first
    assert [record.seq_num for record in found[0]] == list(range(first, first + len(found[0])))
    assert [record.body for record in found[0]] == world.native.bodies[len(world.native.bodies) - len(found[0]) :]
    assert [(r.seq_num, r.timestamp, r.body) for r in found[0]] == [(r.seq_num, r.timestamp, r.body) for r in found[1]]
    numbers = list(world.acknowledged.values())
    assert len(set(numbers)) == len(numbers), "two records were told the same number"
    places = {record.body: record.seq_num for record in found[0]}
    assert all(places[body] == number for body, number in world.acknowledged.items() if number >= first)
    timestamps = [world.told[number][0] for number in sorted(world.told)]
    assert timestamps == sorted(timestamps)
    assert len(world.acknowledged) > 20, "there was something to see"


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_positions_never_change(autojump_clock: MockClock, seed: int, offsets: bool) -> None:
    await run(seed, offsets)


@pytest.mark.slow
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("seed", range(3, 20))
async def test_positions_never_change_in_many_runs(autojump_clock: MockClock, seed: int, offsets: bool) -> None:
    await run(seed, offsets)


@pytest.mark.long
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("seed", range(20, 60))
async def test_positions_never_change_in_very_many_runs(autojump_clock: MockClock, seed: int, offsets: bool) -> None:
    await run(seed, offsets)
