"""Memory of a connection to the S2 front when many waiting requests are answered at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing
from support.backs import PartialBack
from support.http.client import HttpClient, memory_pair

from penstock.core.back import Following, ReadSession
from penstock.model.operations import Read
from penstock.model.records import Columns, RecordBatch, StreamPosition
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.wire.http import End, HttpLimits
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.json_records import encode_read_batch
from penstock_s2.front import S2Front, S2Settings

MANY = 30
TARGET = "/v1/streams/s/records?seq_num=0&wait=60"
BATCH = RecordBatch(Columns([0], [5], [b"x" * 1_000_000]))


class Session(ReadSession):
    """A read that waits for news, and is then given the batch of all who wait."""

    def __init__(self, news: trio.Event) -> None:
        self._news = news
        self._following = False

    async def next(self) -> RecordBatch | Following | None:
        if not self._following:
            self._following = True
            return Following(StreamPosition(0, 0))
        await self._news.wait()
        return BATCH

    def behind(self) -> bool:
        return self._news.is_set()

    def tail(self) -> StreamPosition:
        return StreamPosition(0, 0)


class Back(PartialBack):
    """A back with one stream, to which something comes once there is news."""

    def __init__(self) -> None:
        self.news = trio.Event()

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[Session]:
        yield Session(self.news)


async def test_long_polls_that_are_not_read_hold_no_more_than_the_limit(autojump_clock: trio.testing.MockClock) -> None:
    back = Back()
    front = S2Front(back, S2Settings())
    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, front.handle)
        client = HttpClient(near, "h2", HttpLimits(stream_window=1))
        for _ in range(MANY):
            await client.say(End(await client.open("GET", TARGET, [("s2-basin", "conf-basin-01")])))
        await trio.testing.wait_all_tasks_blocked()
        encode_read_batch(BATCH, BytesFormat.RAW)  # which all answers share
        tracemalloc.start()
        try:
            back.news.set()
            await trio.testing.wait_all_tasks_blocked()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 1_000_000 < held < HttpSettings().max_unsent
