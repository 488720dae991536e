"""Bytes over the real `s2 lite` (`make peers`): writers, a server that is killed, a gateway that crashes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from support.real_backs import BackServer, S2Lite

from penstock.backends.byte_view import open_bytes_on_records
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.byte_events import join_events, split_events
from penstock.model.byte_operations import AppendBytes, GetAttribute, GetByteStreamInfo, ReadBytes, WriterPosition
from penstock.model.failures import OperationFailed
from penstock.model.operations import CreateStream, EnsureBasin
from penstock.model.records import StreamRef
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_s2.back.back import open_s2
from penstock_s2.back.settings import S2BackSettings

pytestmark = pytest.mark.peer

STREAM = StreamRef("lite-bytes-tests", "stream")
WRITERS = [bytes([number]) * 16 for number in range(3)]
ROUNDS = 3
LAST = 2000
"""Events of the last append of each: more than any before."""


@asynccontextmanager
async def gateway(server: BackServer, directory: Path) -> AsyncIterator[Back]:
    host, port = server.address
    upstream = Upstream(UpstreamSettings(name="lite", host=host, port=port))
    async with (
        open_embedded(EmbeddedSettings(directory=directory)) as state,
        open_s2(S2BackSettings(recover_seconds=0.5), upstream) as records,
        open_bytes_on_records(records, "lite", state) as back,
    ):
        yield back


def event(writer: bytes, number: int) -> bytes:
    """It says whose it is; some are large."""
    return b"%d:%d " % (writer[0], number) + b"x" * (number * 37 % 3000)


async def write(back: Back, writer: bytes, acknowledged: dict[bytes, int]) -> None:
    """For ever, in blocks of any size, as clients do: after a failure it asks how far it came."""
    rng = random.Random(writer[0])
    while True:
        try:
            at = max(await back.perform(GetAttribute(STREAM, writer)), 0)
            async with back.append_session(STREAM, create_if_missing=False) as session:
                sent: deque[int] = deque()
                while True:
                    count = rng.choice([1, 3, 40, 1500])
                    data = join_events([event(writer, number) for number in range(at + 1, at + 1 + count)])
                    await session.send(AppendBytes(STREAM, data, WriterPosition(writer, at + count, at or None)))
                    at += count
                    sent.append(at)
                    if len(sent) > 4:
                        acknowledged[writer] = [sent.popleft() for _ in await session.receive()][-1]
        except OperationFailed:
            await trio.sleep(0.05)


async def content(back: Back) -> bytes:
    length = (await back.perform(GetByteStreamInfo(STREAM))).length
    data = bytearray()
    while len(data) < length:
        data += (await back.perform(ReadBytes(STREAM, len(data), min(1 << 20, length - len(data))))).data
    return bytes(data)


async def all_advance(acknowledged: dict[bytes, int]) -> None:
    """Wait until the server has acknowledged more of each writer."""
    before = dict(acknowledged)
    with trio.fail_after(120):
        while any(acknowledged[writer] == before[writer] for writer in WRITERS):  # noqa: ASYNC110  (no event tells)
            await trio.sleep(0.02)


@pytest.mark.parametrize("crashes", [False, True], ids=["the server is killed", "the gateway crashes as well"])
def test_each_event_once(tmp_path: Path, crashes: bool) -> None:
    with S2Lite(durable=True) as server:
        trio.run(_each_event_once, server, tmp_path, crashes)


async def _each_event_once(server: BackServer, directory: Path, crashes: bool) -> None:
    async with gateway(server, directory) as back:
        await back.perform(EnsureBasin(STREAM.basin))
        await back.perform(CreateStream(STREAM))
    acknowledged = dict.fromkeys(WRITERS, 0)
    for _ in range(ROUNDS if crashes else 1):
        async with gateway(server, directory) as back, trio.open_nursery() as nursery:
            for writer in WRITERS:
                nursery.start_soon(write, back, writer, acknowledged)
            for _ in range(1 if crashes else ROUNDS):
                await all_advance(acknowledged)
                await trio.to_thread.run_sync(server.kill)
                await trio.to_thread.run_sync(server.start)
            if crashes:
                await trio.sleep(0.3)
            else:
                await all_advance(acknowledged)
            nursery.cancel_scope.cancel()
    async with gateway(server, directory) as back:
        reached = {writer: await back.perform(GetAttribute(STREAM, writer)) for writer in WRITERS}
        before = split_events(await content(back))
        for writer, at in reached.items():  # an append that the server has in part is made whole
            data = join_events([event(writer, number) for number in range(at + 1, at + LAST + 1)])
            await back.perform(AppendBytes(STREAM, data, WriterPosition(writer, at + LAST, at)))
        events = split_events(await content(back))
    assert events[: len(before)] == before
    for writer, at in reached.items():
        mine = [some for some in events if some.startswith(b"%d:" % writer[0])]
        # What was on its way to the server when a gateway ended may come after its successor looked: more is there.
        assert at >= acknowledged[writer] > 0 and len(mine) >= at + LAST
        wrong = [number for number, some in enumerate(mine, 1) if some != event(writer, number)]
        assert not wrong, (writer, at, len(mine), wrong[:5])
