"""Fixtures of the Kafka front's tests: a store, a front over it, and a clock that jumps while all tasks are idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.clocks import threads_hold
from support.kafka.front import Client, Connect, serving
from support.s3p.front import store_with_basin
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import CreateStream
from penstock.model.records import StreamRef


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
async def back(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with store_with_basin(tmp_path) as store:
        yield store


@pytest.fixture
async def connect(back: EmbeddedBack) -> AsyncIterator[Connect]:
    async with serving(back) as (connecting, _):
        yield connecting


@pytest.fixture
async def client(connect: Connect, back: EmbeddedBack) -> Client:
    """A connected client, and topic `t` with one partition."""

    await back.perform(CreateStream(StreamRef("penstock", "t")))
    return connect()
