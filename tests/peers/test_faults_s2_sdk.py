"""The official Python client of S2 against faults: those it survives by itself, and those its user must handle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, ReadLimit, Record, SeqNum
from s2_sdk._exceptions import AppendIndefiniteFailureError
from support.faults import injected, with_faults
from support.peers import finish
from support.pravega.clients import wait_until
from support.process import BASIN, GatewayProcess, running_gateway

PATIENT = s2.Retry(
    max_attempts=20, min_base_delay=timedelta(milliseconds=10), max_base_delay=timedelta(milliseconds=50)
)
RULES = [
    {"name": "refused", "action": "error", "operations": ["append"], "code": "rate_limited", "every": 3, "times": 4},
    {"name": "unread", "action": "error", "operations": ["read"], "code": "unavailable", "times": 3},
    {"name": "cut-acks", "action": "cut", "operations": ["append"], "after": 10, "every": 7, "times": 3},
    {"name": "cut-reads", "action": "cut", "operations": ["read"], "times": 3},
    {"name": "terminals", "action": "terminal", "operations": ["read"], "code": "unavailable", "records": 7},
    {"name": "late", "action": "delay", "delay_ms": 2, "jitter_ms": 10, "seed": 3},
]


@pytest.fixture(scope="module")
def faulty() -> Iterator[GatewayProcess]:
    with running_gateway(with_faults(*RULES)) as process:
        yield process


def client_of(gateway: GatewayProcess) -> s2.S2:
    origin = f"http://127.0.0.1:{gateway.s2_port}"
    return s2.S2("a-token", endpoints=s2.Endpoints(origin, origin), retry=PATIENT)


async def append(events: s2.S2Stream, count: int) -> None:
    """`count` records; each says where it must stand, so sending it again is safe. Where an acknowledgement was lost
    the client cannot know whether that was there already: its user asks, and goes on."""
    while (first := (await events.check_tail()).seq_num) < count:
        with suppress(s2.SeqNumMismatchError, AppendIndefiniteFailureError):
            async with events.append_session() as session:
                for number in range(first, count):
                    await session.submit(AppendInput([Record(b"%d" % number)], match_seq_num=number))


async def read(events: s2.S2Stream, count: int) -> list[int]:
    found: list[int] = []
    async with events.read_session(start=SeqNum(0), limit=ReadLimit(count=count)) as session:
        async for batch in session:
            found += [int(record.body) for record in batch.records]
    return found


@pytest.mark.parametrize("name", [rule["name"] for rule in RULES])
def test_it_survives(faulty: GatewayProcess, name: str) -> None:
    """Every record is acknowledged, and read, once and in order; and the faults were there."""

    async def main() -> None:
        async with client_of(faulty) as client:
            events = client.basin(BASIN).stream(name)
            await events.check_tail()  # this creates the stream
            if name == "refused":
                for number in range(8):
                    await events.append(AppendInput([Record(b"%d" % number)], match_seq_num=number))
            else:
                await append(events, 40)
            count = 8 if name == "refused" else 40
            assert await read(events, count) == list(range(count))

    finish(main())
    assert injected(faulty, name)


def test_a_reader_is_told_of_what_cannot_be_mended() -> None:
    """A batch that never comes leaves a gap: the reader sees it in the sequence numbers."""
    rule = {"name": "gap", "action": "drop", "operations": ["read"], "times": 1}
    with running_gateway(with_faults(rule)) as gateway:

        async def main() -> None:
            async with client_of(gateway) as client:
                events = client.basin(BASIN).stream("gap")
                await events.append(AppendInput([Record(b"lost")]))
                seen: list[int] = []

                async def follow() -> None:
                    async with events.read_session(start=SeqNum(0)) as session:
                        async for batch in session:
                            seen.extend(record.seq_num for record in batch.records)
                            return

                reader = asyncio.create_task(follow())
                await asyncio.to_thread(wait_until, lambda: bool(injected(gateway, "gap")))
                await events.append(AppendInput([Record(b"found")]))
                await reader
                assert seen == [1]

        finish(main())
