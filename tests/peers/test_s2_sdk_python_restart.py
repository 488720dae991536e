"""The official Python client across a restart of the gateway: nothing acknowledged is lost, nothing is duplicated.

Each record's body is its number. The writer asks for its position with match_seq_num, which is what makes sending again
after a cut safe (S2 fact sheet, 7.7); a reader follows all the while. In the end number n stands at sequence number n,
exactly once, for the follower and for later readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, ReadLimit, Record, SeqNum
from s2_sdk._exceptions import AppendIndefiniteFailureError
from support.peers import create_basin, create_stream, finish
from support.process import GatewayProcess
from support.reloads import churn

BASIN = "restart-basin"
TOTAL = 600
IN_FLIGHT = 20

PATIENT = s2.Retry(
    max_attempts=60, min_base_delay=timedelta(milliseconds=50), max_base_delay=timedelta(milliseconds=200)
)


def client_of(gateway: GatewayProcess) -> s2.S2:
    origin = f"http://127.0.0.1:{gateway.s2_port}"
    return s2.S2("a-token", endpoints=s2.Endpoints(origin, origin), retry=PATIENT)


async def write_session(events: s2.S2Stream, first: int, acked: list[int]) -> None:
    """One session that writes the numbers from `first` on, at a steady pace; notes what was acknowledged."""
    waiting: asyncio.Queue[s2.BatchSubmitTicket] = asyncio.Queue(IN_FLIGHT)
    session = events.append_session()

    async def submit() -> None:
        for n in range(first, TOTAL):
            await waiting.put(await session.submit(AppendInput([Record(b"%d" % n)], match_seq_num=n)))
            await asyncio.sleep(0.002)

    async def note() -> None:
        for _ in range(first, TOTAL):
            ack = await (await waiting.get())
            acked.extend(range(ack.start.seq_num, ack.end.seq_num))

    try:
        async with asyncio.TaskGroup() as group:  # the one that fails ends the other
            group.create_task(submit())
            group.create_task(note())
    except* (s2.S2Error, AppendIndefiniteFailureError) as failed:
        with suppress(s2.S2Error):  # says the same once more
            await session.close()
        raise failed.exceptions[0] from None
    await session.close()


async def write_all(events: s2.S2Stream, acked: list[int]) -> int:
    """Writes every number, as an application would: after an uncertain failure, asks for the tail and goes on.

    Returns how often a session failed.
    """
    failures = 0
    while len(acked) < TOTAL:
        tail = (await events.check_tail()).seq_num
        acked[:] = range(tail)  # everything below the tail is durable
        try:
            await write_session(events, tail, acked)
        except (s2.SeqNumMismatchError, AppendIndefiniteFailureError):
            failures += 1
    return failures


async def follow(events: s2.S2Stream, seen: list[int]) -> None:
    async with events.read_session(start=SeqNum(0)) as session:
        async for batch in session:
            for record in batch.records:
                assert record.body == b"%d" % record.seq_num
                seen.append(record.seq_num)
            if len(seen) >= TOTAL:
                return


async def across(gateway: GatewayProcess, disturb: Callable[[], Awaitable[None]]) -> int:
    """Writes and follows while `disturb` runs; checks the outcome; returns how often a writing session failed."""
    create_basin(gateway.s2_port, BASIN)
    create_stream(gateway.s2_port, BASIN, "events")
    acked: list[int] = []
    seen: list[int] = []
    async with client_of(gateway) as writer, client_of(gateway) as reader:
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(reader.basin(BASIN).stream("events"), seen))
            writing = group.create_task(write_all(writer.basin(BASIN).stream("events"), acked))
            while len(acked) < TOTAL // 4:
                await asyncio.sleep(0.01)
                assert not writing.done()
            await disturb()
        everything: list[bytes] = []
        async with (
            reader.basin(BASIN)
            .stream("events")
            .read_session(start=SeqNum(0), limit=ReadLimit(count=TOTAL + 1)) as session
        ):
            async for batch in session:
                everything += [record.body for record in batch.records]
    assert seen == list(range(TOTAL))
    assert everything == [b"%d" % n for n in range(TOTAL)]
    return writing.result()


def test_nothing_is_lost_or_doubled_across_kill_9(fresh_gateway: GatewayProcess) -> None:
    async def kill_and_start() -> None:
        await asyncio.to_thread(fresh_gateway.kill)
        await asyncio.to_thread(fresh_gateway.start)

    finish(across(fresh_gateway, kill_and_start), 90)


@pytest.mark.parametrize("round_", range(2))
def test_a_drain_costs_a_client_nothing_at_all(fresh_gateway: GatewayProcess, round_: int) -> None:
    """SIGTERM while sessions are busy: they are advised to leave, finish what is in flight, and come back."""

    async def drain_and_start() -> None:
        await asyncio.sleep(0.01 * round_)
        await asyncio.to_thread(fresh_gateway.terminate)
        await asyncio.to_thread(fresh_gateway.start)

    assert finish(across(fresh_gateway, drain_and_start), 90) == 0


def test_reloads_cost_a_client_nothing_at_all(fresh_gateway: GatewayProcess) -> None:
    """Other configurations, good and bad, while sessions are busy: no connection is dropped."""

    async def reload_again_and_again() -> None:
        await asyncio.to_thread(churn, fresh_gateway, ["s2"])

    assert finish(across(fresh_gateway, reload_again_and_again), 90) == 0
